"""The fetch thread: overlap within a bound, its end with the read, connections that stay, forks."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.broker.security.settings import BrokerSecurity
from spark_producer.broker.security.users import Users
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.config.source_parsing import parse_source_options
from spark_producer.consumer.connections import MAX_IDLE_CONNECTIONS, MAX_IDLE_S, ConnectionCache, Connections
from spark_producer.consumer.decoding import FetchedBatches
from spark_producer.consumer.fetch_thread import FetchThread
from spark_producer.consumer.fetcher import Fetcher
from spark_producer.consumer.known_cluster import MAX_UNUSED_S
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import CONNECTIONS, read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.errors import AuthenticationFailed, BrokerError, IllegalState, KafkaTimeout, PyProducerError
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers
from spark_producer.network.client import Client
from spark_producer.producer import Producer
from spark_producer.protocol import decoded_records
from tests.fakes.fake_clock import FakeClock
from tests.support.waiting import wait_until

ROWS, VALUE_BYTES = 4000, 1000
SECONDS = 20.0
WHOLE = [OffsetRange(TopicPartition("t", 0), 0, ROWS)]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker with 4 MB of records."""
    with LocalBroker() as broker:
        broker.create_topic("t", 1)
        with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": "16384"}) as producer:
            for _ in range(ROWS):
                producer.send("t", b"v" * VALUE_BYTES)
        yield broker


@pytest.fixture
def settings(broker: LocalBroker) -> Iterator[FetchSettings]:
    """Options of a reader with a small bound."""
    CONNECTIONS.clear()
    servers = tuple(parse_bootstrap_servers(broker.bootstrap_servers))
    yield FetchSettings(ConnectionSettings(servers), max_bytes=200_000, partition_bytes=50_000)
    CONNECTIONS.clear()


def in_fork(act: Callable[[], str]) -> str:
    """Return the result of `act` in a forked child, which has some seconds for it."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
        child = os.fork()
    if not child:
        signal.alarm(int(SECONDS))
        os.write(writer, act().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def no_fetch_thread() -> bool:
    return all(thread.name != "pyproducer-fetch" for thread in threading.enumerate())


def test_it_ends_with_the_read_and_the_next_read_has_its_connections(settings: FetchSettings) -> None:
    for _ in range(3):
        assert sum(batch.num_rows for _, batch in read_ranges(settings, WHOLE)) == ROWS
        assert no_fetch_thread()
        assert len(CONNECTIONS) == 1


def test_small_ranges_take_one_request_one_connection_and_no_thread(
    settings: FetchSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, Any]] = []
    made: list[Client] = []
    send, make = Client.send, CONNECTIONS._make

    def counted(client: Client, node: int, api: Any, body: Any, **others: Any) -> None:
        sent.append((api.name, body))
        send(client, node, api, body, **others)

    def remembered(connection: ConnectionSettings, **more: Any) -> Client:
        made.append(make(connection, **more))
        return made[-1]

    monkeypatch.setattr(Client, "send", counted)
    monkeypatch.setattr(CONNECTIONS, "_make", remembered)
    monkeypatch.setattr("threading.Thread.start", lambda _: pytest.fail("a thread was started"))
    for first in range(0, 200, 10):
        ranges = [OffsetRange(TopicPartition("t", 0), first, first + 10)]
        assert sum(batch.num_rows for _, batch in read_ranges(settings, ranges)) == 10
    assert [name for name, _ in sent] == ["Metadata"] + ["Fetch"] * 20
    assert len(made) == 1


def test_the_next_read_does_not_fetch_records_after_its_range(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a stream that catches up in small steps."""
    CONNECTIONS.clear()
    servers = tuple(parse_bootstrap_servers(broker.bootstrap_servers))
    received: list[int] = []
    accept = FetchedBatches.from_response.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, /, wanted: OffsetRange, row: Any, **others: Any) -> FetchedBatches:
        received.append(len(decoded_records(row.records) or b""))
        found: FetchedBatches = accept(cls, wanted, row, **others)
        return found

    monkeypatch.setattr(FetchedBatches, "from_response", classmethod(counted))
    for first in range(0, 40, 10):
        list(
            read_ranges(
                FetchSettings(ConnectionSettings(servers)), [OffsetRange(WHOLE[0].topic_partition, first, first + 10)]
            )
        )
    CONNECTIONS.clear()
    assert received[0] > 3_000_000
    assert max(received[1:]) < 150_000


def test_an_interrupt_before_the_thread_starts_closes_the_connections(
    settings: FetchSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: FetchThread) -> None:
        raise KeyboardInterrupt

    connections = CONNECTIONS.take(settings.connection)
    monkeypatch.setattr(FetchThread, "_iterate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        FetchThread(settings, WHOLE, connections).start()
    assert is_closed(connections)


def test_connections_of_a_failed_read_are_not_used_again(
    settings: FetchSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread may have ended between two steps: leaders are known, but their brokers are not among the nodes of the client."""

    def refuse(*_: object) -> None:
        raise BrokerError("one of the topics is refused", code=Code.TOPIC_AUTHORIZATION_FAILED)

    with monkeypatch.context() as patched:
        patched.setattr(Fetcher, "_on_leader", refuse)
        with pytest.raises(BrokerError, match="one of the topics"):
            list(read_ranges(settings, WHOLE))
    rows = read_ranges(dataclasses.replace(settings, timeout=2.0), WHOLE)
    assert sum(batch.num_rows for _, batch in rows) == ROWS


def test_a_login_that_is_refused_is_tried_again_by_the_next_read() -> None:
    """The client of the first one has ended for good."""
    users = Users({"ada": "right"})
    with LocalBroker(security=BrokerSecurity("SASL_PLAINTEXT", users=users, mechanisms=("PLAIN",))) as guarded:
        options = {
            "kafka.bootstrap.servers": guarded.bootstrap_servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "ada",
            "kafka.sasl.password": "wrong",
            "subscribe": "t",
        }
        connection = ConnectionSettings.from_config(parse_source_options(options)[0])
        for _ in range(2):
            with pytest.raises(AuthenticationFailed):
                list(read_ranges(FetchSettings(connection, timeout=2.0), WHOLE))


def test_a_read_that_stops_early_leaves_no_garbage(settings: FetchSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched records are freed at once, even without a thread."""
    made: list[weakref.ref[FetchThread]] = []
    start = FetchThread.start

    def remembered(thread: FetchThread) -> None:
        made.append(weakref.ref(thread))
        start(thread)

    monkeypatch.setattr(FetchThread, "start", remembered)
    gc.disable()
    try:
        next(read_ranges(settings, [OffsetRange(TopicPartition("t", 0), 0, 10)]))
        assert [each() for each in made] == [None]
    finally:
        gc.enable()


def end(thread: FetchThread) -> None:
    assert thread.close()
    thread._connections.close()


def leave_by_close(settings: FetchSettings) -> None:
    rows = read_ranges(settings, WHOLE)
    next(rows)
    rows.close()  # type: ignore[attr-defined]


def leave_by_exception(settings: FetchSettings) -> None:
    for _ in read_ranges(settings, WHOLE):
        raise RuntimeError


def leave_by_drop(settings: FetchSettings) -> None:
    next(read_ranges(settings, WHOLE))


def leave_in_a_circle(settings: FetchSettings) -> None:
    rows = read_ranges(settings, WHOLE)
    circle: list[object] = [rows]
    circle.append(circle)
    next(rows)


@pytest.mark.parametrize("leave", [leave_by_close, leave_by_exception, leave_by_drop, leave_in_a_circle])
def test_a_reader_that_stops_early_ends_it(settings: FetchSettings, leave: Callable[[FetchSettings], None]) -> None:
    with contextlib.suppress(RuntimeError):
        leave(settings)
    gc.collect()
    assert no_fetch_thread()
    assert sum(batch.num_rows for _, batch in read_ranges(settings, WHOLE)) == ROWS


def test_a_read_forgets_topics_that_were_not_read_for_long(settings: FetchSettings) -> None:
    connections = ConnectionCache().take(settings.connection)
    connections.cluster.use(["earlier"], 0.0)
    connections.cluster.topic_ids["earlier"] = b"i" * 16
    FetchThread(settings, WHOLE, connections, clock=lambda: MAX_UNUSED_S + 1).close()
    connections.close()
    assert not connections.cluster.topic_ids


@pytest.mark.covers("RD14")
def test_a_slow_reader_stops_fetching_within_the_bound(settings: FetchSettings) -> None:
    thread = FetchThread(settings, WHOLE, CONNECTIONS.take(settings.connection))
    thread.start()
    wait_until(lambda: thread._starved, "the bound to stop fetching")
    found, held = [], 0
    while (fetched := thread.take()) is not None:
        found.append(len(fetched.data))
        held = max(held, thread._fetched - thread._released)
        thread.release(fetched)
    assert sum(found) > 10 * settings.max_bytes
    assert 50_000 < held <= settings.max_bytes
    end(thread)


def test_it_overlaps_with_decoding(settings: FetchSettings) -> None:
    thread = FetchThread(settings, WHOLE, CONNECTIONS.take(settings.connection))
    thread.start()
    first = thread.take()
    wait_until(lambda: thread._queue.qsize() > 0, "another response while the first is not released")
    assert first is not None
    end(thread)


def test_an_error_comes_after_what_was_fetched(settings: FetchSettings) -> None:
    beyond = [OffsetRange(TopicPartition("t", 0), ROWS - 10, ROWS + 10)]
    rows, count = read_ranges(settings, beyond), 0
    with pytest.raises(PyProducerError, match=f"the log ends at offset {ROWS}"):  # noqa: PT012
        for _, batch in rows:
            count += batch.num_rows
    assert count == 10
    assert no_fetch_thread()


def test_a_bug_ends_the_read_with_an_error(settings: FetchSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_producer.consumer.fetcher.fetch_request", None)
    with pytest.raises(PyProducerError, match=r"TypeError.*this is a bug of pyproducer"):
        list(read_ranges(settings, WHOLE))
    assert no_fetch_thread()


def test_a_forked_process_does_not_wait_for_it(settings: FetchSettings) -> None:
    rows = read_ranges(settings, WHOLE)
    next(rows)

    def go_on() -> str:
        try:
            for _ in rows:
                continue
        except IllegalState as error:
            return str(error)
        return "it went on"

    assert "begun in another process" in in_fork(go_on)
    assert sum(batch.num_rows for _, batch in rows) > ROWS // 2, "the parent goes on"


def test_a_forked_process_has_connections_of_its_own(settings: FetchSettings) -> None:
    list(read_ranges(settings, WHOLE))
    assert len(CONNECTIONS) == 1
    assert in_fork(lambda: str(CONNECTIONS.take(settings.connection).process == os.getpid())) == "True"
    assert in_fork(lambda: str(sum(batch.num_rows for _, batch in read_ranges(settings, WHOLE)))) == str(ROWS)
    began = time.monotonic()
    assert sum(batch.num_rows for _, batch in read_ranges(settings, WHOLE)) == ROWS
    assert time.monotonic() - began < SECONDS


def test_no_broker_is_an_error_in_time() -> None:
    connection = ConnectionSettings((("127.0.0.1", 1),), reconnect_backoff=0.01)
    with pytest.raises(KafkaTimeout, match=r"127\.0\.0\.1:1"):
        list(read_ranges(FetchSettings(connection, timeout=0.5), WHOLE))
    assert no_fetch_thread()


def test_two_ranges_of_one_partition_are_refused(settings: FetchSettings) -> None:
    with pytest.raises(ValueError, match="two ranges are of one topic-partition"):
        list(read_ranges(settings, [*WHOLE, *WHOLE]))


# The cache


class Cache(ConnectionCache):
    """A cache whose connections the test's end closes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(Client, clock)
        self.made: list[Connections] = []

    def take(self, settings: ConnectionSettings) -> Connections:
        self.made.append(super().take(settings))
        return self.made[-1]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(clock: FakeClock) -> Iterator[Cache]:
    cache = Cache(clock)
    yield cache
    for each in cache.made:
        each.close()


def connections_to(port: int) -> ConnectionSettings:
    return ConnectionSettings((("localhost", port),))


def test_connections_are_found_again_by_their_settings(cache: Cache) -> None:
    first = cache.take(connections_to(1))
    cache.give_back(first)
    assert cache.take(connections_to(2)) is not first
    assert cache.take(connections_to(1)) is first
    assert cache.take(connections_to(1)) is not first, "another read has them"


def test_idle_connections_are_few_and_not_old(cache: Cache, clock: FakeClock) -> None:
    made = [cache.take(connections_to(port)) for port in range(1, MAX_IDLE_CONNECTIONS + 2)]
    for each in made:
        cache.give_back(each)
    assert len(cache) == MAX_IDLE_CONNECTIONS
    assert is_closed(made[0])
    assert not is_closed(made[1])
    clock.advance(MAX_IDLE_S)
    assert cache.take(made[1].settings) is not made[1]
    assert len(cache) == 0
    assert all(map(is_closed, made))


def is_closed(connections: Connections) -> bool:
    return connections.client._closed


def test_connections_with_a_request_in_flight_are_closed(
    cache: Cache, settings: FetchSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = cache.take(settings.connection)
    monkeypatch.setattr(taken.client, "load", lambda: (1, 1))
    cache.give_back(taken)
    assert is_closed(taken)
    assert len(cache) == 0
