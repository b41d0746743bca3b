"""Pipelined requests of a connection: Produces that are confirmed together, responses in order, and limits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker.connections.publish_buffer import MAX_REQUESTS
from spark_producer.broker.deferred_response import waiting_size
from spark_producer.common.error_codes import Code
from spark_producer.protocol import FETCH, METADATA, PRODUCE, messages
from tests.unit.broker.batches import make_batch
from tests.unit.broker.connections.test_lifecycle import FOREVER, MIB, SETTINGS, fetch, framed
from tests.unit.broker.unconfirmed_broker import UnconfirmedBroker, results

LONG = 600_000
"""Milliseconds that a Produce waits to be confirmed, as long as any may."""


@contextmanager
def broker(path: Path, *, writes_at_once: bool = True, **settings: Any) -> Iterator[UnconfirmedBroker]:
    """Yield a broker with other settings."""
    made = UnconfirmedBroker(path, replace(SETTINGS, **settings), writes_at_once=writes_at_once)
    yield made
    made.close()


@pytest.fixture
def late(tmp_path: Path) -> Iterator[UnconfirmedBroker]:
    with broker(tmp_path) as made:
        yield made


@pytest.fixture
def unwritten(tmp_path: Path) -> Iterator[UnconfirmedBroker]:
    with broker(tmp_path, writes_at_once=False) as made:
        yield made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[UnconfirmedBroker]:
    """With a small publish buffer."""
    with broker(tmp_path, publish_buffer_bytes=MIB) as made:
        yield made


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[UnconfirmedBroker]:
    """With memory for thousands of requests that wait."""
    with broker(tmp_path, max_buffered_bytes=64 * MIB) as made:
        yield made


@pytest.fixture
def unlimited(tmp_path: Path) -> Iterator[UnconfirmedBroker]:
    """With a publish buffer of any size."""
    with broker(tmp_path, publish_buffer_bytes=-1) as made:
        yield made


def one(index: int = 0, *, acks: int = -1, size: int = 100, timeout_ms: int = LONG, topic: str = "t") -> bytes:
    """A frame of a Produce of one batch, with one record."""
    data = (messages.ProducePartition(index, make_batch(1, size=size)),)
    request = messages.ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=(messages.ProduceTopic(topic, partition_data=data),)
    )
    return framed(PRODUCE, request)


def tiny(partitions: int) -> bytes:
    """A frame of a Produce of one batch; all partitions but the first one do not exist."""
    data = [messages.ProducePartition(0, make_batch(1))]
    data += [messages.ProducePartition(index, None) for index in range(2, partitions + 1)]
    request = messages.ProduceRequest(
        acks=-1, timeout_ms=LONG, topic_data=(messages.ProduceTopic("t", partition_data=tuple(data)),)
    )
    return framed(PRODUCE, request)


def admitted(late: UnconfirmedBroker, index: int = 0) -> int:
    return len(late.storage.logs["t", index].batches)


def nothing_is_held(late: UnconfirmedBroker) -> bool:
    clients = late.broker.clients
    published = clients.publish_buffer
    return clients.budget.held == published.bytes.amount == published.paused == 0


# Order


def test_the_next_produces_are_handled_while_the_first_one_waits(late: UnconfirmedBroker) -> None:
    late.producer.send(one() * 50)
    late.broker.turns(60)
    assert (admitted(late), late.producer.has_response()) == (50, False)
    late.storage.confirm_all()
    assert [results(late.producer) for _ in range(50)] == [[(Code.NONE, offset)] for offset in range(50)]
    assert nothing_is_held(late)


def test_what_is_confirmed_first_is_answered_in_order_all_the_same(late: UnconfirmedBroker) -> None:
    late.producer.send(one(0) + one(1) + one(0))
    late.broker.turns()
    late.storage.logs["t", 1].confirmed = 1
    late.broker.clients.changed(("t", 1))
    late.broker.turns()
    assert not late.producer.has_response()
    late.storage.logs["t", 0].confirmed = 1
    late.broker.clients.changed(("t", 0))
    assert [results(late.producer) for _ in range(2)] == [[(Code.NONE, 0)], [(Code.NONE, 0)]]
    late.broker.turns()
    assert not late.producer.has_response()
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 1)]


def test_an_error_and_acks_1_wait_for_the_answers_before_them(late: UnconfirmedBroker) -> None:
    late.producer.send(one() + one(topic="no") + one(acks=1) + one(acks=7))
    late.broker.turns()
    assert (admitted(late), late.producer.has_response()) == (2, False)
    late.storage.confirm_all()
    assert [results(late.producer)[0][0] for _ in range(4)] == [
        *(Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NONE, Code.INVALID_REQUIRED_ACKS)
    ]
    assert nothing_is_held(late)


def test_acks_0_is_admitted_in_its_turn_and_has_no_answer(late: UnconfirmedBroker) -> None:
    late.producer.send(one() + one(acks=0) + one())
    late.broker.turns()
    assert admitted(late) == 3
    late.storage.confirm_all()
    assert [results(late.producer) for _ in range(2)] == [[(Code.NONE, 0)], [(Code.NONE, 2)]]


def test_acks_0_that_fails_closes_the_connection_when_the_earlier_ones_are_answered(
    late: UnconfirmedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    late.producer.send(one() + one(acks=0, topic="no") + one())
    late.broker.turns()
    assert not late.producer.closed
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 0)]
    late.broker.turns()
    assert late.producer.closed
    assert "a Produce request without a response failed" in caplog.text
    assert admitted(late) == 1, "what follows is not handled"
    assert nothing_is_held(late)


def test_a_frame_that_is_no_request_closes_the_connection_when_the_earlier_ones_are_answered(
    late: UnconfirmedBroker,
) -> None:
    late.producer.send(one() + b"\0\0\0\x04\0\0\xff\xff")
    late.broker.turns()
    assert not late.producer.closed
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 0)]
    late.broker.turns()
    assert late.producer.closed


def test_any_other_request_waits_for_the_produces_before_it(late: UnconfirmedBroker) -> None:
    late.producer.send(one() + framed(METADATA, messages.MetadataRequest(())) + one())
    late.broker.turns()
    assert (admitted(late), late.producer.has_response()) == (1, False)
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 0)]
    assert late.producer.response(METADATA).topics == ()
    late.broker.turns()
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 1)]


def test_a_produce_after_a_delayed_fetch_is_not_handled(late: UnconfirmedBroker) -> None:
    late.consumer.send(framed(FETCH, fetch(max_wait_ms=FOREVER)) + one(acks=0))
    late.broker.turns()
    assert admitted(late) == 0
    late.producer.send(one())
    late.broker.turns()
    late.storage.confirm_all()
    assert late.consumer.response(FETCH).responses[0].partitions[0].records
    late.broker.turns()
    assert admitted(late) == 2


def test_a_produce_whose_time_is_up_does_not_pass_the_one_before_it(late: UnconfirmedBroker) -> None:
    late.producer.send(one(timeout_ms=2000) + one(timeout_ms=1000) + one(timeout_ms=3000))
    late.broker.turns()
    late.broker.now += 1.0
    late.broker.turns()
    assert not late.producer.has_response()
    late.broker.now += 1.0
    assert [results(late.producer)[0][0] for _ in range(2)] == [Code.REQUEST_TIMED_OUT] * 2
    late.broker.turns()
    assert not late.producer.has_response()
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 2)]


def test_with_acks_1_it_is_answered_when_it_is_written(unwritten: UnconfirmedBroker) -> None:
    unwritten.producer.send(one(acks=1) + one(acks=-1) + one(acks=0))
    unwritten.broker.turns()
    assert (admitted(unwritten), unwritten.producer.has_response()) == (3, False)
    unwritten.storage.write_all()
    assert results(unwritten.producer) == [(Code.NONE, 0)]
    unwritten.broker.turns()
    assert not unwritten.producer.has_response()
    unwritten.storage.confirm_all()
    assert results(unwritten.producer) == [(Code.NONE, 1)]


def test_a_journal_that_fails_refuses_all_that_wait_in_their_order(late: UnconfirmedBroker) -> None:
    late.producer.send(one() * 5)
    late.broker.turns()
    late.storage.logs["t", 0].confirmed = 2
    late.storage.fail()
    assert [results(late.producer)[0][0] for _ in range(5)] == [Code.NONE] * 2 + [Code.KAFKA_STORAGE_ERROR] * 3
    assert nothing_is_held(late)


# Limits


def test_a_connection_with_1000_unanswered_produces_is_paused_until_500_are_left(roomy: UnconfirmedBroker) -> None:
    sent = roomy.producer.try_to_send(one() * 3000)
    roomy.broker.turns(3000)
    published, log = roomy.broker.clients.publish_buffer, roomy.storage.logs["t", 0]
    assert (admitted(roomy), published.paused) == (MAX_REQUESTS, 1)
    for confirmed, handled in ((499, MAX_REQUESTS), (500, MAX_REQUESTS + 500)):
        log.confirmed = confirmed
        roomy.broker.clients.changed(("t", 0))
        roomy.broker.turns(1000)
        assert (admitted(roomy), published.paused) == (handled, 1)
    while admitted(roomy) < 3000:
        roomy.storage.confirm_all()
        sent += roomy.producer.try_to_send((one() * 3000)[sent:])
        roomy.broker.turns(1000)
    roomy.storage.confirm_all()
    assert [results(roomy.producer) for _ in range(3000)] == [[(Code.NONE, offset)] for offset in range(3000)]
    assert nothing_is_held(roomy)


@pytest.mark.covers("PUB5")
def test_with_a_stuck_disk_all_producers_together_take_no_more_than_the_limit(small: UnconfirmedBroker) -> None:
    peers, clients, frame = small.connect(10), small.broker.clients, one(size=100_000)
    sent = [peer.try_to_send(frame * 3) for peer in peers]
    small.broker.turns(100)
    assert MIB < clients.publish_buffer.bytes.amount <= MIB + len(frame)
    assert clients.publish_buffer.paused == len(peers)
    assert clients.budget.held <= SETTINGS.max_buffered_bytes
    small.broker.now += LONG / 1000 - 1
    small.broker.turns()
    assert not any(peer.closed for peer in peers), "the broker is the one that waits"
    small.consumer.ask(METADATA, messages.MetadataRequest(()))
    assert small.consumer.response(METADATA).topics == (), "all others are served"
    while admitted(small) < 3 * len(peers):
        small.storage.confirm_all()
        for number, peer in enumerate(peers):
            sent[number] += peer.try_to_send((frame * 3)[sent[number] :])
        small.broker.turns()
        assert clients.publish_buffer.bytes.amount <= MIB + len(frame)
    small.storage.confirm_all()
    offsets = [results(peer)[0] for peer in peers for _ in range(3)]
    assert sorted(offsets) == [(Code.NONE, offset) for offset in range(3 * len(peers))]
    assert nothing_is_held(small)


def test_a_paused_producer_is_not_read_from(small: UnconfirmedBroker) -> None:
    small.producer.send(one(size=MIB // 2) * 2)
    small.broker.turns(20)
    assert (admitted(small), small.broker.clients.publish_buffer.paused) == (2, 1)
    frame = one(size=MIB)
    sent = small.producer.try_to_send(frame)
    small.broker.turns()
    assert small.broker.clients.budget.requests == 0, "else its memory would be taken by now"
    small.storage.confirm_all()
    small.broker.turns()
    assert small.broker.clients.budget.requests > MIB
    small.producer.send(frame[sent:])
    small.broker.turns()
    assert admitted(small) == 3


def test_who_was_paused_goes_on_in_the_next_turn_without_an_event(small: UnconfirmedBroker) -> None:
    small.producer.send(one(size=MIB // 2) * 2)
    small.broker.turns(20)
    small.storage.confirm_all()
    published = small.broker.clients.publish_buffer
    while published.bytes.amount:
        small.broker.turn()
    assert published.paused == 1
    assert small.broker.clients.next_deadline() == small.broker.now
    small.broker.turn()
    assert published.paused == 0


def test_a_producer_that_is_paused_within_a_request_is_not_blamed_for_it(small: UnconfirmedBroker) -> None:
    (other,) = small.connect(1)
    small.producer.send(one(acks=1))
    assert results(small.producer) == [(Code.NONE, 0)]
    frame = one()
    small.producer.send(frame[:20])
    small.broker.turns()
    other.send(one(size=MIB // 2) * 2)
    small.broker.turns()
    small.producer.send(frame[20:])
    small.broker.turns()
    small.broker.now += 10 * SETTINGS.stall_timeout
    small.broker.turns()
    assert (small.producer.closed, admitted(small)) == (False, 3)
    small.storage.confirm_all()
    small.broker.turns()
    assert admitted(small) == 4


@pytest.mark.covers("PUB6")
def test_a_connection_that_closes_while_paused_leaves_no_count(small: UnconfirmedBroker) -> None:
    (leaving,) = small.connect(1)
    leaving.send(one(size=MIB // 2) * 2)
    small.broker.turns()
    small.producer.send(one() * 2)
    small.broker.turns()
    published = small.broker.clients.publish_buffer
    assert (admitted(small), published.paused) == (3, 2), "the last one of them made the other producer known"
    leaving.socket.close()
    small.storage.confirm_all()
    assert results(small.producer) == [(Code.NONE, 2)]
    small.broker.turns()
    small.storage.confirm_all()
    assert results(small.producer) == [(Code.NONE, 3)]
    assert nothing_is_held(small)


@pytest.mark.covers("PUB7")
def test_without_a_limit_a_producer_is_not_paused_for_its_bytes(unlimited: UnconfirmedBroker) -> None:
    for _ in range(100):
        unlimited.producer.send(one(size=MIB))
        unlimited.broker.turns(3)
    assert (admitted(unlimited), unlimited.broker.clients.publish_buffer.pauses) == (100, 0)


def test_the_memory_of_unanswered_produces_is_bounded_without_a_limit_of_bytes(unlimited: UnconfirmedBroker) -> None:
    """Tiny ones on many connections: each takes more memory than its bytes."""
    peers, total = unlimited.connect(20), 20 * 30
    frame = tiny(20)
    for peer in peers:
        peer.send(frame * 30)
    unlimited.broker.turns(100)
    budget, published = unlimited.broker.clients.budget, unlimited.broker.clients.publish_buffer
    most = SETTINGS.max_buffered_bytes // 8 + waiting_size(20)
    assert SETTINGS.max_buffered_bytes // 8 < budget.unconfirmed.amount <= most
    assert published.paused == len(peers)
    while admitted(unlimited) < total:
        unlimited.storage.confirm_all()
        unlimited.broker.turns()
        assert budget.unconfirmed.amount <= most
    unlimited.storage.confirm_all()
    unlimited.broker.turns()
    assert nothing_is_held(unlimited)


def test_a_client_that_never_reads_its_answers_is_closed_and_others_are_served(late: UnconfirmedBroker) -> None:
    many = messages.ProduceTopic(
        "n" * 200, partition_data=tuple(messages.ProducePartition(index, None) for index in range(500))
    )
    frame = framed(PRODUCE, messages.ProduceRequest(topic_data=(many,)))
    sent = 0
    for _ in range(200):
        sent += late.producer.try_to_send(frame[sent % len(frame) :])
        late.broker.turns(3)
    budget = late.broker.clients.budget
    assert 0 < budget.held <= MIB
    late.consumer.send(one(acks=1))
    assert results(late.consumer) == [(Code.NONE, 0)]
    late.broker.now += SETTINGS.stall_timeout
    late.broker.turns()
    assert nothing_is_held(late)
    assert len(late.broker.clients) == 1


def test_a_client_that_never_reads_what_was_confirmed_holds_no_more_than_its_share(late: UnconfirmedBroker) -> None:
    frame = one() * 100
    for _ in range(300):
        if not late.producer.try_to_send(frame):
            break
        late.broker.turns(110)
        late.storage.confirm_all()
        late.broker.turns(5)
    assert late.broker.clients.budget.held <= SETTINGS.max_buffered_bytes // 8 + MIB
    late.broker.now += SETTINGS.stall_timeout
    late.broker.turns()
    assert nothing_is_held(late)
    assert len(late.broker.clients) == 1


# Room in the storage


def test_a_produce_waits_for_space_and_others_are_served_meanwhile(late: UnconfirmedBroker) -> None:
    late.storage.free_bytes = 500
    late.producer.send(one(size=1000))
    late.broker.turns()
    assert admitted(late) == 0
    assert late.broker.clients.publish_buffer.paused == 1
    late.consumer.send(one(size=100, acks=1))
    assert results(late.consumer) == [(Code.NONE, 0)]
    late.storage.free(800)
    late.broker.turns()
    assert admitted(late) == 1, "that is not enough"
    late.storage.free()
    late.broker.turns()
    assert admitted(late) == 2
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 1)]
    assert nothing_is_held(late)


def test_responses_are_sent_while_the_next_produce_waits_for_space(late: UnconfirmedBroker) -> None:
    late.producer.send(one())
    late.broker.turns()
    late.storage.free_bytes = 0
    late.producer.send(one())
    late.broker.turns()
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 0)]
    assert admitted(late) == 1


def test_after_throttle_s_without_space_the_storage_gets_the_request(late: UnconfirmedBroker) -> None:
    late.storage.free_bytes = 0
    late.producer.send(one())
    late.broker.turns()
    assert late.broker.clients.next_deadline() == late.broker.now + SETTINGS.throttle_s
    late.broker.now += SETTINGS.throttle_s - 0.1
    late.broker.turns()
    assert admitted(late) == 0
    late.broker.now += 0.1
    late.broker.turns()
    assert admitted(late) == 1, "this engine refuses nothing"
    late.producer.send(one())
    late.broker.turns()
    assert admitted(late) == 1, "the next one has its own time"
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 0)]


def test_a_client_that_leaves_while_it_waits_for_space_leaves_nothing(
    late: UnconfirmedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    late.storage.free_bytes = 0
    late.producer.send(one() * 3)
    late.broker.turns()
    late.producer.socket.close()
    late.storage.free()
    with caplog.at_level(logging.ERROR):
        late.broker.turns()
    assert nothing_is_held(late)
    assert len(late.broker.clients) == 1
    assert not caplog.records
