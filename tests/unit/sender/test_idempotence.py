"""Sequence numbers: given once, kept through retries, wrapped at 2^31, reset. Ids (tests/ids.md): SN14, SN30, TM7, RB4."""

from __future__ import annotations

import pytest

from spark_producer.accumulator import NO_IDENTITY, DrainGate, ProducerBatch, ProducerIdAndEpoch
from spark_producer.common.cluster import TopicPartition
from spark_producer.record.batch_v2 import check_crc, read_header
from spark_producer.record.sequence_numbers import add_to_sequence, is_later
from spark_producer.sender.identity import LAST_EPOCH, ProducerIdentity
from spark_producer.sender.sequences import Sequencer
from tests.fakes.accumulator_fakes import TP, AccumulatorFakes, accumulator_fakes
from tests.fakes.sender_fakes import acquaint

LAST = 2**31 - 1


class Numbered:
    """Batches of one fakes, stamped as they are taken."""

    def __init__(self, *, enabled: bool = True, epoch: int = 2) -> None:
        self.fakes: AccumulatorFakes = accumulator_fakes(linger=0)
        self.identity = ProducerIdentity(self.fakes.accumulator, float, enabled=enabled)
        self.sequencer = Sequencer(self.identity)
        if enabled:
            self.identity.received(4711, epoch)

    def stamped(self, records: int = 1, tp: TopicPartition = TP) -> ProducerBatch:
        self.fakes.append(*[b"v"] * records, tp=tp)
        queue = self.fakes.queue(tp)
        if self.sequencer.enabled and queue.identity is NO_IDENTITY:
            acquaint(queue, self.identity.current, self.fakes.clock.now)
        batch = self.fakes.take(tp)
        self.sequencer.stamp(batch)
        return batch

    def lose(self, batch: ProducerBatch) -> None:
        """The batch fails for good."""
        self.fakes.completion.remove_in_flight(batch)
        self.sequencer.batch_failed(batch)
        self.fakes.completion.fail(batch, ValueError("refused"))
        self.settle()

    def acknowledge(self, batch: ProducerBatch) -> None:
        self.fakes.completion.remove_in_flight(batch)
        self.sequencer.acknowledged(batch, 100)
        self.fakes.completion.complete(batch, 100, -1)
        self.settle()

    def refuse_for_gap(self, batch: ProducerBatch) -> None:
        self.fakes.completion.remove_in_flight(batch)
        self.sequencer.on_gap(batch)
        self.fakes.completion.reenqueue(batch)
        self.settle()

    def put_back(self, batch: ProducerBatch) -> None:
        self.fakes.completion.remove_in_flight(batch)
        self.fakes.completion.reenqueue(batch)
        self.settle()

    def settle(self) -> None:
        for queue in self.fakes.incomplete.queues.values():
            self.sequencer.review(queue)
            self.fakes.completion.refresh([queue], self.fakes.clock.now)


def sent_as(batch: ProducerBatch) -> tuple[int, int, int]:
    """Producer id, epoch, base sequence."""
    return (*batch.identity, batch.base_sequence)


def test_an_id_is_needed_only_by_an_idempotent_producer_that_has_none() -> None:
    fakes = accumulator_fakes()
    assert ProducerIdentity(fakes.accumulator, float, enabled=True).needed
    assert not Numbered().identity.needed
    assert not ProducerIdentity(fakes.accumulator, float, enabled=False).needed


@pytest.mark.covers("TM7")
def test_every_partition_counts_from_zero() -> None:
    made = Numbered()
    others = (TP, TopicPartition("t", 1), TP, TopicPartition("u", 0))
    batches = [made.stamped(records, tp) for records, tp in zip((3, 2, 4, 1), others, strict=True)]
    assert [batch.base_sequence for batch in batches] == [0, 0, 3, 0]


@pytest.mark.covers("TM7", "RB4", "RB18")
@pytest.mark.parametrize(("start", "records", "following"), [(LAST, 1, 0), (LAST - 5, 10, 4), (LAST - 1, 1, LAST)])
def test_sequences_wrap_to_zero(start: int, records: int, following: int) -> None:
    made = Numbered()
    made.stamped()
    made.fakes.queue().next_sequence = start
    first, second = made.stamped(records), made.stamped()
    assert (first.base_sequence, second.base_sequence) == (start, following)
    assert read_header(first.data).base_sequence == start


@pytest.mark.covers("TM7")
@pytest.mark.parametrize(
    ("one", "other", "later"),
    [(1, 0, True), (0, 1, False), (5, 5, False), (0, LAST, True), (LAST, 0, False), (99, LAST - 100, True)],
)
def test_sequences_are_compared_the_shorter_way_round(one: int, other: int, later: bool) -> None:
    assert is_later(one, other) is later
    assert add_to_sequence(LAST, 100) == 99


def test_a_stamped_batch_keeps_its_sequence_and_is_sealed_again() -> None:
    made = Numbered()
    batch = made.stamped(2)
    sealed = bytes(batch.data)
    made.stamped(5)
    made.sequencer.stamp(batch)
    assert bytes(batch.data) == sealed
    header = read_header(batch.data)
    assert header[9:13] == (4711, 2, 0, 2)
    check_crc(header, batch.data)


def test_without_idempotence_nothing_is_stamped() -> None:
    batch = Numbered(enabled=False).stamped(2)
    header = read_header(batch.data)
    assert header[9:13] == (-1, -1, -1, 2)
    check_crc(header, batch.data)


def test_a_late_acknowledgement_of_an_earlier_batch_does_not_turn_the_count_back() -> None:
    made = Numbered()
    first, second = made.stamped(3), made.stamped(2)
    made.acknowledge(second)
    made.acknowledge(first)
    assert made.fakes.queue().last_acked == 4


@pytest.mark.covers("SN22")
def test_a_lost_batch_without_later_ones_bumps_the_epoch() -> None:
    made = Numbered()
    made.acknowledge(made.stamped(3))
    made.lose(made.stamped(2))
    assert made.identity.current == ProducerIdAndEpoch(4711, 3)
    assert sent_as(made.stamped()) == (4711, 3, 0)


@pytest.mark.covers("SN19")
def test_a_batch_that_was_never_sent_leaves_no_gap() -> None:
    made = Numbered()
    made.acknowledge(made.stamped(3))
    made.fakes.append(b"never sent")
    made.fakes.clock.advance(120)
    for batch in made.fakes.completion.take_expired(made.fakes.clock.now):
        made.sequencer.batch_failed(batch)
        made.fakes.completion.fail(batch, ValueError("expired"))
    made.settle()
    assert sent_as(made.stamped()) == (4711, 2, 3)


@pytest.mark.covers("SN20")
def test_a_batch_after_the_lost_one_that_succeeds_proves_that_it_was_written() -> None:
    made = Numbered()
    first, second = made.stamped(3), made.stamped(2)
    made.lose(first)
    made.fakes.append(b"new")
    assert made.fakes.ready() == [], "nothing new before it is known whether there is a gap"
    made.acknowledge(second)
    assert made.fakes.queue().gate == DrainGate.OPEN
    assert sent_as(made.stamped()) == (4711, 2, 5)


@pytest.mark.covers("SN20")
def test_a_batch_after_the_lost_one_that_is_refused_begins_a_new_epoch() -> None:
    made = Numbered()
    first, second, third = made.stamped(3), made.stamped(2), made.stamped(4)
    made.lose(first)
    made.refuse_for_gap(second)
    assert made.identity.current.epoch == 2, "the third is still under way"
    made.refuse_for_gap(third)
    assert [sent_as(batch) for batch in (second, third)] == [(4711, 3, 0), (4711, 3, 2)]
    assert made.fakes.take() is second
    made.acknowledge(second)
    assert made.fakes.take() is third
    made.acknowledge(third)
    assert sent_as(made.stamped()) == (4711, 3, 6)


@pytest.mark.covers("SN20")
def test_a_batch_in_doubt_keeps_its_sequence_until_it_is_refused_for_the_gap() -> None:
    """The batch may be in the log although its response was lost: with a new sequence number it would be written twice."""
    made = Numbered()
    first, second = made.stamped(3), made.stamped(2)
    made.put_back(second)
    made.lose(first)
    assert made.fakes.take() is second
    assert sent_as(second) == (4711, 2, 3)
    made.acknowledge(second)
    assert (made.identity.current.epoch, made.fakes.queue().gate) == (2, DrainGate.OPEN)


@pytest.mark.covers("SN17")
def test_a_gap_without_a_lost_batch_begins_a_new_epoch_too() -> None:
    made = Numbered()
    made.acknowledge(made.stamped(3))
    batch = made.stamped(2)
    made.refuse_for_gap(batch)
    assert sent_as(batch) == (4711, 3, 0)


@pytest.mark.covers("SN18")
def test_no_gap_follows_a_batch_that_is_sent_again() -> None:
    made = Numbered()
    first, second = made.stamped(3), made.stamped(2)
    made.put_back(first)
    made.refuse_for_gap(second)
    assert made.identity.current.epoch == 2
    assert made.fakes.take() is first


@pytest.mark.covers("SN23", "SN25")
def test_other_partitions_finish_their_in_flight_batches_before_their_sequences_start_again() -> None:
    made = Numbered()
    other = TopicPartition("t", 1)
    flying = made.stamped(7, other)
    made.lose(made.stamped(3))
    made.fakes.append(b"waits", tp=other)
    assert other not in made.fakes.ready()
    made.put_back(flying)
    assert made.fakes.take(other) is flying
    assert sent_as(flying) == (4711, 2, 0), "sent again as what it was"
    made.acknowledge(flying)
    batch = made.fakes.take(other)
    made.sequencer.stamp(batch)
    assert sent_as(batch) == (4711, 3, 0)


def test_two_partitions_that_lost_a_batch_share_the_new_epoch() -> None:
    made = Numbered()
    other = TopicPartition("t", 1)
    batches = made.stamped(3), made.stamped(3, other)
    for batch in batches:
        made.lose(batch)
    assert made.identity.current.epoch == 3
    assert sent_as(made.stamped(1, other)) == (4711, 3, 0)


@pytest.mark.covers("SN31")
def test_beyond_the_last_epoch_a_new_id_is_asked_for() -> None:
    made = Numbered(epoch=LAST_EPOCH)
    made.acknowledge(made.stamped(3))
    first, second = made.stamped(2), made.stamped(4)
    made.lose(first)
    made.refuse_for_gap(second)
    assert made.identity.needed
    assert made.fakes.drainer.current_identity is NO_IDENTITY
    made.settle()
    made.identity.received(4712, 0)
    made.sequencer.restart_waiting()
    made.settle()
    assert made.fakes.take() is second
    assert sent_as(second) == (4712, 0, 0)
    assert sent_as(made.stamped(1, TopicPartition("t", 1))) == (4712, 0, 0)


@pytest.mark.covers("TM7")
def test_an_answer_to_a_batch_of_a_former_epoch_counts_nothing() -> None:
    made = Numbered()
    flying = made.stamped(7)
    queue = made.fakes.queue()
    queue.begin(ProducerIdAndEpoch(4711, 3))
    made.sequencer.acknowledged(flying, 100)
    assert (queue.last_acked, queue.last_acked_offset, queue.next_sequence) == (-1, -1, 0)
