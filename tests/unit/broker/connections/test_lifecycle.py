"""Connections one turn at a time: a clock that is set, sockets in pairs, no threads."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.connections.lifecycle import Clients
from spark_producer.broker.context import Endpoint
from spark_producer.broker.storage.engines import OpenStorage, open_storage
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    FETCH,
    LIST_GROUPS,
    METADATA,
    PRODUCE,
    Api,
    FrameReader,
    RequestBody,
    ResponseBody,
    decode_response,
    decoded_records,
    encode_request,
    messages,
)
from tests.fakes.disk import Disk
from tests.fakes.memory_storage import MemoryStorage
from tests.unit.broker.batches import make_batch
from tests.unit.broker.handler_calls import context_of

MIB = 1024 * 1024
SETTINGS = BrokerSettings(
    storage_engine="segments",  # whose every call of the disk is made by the broker's thread, where tests refuse it
    max_buffered_bytes=8 * MIB,
    idle_timeout=600.0,
    stall_timeout=30.0,
    sync_on_close=False,
    topic=TopicSettings(max_message_bytes=4 * MIB),
)
FOREVER = 0x7FFFFFFF


class Peer:
    """The client's end of a connection, which the test controls. Nothing blocks."""

    def __init__(self, broker: Broker) -> None:
        near, self.socket = socket.socketpair()
        near.setblocking(False)
        self.socket.setblocking(False)
        self._broker = broker
        self._reader = FrameReader()
        self._unread: list[memoryview] = []
        broker.clients.add(near, f"peer {near.fileno()}")

    def send(self, data: bytes) -> None:
        """Send all of it, while the broker takes its turns."""
        left = memoryview(data)
        for _ in range(10_000):
            try:
                left = left[self.socket.send(left) :]
            except BlockingIOError:
                self._broker.turn()
            if not left:
                return
        raise AssertionError(f"the broker does not take the last {len(left)} bytes")

    def try_to_send(self, data: bytes) -> int:
        """Send what goes; how many bytes that was."""
        return _until_blocked(lambda rest: self.socket.send(data[rest:]), len(data))

    def ask(self, api: Api[RequestBody, Any], body: RequestBody) -> None:
        self.send(framed(api, body))

    def response(self, api: Api[Any, ResponseBody]) -> ResponseBody:
        """Return the next response, which must come within some turns."""
        for _ in range(1000):
            if self._unread:
                return decode_response(api, api.max_version, self._unread.pop(0))[1]
            self._broker.turn()
            self._receive()
        raise AssertionError("no response")

    def has_response(self) -> bool:
        self._receive()
        return bool(self._unread)

    @property
    def closed(self) -> bool:
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def _receive(self) -> None:
        try:
            count = self.socket.recv_into(self._reader.space())
        except BlockingIOError:
            return
        assert count, "the broker closed"
        self._unread += self._reader.received(count)


def _until_blocked(send: Any, size: int) -> int:
    sent = 0
    try:
        while sent < size:
            sent += send(sent)
    except BlockingIOError:
        return sent
    return sent


class Broker:
    """The clients of a broker, with a clock that is set and turns that are taken by hand."""

    def __init__(
        self, directory: Path, open_storage: OpenStorage = open_storage, settings: BrokerSettings = SETTINGS
    ) -> None:
        self.now = 1000.0
        self.store = TopicStore(directory, settings, open_storage)
        self.store.create("t", 2)
        self._selector = selectors.DefaultSelector()
        self.clients = Clients(context_of(self.store, settings, Endpoint("b", 1)), self._selector, lambda: self.now)

    def turn(self) -> None:
        for key, events in self._selector.select(0):
            self.clients.serve(key.data, events)
        self.clients.work()

    def turns(self, count: int = 50) -> None:
        for _ in range(count):
            self.turn()

    def close(self) -> None:
        self.clients.close()
        self._selector.close()
        self.store.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def peers(broker: Broker) -> Iterator[list[Peer]]:
    made = [Peer(broker) for _ in range(20)]
    yield made
    for peer in made:
        peer.socket.close()


def framed(api: Api[RequestBody, Any], body: RequestBody) -> bytes:
    return b"".join(encode_request(api, api.max_version, 1, "peer", body))


def produce(size: int, index: int = 0) -> messages.ProduceRequest:
    data = (messages.ProducePartition(index, make_batch(1, size=size)),)
    return messages.ProduceRequest(topic_data=(messages.ProduceTopic("t", partition_data=data),))


def fetch(offset: int = 0, *, max_wait_ms: int = 0, partitions: int = 1) -> messages.FetchRequest:
    wanted = tuple(
        messages.FetchPartition(0, fetch_offset=offset, partition_max_bytes=FOREVER) for _ in range(partitions)
    )
    return messages.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=(messages.FetchTopic("t", partitions=wanted),)
    )


def produced(peer: Peer, request: messages.ProduceRequest) -> int:
    peer.ask(PRODUCE, request)
    result = peer.response(PRODUCE).responses[0].partition_responses[0]
    assert result.error_code == Code.NONE
    return int(result.base_offset)


# Memory


def test_clients_that_never_read_hold_no_more_than_the_budget(broker: Broker, peers: list[Peer]) -> None:
    for _ in range(10):
        produced(peers[0], produce(MIB))
    for peer in peers[1:]:
        for _ in range(10):
            peer.ask(FETCH, fetch())
    broker.turns(300)
    assert 0 < broker.clients.budget.held <= SETTINGS.max_buffered_bytes
    assert broker.clients.budget.responses <= SETTINGS.max_buffered_bytes // 8 + MIB
    assert produced(peers[0], produce(100)) == 10, "others are served"


def test_clients_that_never_read_are_closed_and_give_their_memory_back(broker: Broker, peers: list[Peer]) -> None:
    for _ in range(4):
        produced(peers[0], produce(2 * MIB))
    for peer in peers[1:4]:
        peer.ask(FETCH, fetch())
    broker.turns()
    assert broker.clients.budget.responses > 0
    for _ in range(4):  # blocked responses had no time yet
        broker.now += SETTINGS.stall_timeout
        broker.turns()
    assert broker.clients.budget.held == 0
    assert len(broker.clients) == len(peers) - 3


def test_large_requests_take_turns_within_the_budget(broker: Broker, peers: list[Peer]) -> None:
    frame = framed(PRODUCE, produce(3 * MIB))
    sent = [peer.try_to_send(frame) for peer in peers]
    for number in list(range(20)) * 400:
        broker.turn()
        assert broker.clients.budget.held <= SETTINGS.max_buffered_bytes
        sent[number] += peers[number].try_to_send(frame[sent[number] :])
        if sum(sent) == 20 * len(frame):
            break
    assert sorted(peer.response(PRODUCE).responses[0].partition_responses[0].base_offset for peer in peers) == list(
        range(20)
    )
    assert broker.clients.budget.held == 0


def test_incomplete_requests_block_others_for_a_short_time_only(broker: Broker, peers: list[Peer]) -> None:
    for peer in peers[1:]:
        peer.try_to_send(framed(PRODUCE, produce(3 * MIB))[:100_000])
    broker.turns()
    held = broker.clients.budget.held
    assert 3 * MIB <= held <= SETTINGS.max_buffered_bytes
    peers[0].try_to_send(framed(PRODUCE, produce(3 * MIB)))
    for _ in range(20):
        broker.now += SETTINGS.stall_timeout
        broker.turns(3)
    assert sum(peer.closed for peer in peers[1:]) == 19
    peers.append(Peer(broker))
    assert produced(peers[-1], produce(100)) >= 0
    assert broker.clients.budget.held == 0


def test_a_request_of_more_than_half_the_budget_is_refused(
    broker: Broker, peers: list[Peer], caplog: pytest.LogCaptureFixture
) -> None:
    peers[0].try_to_send(struct.pack(">i", SETTINGS.max_buffered_bytes // 2 + 1) + bytes(100))
    broker.turns(2)
    assert peers[0].closed
    assert (
        f"{SETTINGS.max_buffered_bytes // 2 + 1} bytes, allowed are 0 to {SETTINGS.max_buffered_bytes // 2}"
        in caplog.text
    )


def test_an_empty_topic_too_many_is_refused_before_it_is_read(
    broker: Broker, peers: list[Peer], caplog: pytest.LogCaptureFixture
) -> None:
    empty = messages.ProduceRequest(topic_data=(messages.ProduceTopic("", partition_data=()),) * 900_000)
    peers[0].send(framed(PRODUCE, empty))
    broker.turns(10)
    assert peers[0].closed
    assert "more than 50000 elements" in caplog.text


# Time


def test_who_is_silent_is_closed_and_who_waits_for_data_is_not(broker: Broker, peers: list[Peer]) -> None:
    idle, waiting, half = peers[:3]
    waiting.ask(FETCH, fetch(max_wait_ms=FOREVER))
    half.send(framed(METADATA, messages.MetadataRequest(()))[:10])
    broker.turns()
    broker.now += SETTINGS.stall_timeout
    broker.turns()
    assert [half.closed, waiting.closed, idle.closed] == [True, False, False]
    broker.now += SETTINGS.idle_timeout
    broker.turns()
    assert idle.closed
    assert waiting.response(FETCH).responses[0].partitions[0].records == b"", "it waits no longer"
    assert len(broker.clients) == 1


def test_a_busy_client_is_never_idle(broker: Broker, peers: list[Peer]) -> None:
    for _ in range(10):
        peers[0].ask(LIST_GROUPS, messages.ListGroupsRequest())
        assert peers[0].response(LIST_GROUPS).groups == ()
        broker.now += SETTINGS.idle_timeout - 1
        broker.turns(2)
    assert not peers[0].closed
    assert len(broker.clients) == 1


def test_one_request_of_each_client_in_a_turn(broker: Broker, peers: list[Peer]) -> None:
    greedy, modest = peers[:2]
    greedy.send(framed(LIST_GROUPS, messages.ListGroupsRequest()) * 500)
    broker.turns(2)
    modest.ask(LIST_GROUPS, messages.ListGroupsRequest())
    broker.turn()
    assert modest.has_response()
    assert broker.clients.next_deadline() == broker.now, "the greedy one goes on"


# Fetches that wait


def test_a_partition_named_twice_is_waited_for_once(broker: Broker, peers: list[Peer]) -> None:
    consumer, producer = peers[:2]
    consumer.ask(FETCH, fetch(max_wait_ms=FOREVER, partitions=3))
    broker.turns()
    assert produced(producer, produce(100)) == 0
    assert len(consumer.response(FETCH).responses[0].partitions) == 1
    consumer.ask(FETCH, fetch(1, max_wait_ms=50, partitions=2))
    broker.turns()
    broker.now += 1
    assert consumer.response(FETCH).responses[0].partitions[0].records == b""


def test_delayed_fetches_release_their_memory(broker: Broker) -> None:
    for _ in range(300):
        leaving = Peer(broker)
        leaving.ask(FETCH, fetch(max_wait_ms=FOREVER))
        broker.turn()
        assert broker.clients.budget.waits > 0
        leaving.socket.close()
        broker.turns(2)
    assert len(broker.clients) == 0
    assert broker.clients.budget.held == 0
    broker.now += SETTINGS.idle_timeout
    broker.turn()
    assert broker.clients.next_deadline() == float("inf")


def test_a_fetch_that_finds_no_memory_to_wait_is_answered(broker: Broker, peers: list[Peer]) -> None:
    many = SETTINGS.max_buffered_bytes // 8 // 1024
    peers[0].ask(FETCH, fetch(max_wait_ms=FOREVER, partitions=many))
    assert peers[0].response(FETCH).responses[0].partitions[0].records == b""


def test_a_read_error_is_answered_to_the_consumer_who_met_it(
    broker: Broker, peers: list[Peer], disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    waiting, producer, other = peers[:3]
    waiting.ask(FETCH, fetch(max_wait_ms=FOREVER))
    broker.turns()
    disk.refuse("pread", errno.EIO)
    assert produced(producer, produce(100)) == 0
    assert waiting.response(FETCH).responses[0].partitions[0].error_code == Code.KAFKA_STORAGE_ERROR
    other.ask(FETCH, fetch(max_wait_ms=FOREVER))
    assert other.response(FETCH).responses[0].partitions[0].error_code == Code.KAFKA_STORAGE_ERROR
    assert produced(producer, produce(100)) == 1
    assert "Input/output error" in caplog.text


def test_a_bug_in_a_delayed_fetch_costs_its_connection_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = []

    def fail_once(_: int) -> None:
        if failures:
            raise failures.pop()

    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(
            contextlib.closing(Broker(tmp_path, partial(MemoryStorage, on_available=fail_once)))
        )
        first, second, producer = (Peer(broker) for _ in range(3))
        for peer in (first, second, producer):
            stack.callback(peer.socket.close)
        for consumer in (first, second):
            consumer.ask(FETCH, fetch(max_wait_ms=FOREVER))
            broker.turns(3)
        failures.append(ZeroDivisionError("once"))
        assert produced(producer, produce(100)) == 0
        assert len(decoded_records(second.response(FETCH).responses[0].partitions[0].records) or b"") == 100
        assert first.closed
    assert caplog.text.count("ZeroDivisionError: once") == 1
