"""A partition's first batch flies alone until brokers know the producer: else a refusal of it turns the order. Ids: SN14, SN26.

Kafka takes any first sequence of a producer that a partition does not know (ProducerAppendInfo); franz-go waits too (`okOnSink`).
"""

from __future__ import annotations

import pytest

from spark_producer.accumulator.drainer import UNKNOWN_PRODUCER_AFTER
from spark_producer.errors import ConnectionFailed
from spark_producer.sender import ClientRequest
from spark_producer.sender.identity import LAST_EPOCH
from tests.fakes.sender_fakes import (
    TOPIC,
    SenderFakes,
    answer_to,
    batches_of,
    first_letters,
    in_flight,
    sender_fakes,
    sent_in,
)
from tests.fakes.simulated_cluster import Log, numbers_in

IN_FLIGHT = 5
TIMED_OUT, TOO_LARGE, NOT_ENOUGH, NOT_AUTHORIZED, OUT_OF_ORDER, DUPLICATE = 7, 10, 19, 29, 45, 46


def carried_out(log: Log, outgoing: ClientRequest) -> int:
    """Return the response of the partition's leader to a request of one batch."""
    (batch,) = outgoing.batches
    (sent,) = sent_in(outgoing)
    return log.append(sent.header, numbers_in(batch.data, sent.header))[0]


def write_all(made: SenderFakes, log: Log) -> None:
    """Requests reach the leader in the order sent, and are answered together."""
    for _ in range(50):
        if made.fakes.incomplete.idle:
            return
        for outgoing, code in [(outgoing, carried_out(log, outgoing)) for outgoing in made.produce()]:
            made.complete(outgoing, answer_to(outgoing, code))
        made.fakes.clock.advance(1)
    raise AssertionError("not idle after 50 rounds")


@pytest.mark.covers("SN14")
@pytest.mark.parametrize("refusals", [0, 1, 2])
def test_a_first_batch_that_is_refused_is_not_overtaken(refusals: int) -> None:
    made, log = sender_fakes(acquainted=False), Log(1, 1 << 20, refusals=refusals)
    made.batches(*(b"%08d" % number for number in range(9)))
    write_all(made, log)
    assert log.records == list(range(9))
    assert made.fakes.drainer.current_identity.epoch == 0, "no gap was seen"


@pytest.mark.covers("SN14")
def test_the_first_acknowledgement_lets_the_others_follow_unanswered() -> None:
    made = sender_fakes(acquainted=False)
    made.batches(b"a", b"b", b"c")
    (first,) = made.produce()
    assert first_letters([first]) == "a"
    made.complete(first, answer_to(first))
    assert first_letters(made.produce()) == "bc"


def test_the_first_batches_of_a_thousand_partitions_share_one_round_trip() -> None:
    made = sender_fakes(acquainted=False, memory=1 << 22, leaders={TOPIC: (1,) * 1000})
    for partition in range(1000):
        made.batches(b"a", b"b", partition=partition)
    (first,) = made.produce()
    assert len(first.batches) == 1000
    made.complete(first, answer_to(first))
    (second,) = made.produce()
    assert len(second.batches) == 1000


@pytest.mark.parametrize("partitions", [4, 1000])
def test_it_costs_one_round_trip_whatever_the_number_of_partitions(partitions: int) -> None:
    rounds = []
    for acquainted in (True, False):
        made = sender_fakes(acquainted=acquainted, memory=1 << 23, linger=1000, leaders={TOPIC: (1,) * partitions})
        for partition in range(partitions):
            made.batches(b"a", b"b", b"c", b"d", b"e", partition=partition)
        made.fakes.incomplete.begin_close()
        rounds.append(0)
        while not made.fakes.incomplete.idle:
            rounds[-1] += 1
            requests: list[ClientRequest] = []
            while len(requests) < IN_FLIGHT and (more := made.step().requests):
                requests += more
            for outgoing in requests:
                made.complete(outgoing, answer_to(outgoing))
    assert rounds == [1, 2], "all five of each partition; one, then four"


@pytest.mark.covers("SN26")
def test_a_duplicate_says_too_that_the_producer_is_known() -> None:
    made = sender_fakes(acquainted=False)
    made.batches(b"a", b"b", b"c")
    (first,) = made.produce()
    made.complete(first, answer_to(first, TIMED_OUT))
    made.fakes.clock.advance(1)
    (again,) = made.produce()
    assert first_letters([again]) == "a", "it may be in the log or not: nothing is known yet"
    made.complete(again, answer_to(again, DUPLICATE))
    assert first_letters(made.produce()) == "bc"


@pytest.mark.covers("SN21")
def test_a_first_batch_that_was_given_up_and_is_in_the_log_lets_the_others_follow() -> None:
    made = sender_fakes(acquainted=False, delivery_timeout=5)
    made.batches(b"a")
    (first,) = made.produce()
    made.fakes.clock.advance(5)
    made.batches(b"b", b"c")
    assert made.produce() == []
    made.complete(first, answer_to(first))
    assert first_letters(made.produce()) == "bc"


def test_a_lost_connection_leaves_the_first_batch_alone() -> None:
    made = sender_fakes(acquainted=False)
    made.batches(b"a", b"b")
    (first,) = made.produce()
    made.complete(first, error=ConnectionFailed("reset"))
    made.fakes.clock.advance(1)
    made.batches(b"c")
    assert [batch.topic_partition.partition for batch in batches_of(made.step().requests)] == [0], (
        "and a question for metadata"
    )
    assert batches_of(made.step().requests) == []


def test_the_halves_of_a_first_batch_and_what_follows_go_one_by_one() -> None:
    made = sender_fakes(acquainted=False, batch_size=4096)
    made.fakes.append(*[letter * 900 for letter in (b"a", b"b", b"c", b"d")])
    (first,) = made.produce()
    made.complete(first, answer_to(first, TOO_LARGE))
    made.fakes.append(*[letter * 900 for letter in (b"e", b"f", b"g", b"h", b"i", b"j")])
    (head,) = made.produce()
    assert len(head.batches) == 1
    made.complete(head, answer_to(head))
    (tail,) = made.produce()
    made.complete(tail, answer_to(tail))
    assert len(made.produce()) > 1


@pytest.mark.covers("SN22", "SN23")
def test_in_a_new_epoch_every_partition_begins_with_one_batch() -> None:
    made = sender_fakes()
    (lost,) = in_flight(made, b"a")
    made.complete(lost, answer_to(lost, NOT_AUTHORIZED))
    for partition in (0, 1):
        made.batches(b"b", b"c", b"d", partition=partition)
    first = made.produce()
    assert [(batch.topic_partition.partition, batch.base_sequence) for batch in batches_of(first)] == [(0, 0), (1, 0)]
    assert {batch.identity.epoch for batch in batches_of(first)} == {1}
    for outgoing in first:
        made.complete(outgoing, answer_to(outgoing))
    assert sorted(first_letters(made.produce())) == ["c", "c", "d", "d"]


@pytest.mark.covers("SN31")
def test_under_another_producer_id_too() -> None:
    made = sender_fakes(epoch=LAST_EPOCH)
    (lost,) = in_flight(made, b"a")
    made.complete(lost, answer_to(lost, NOT_AUTHORIZED))
    made.batches(b"b", b"c")
    made.get_id(78)
    assert first_letters(made.produce()) == "b"


def test_a_response_to_a_batch_of_a_former_identity_is_ignored() -> None:
    made = sender_fakes(acquainted=False)
    made.batches(b"a", b"b")
    (first,) = made.produce()
    queue = made.fakes.queue()
    queue.begin(queue.identity._replace(epoch=1))
    made.complete(first, answer_to(first))
    assert not queue.known_to_broker


@pytest.mark.parametrize(
    ("pause", "together"), [(0.0, "ab"), (UNKNOWN_PRODUCER_AFTER - 0.5, "ab"), (UNKNOWN_PRODUCER_AFTER, "a")]
)
def test_after_a_pause_the_producer_may_be_unknown_again(pause: float, together: str) -> None:
    """The topic may have been recreated meanwhile, or the producer id may have expired."""
    made = sender_fakes(acquainted=False)
    (first,) = in_flight(made, b"x")
    made.complete(first, answer_to(first))
    made.fakes.clock.advance(pause)
    made.batches(b"a", b"b")
    requests = made.produce()
    assert first_letters(requests) == together
    made.complete(requests[0], answer_to(requests[0]))
    made.batches(b"y")
    assert first_letters(made.produce())[-1] == "y"


def test_a_partition_that_was_forgotten_and_is_written_to_again_begins_alone() -> None:
    made = sender_fakes(acquainted=False)
    (first,) = in_flight(made, b"x")
    made.complete(first, answer_to(first))
    made.fakes.drainer.forget({TOPIC})
    made.batches(b"a", b"b")
    (second,) = made.produce()
    assert [(batch.base_sequence, first_letters([second])) for batch in second.batches] == [(1, "a")]
    made.complete(second, answer_to(second))
    assert first_letters(made.produce()) == "b"


@pytest.mark.covers("SN13")
def test_without_idempotence_nothing_waits() -> None:
    made = sender_fakes(idempotent=False)
    made.batches(b"a", b"b", b"c")
    assert first_letters(made.produce()) == "abc"
