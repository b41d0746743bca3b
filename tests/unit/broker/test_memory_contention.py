"""Slow clients that hold memory: how long others wait for it, and when the slow ones lose it."""

from __future__ import annotations

import pytest

from spark_producer.protocol import FETCH, PRODUCE, decoded_records
from tests.unit.broker.connections.test_lifecycle import (
    FOREVER,
    MIB,
    SETTINGS,
    Broker,
    Peer,
    broker,
    fetch,
    framed,
    peers,
    produce,
    produced,
)

__all__ = ["broker", "peers"]


def trickle(broker: Broker, peer: Peer, frame: bytes, seconds: float) -> int:
    """Send enough of `frame` in each `stall_timeout` to pass for slow, until time is over or it is closed; how much it was."""
    sent, end = 0, broker.now + seconds
    while broker.now < end and not peer.closed:
        piece = frame[sent : sent + MIB + 1]
        peer.send(piece)
        sent += len(piece)
        broker.turns(3)
        broker.now += SETTINGS.stall_timeout - 1
        broker.turns(3)
    return sent


def test_one_large_answer_that_is_not_read_keeps_no_producer_waiting(broker: Broker, peers: list[Peer]) -> None:
    reader, producer, consumer = peers[:3]
    produced(producer, produce(3 * MIB))
    reader.ask(FETCH, fetch())
    broker.turns()
    assert broker.clients.budget.responses > SETTINGS.max_buffered_bytes // 4
    assert produced(producer, produce(100)) == 1
    consumer.ask(FETCH, fetch(offset=1))
    broker.turns()
    assert not consumer.has_response(), "consumers wait for it"
    broker.now += SETTINGS.stall_timeout
    broker.turns()
    assert len(decoded_records(consumer.response(FETCH).responses[0].partitions[0].records) or b"") == 100


def test_large_requests_that_do_not_come_keep_no_smaller_one_waiting(broker: Broker, peers: list[Peer]) -> None:
    for peer in peers[1:]:
        peer.try_to_send(framed(PRODUCE, produce(3 * MIB))[:100_000])
    broker.turns()
    assert produced(peers[0], produce(100_000)) == 0


def test_slow_clients_are_kept_while_no_other_waits(broker: Broker, peers: list[Peer]) -> None:
    frame = framed(PRODUCE, produce(3 * MIB))
    assert trickle(broker, peers[0], frame, 3 * SETTINGS.stall_timeout) == len(frame)
    assert peers[0].response(PRODUCE)


def test_who_is_slow_is_closed_once_another_waits_for_the_memory(broker: Broker, peers: list[Peer]) -> None:
    slow, other = peers[:2]
    frame = framed(PRODUCE, produce(3 * MIB))
    slow.send(frame[:100_000])
    broker.turns()
    other.try_to_send(frame)
    assert trickle(broker, slow, frame[100_000:], 3 * SETTINGS.stall_timeout) < len(frame) - 100_000
    assert slow.closed
    assert not other.closed


@pytest.mark.parametrize("together", [True, False])
def test_a_delayed_fetch_holds_no_memory_for_a_large_request_after_it(
    broker: Broker, peers: list[Peer], together: bool
) -> None:
    waiting, other = peers[:2]
    large = framed(PRODUCE, produce(3 * MIB))
    first, second = framed(FETCH, fetch(max_wait_ms=FOREVER)), large[:100]
    for piece in [first + second] if together else [first, second]:
        waiting.send(piece)
        broker.turns()
    assert broker.clients.budget.requests == 0
    assert produced(other, produce(3 * MIB)) == 0
    assert waiting.response(FETCH).responses[0].partitions[0].records
    waiting.send(large[100:])
    assert waiting.response(PRODUCE).responses[0].partition_responses[0].base_offset == 1
    assert broker.clients.budget.held == 0


def test_large_requests_after_small_ones_have_their_turn(broker: Broker, peers: list[Peer]) -> None:
    large = framed(PRODUCE, produce(3 * MIB))
    holder, queued, last = peers[:3]
    holder.send(large[:100_000])
    broker.turns()
    queued.send(framed(PRODUCE, produce(100)) + large[:100])
    broker.turns()
    assert broker.clients.budget.is_contended
    sent = last.try_to_send(large)
    broker.turns()
    holder.send(large[100_000:])
    assert holder.response(PRODUCE)
    assert queued.response(PRODUCE)
    queued.send(large[100:])
    assert queued.response(PRODUCE), "it was queued before the last one"
    last.send(large[sent:])
    assert last.response(PRODUCE)
    assert not broker.clients.budget.is_contended
    assert broker.clients.budget.held == 0
