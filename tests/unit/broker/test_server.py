"""The event loop over real sockets: order, waiting, back-pressure, and clients that misbehave."""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker, TopicSettings
from spark_producer.broker.connections.lifecycle import Clients
from spark_producer.broker.memory.plan import plan_memory
from spark_producer.broker.requests import handlers
from spark_producer.broker.settings import STORAGE_ENGINES
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    API_VERSIONS,
    DELETE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    decoded_records,
    messages,
)
from tests.fakes.raw_client import DEADLINE, RawClient
from tests.unit.broker.batches import make_batch

MIB = 1024 * 1024


@pytest.fixture(params=STORAGE_ENGINES)
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    settings = BrokerSettings(
        storage_engine=request.param,
        auto_create_topics=False,
        max_request_bytes=20 * MIB,
        topic=TopicSettings(max_message_bytes=20 * MIB),
        memory=plan_memory(storage=256 * MIB),  # a half of the tiered engine's write cache must hold a batch
    )
    with LocalBroker(settings=settings) as running:
        running.create_topic("t", 2)
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        yield connected


def produce_request(batch: memoryview, index: int = 0, acks: int = -1) -> messages.ProduceRequest:
    partition = messages.ProducePartition(index, batch)
    topic = messages.ProduceTopic("t", partition_data=(partition,))
    return messages.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=(topic,))


def fetch_request(
    offset: int, max_wait_ms: int, min_bytes: int = 1, max_bytes: int = 20 * MIB
) -> messages.FetchRequest:
    wanted = messages.FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return messages.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(messages.FetchTopic("t", partitions=(wanted,)),),
    )


def produced(client: RawClient, batch: memoryview) -> int:
    result = client.ask(PRODUCE, produce_request(batch)).responses[0].partition_responses[0]
    assert result.error_code == 0
    return int(result.base_offset)


def records_of(response: messages.FetchResponse) -> bytes:
    return bytes(decoded_records(response.responses[0].partitions[0].records) or b"")


def answers_others(broker: LocalBroker) -> bool:
    with RawClient(broker.port) as other:
        return len(other.ask(METADATA, messages.MetadataRequest(None)).topics) == 1


def test_requests_that_come_at_once_are_answered_in_order(client: RawClient) -> None:
    request = messages.MetadataRequest(None)
    client.socket.sendall(b"".join(client.frame(METADATA, request) for _ in range(200)))
    assert [client.receive(METADATA)[0] for _ in range(200)] == list(range(1, 201))


def test_a_request_may_come_byte_by_byte(client: RawClient) -> None:
    for byte in client.frame(PRODUCE, produce_request(make_batch(3))):
        client.socket.sendall(bytes([byte]))
    assert client.receive(PRODUCE)[1].responses[0].partition_responses[0].base_offset == 0


def test_frames_of_all_sizes_arrive_whole(client: RawClient) -> None:
    rng = random.Random(3)
    sizes = [
        rng.choice([70, 1000, 65_000, 65_535, 65_536, 70_000, MIB, 5 * MIB]) + rng.randrange(20) for _ in range(40)
    ]
    frames = [client.frame(PRODUCE, produce_request(make_batch(1, size=size))) for size in sizes]
    sender = threading.Thread(target=client.socket.sendall, args=(b"".join(frames),))
    sender.start()
    offsets = [client.receive(PRODUCE)[1].responses[0].partition_responses[0].base_offset for _ in sizes]
    sender.join(DEADLINE)
    assert offsets == list(range(40))
    for offset, size in enumerate(sizes):
        records = records_of(client.ask(FETCH, fetch_request(offset, 0, max_bytes=1)))
        assert records[16:] == bytes(make_batch(1, size=size))[16:]


def test_a_large_answer_is_sent_to_a_slow_reader_while_others_are_served(
    broker: LocalBroker, client: RawClient
) -> None:
    batch = make_batch(1, size=15 * MIB)
    produced(client, batch)
    for _ in range(3):
        client.send(FETCH, fetch_request(0, 0))
    assert answers_others(broker), "the client has not read a byte yet"
    for _ in range(3):
        assert records_of(client.receive(FETCH)[1])[16:] == bytes(batch)[16:]


def test_many_connections_at_once(broker: LocalBroker) -> None:
    def work(number: int) -> list[int]:
        with RawClient(broker.port) as connected:
            return [produced(connected, make_batch(1, size=100 + number)) for _ in range(20)]

    with ThreadPoolExecutor(20) as pool:
        offsets = [offset for own in pool.map(work, range(20)) for offset in own]
    assert sorted(offsets) == list(range(400))


# Waiting


def test_a_waiting_fetch_is_answered_by_the_next_append(broker: LocalBroker, client: RawClient) -> None:
    client.send(FETCH, fetch_request(0, max_wait_ms=3_600_000))
    with RawClient(broker.port) as producer:
        produced(producer, make_batch(3))
    assert len(records_of(client.receive(FETCH)[1])) == 100


def test_a_waiting_fetch_waits_for_min_bytes(broker: LocalBroker, client: RawClient) -> None:
    client.send(FETCH, fetch_request(0, max_wait_ms=3_600_000, min_bytes=250))
    with RawClient(broker.port) as producer:
        for _ in range(3):
            produced(producer, make_batch(1, size=100))
    assert len(records_of(client.receive(FETCH)[1])) == 300


def test_a_waiting_fetch_is_answered_when_its_time_is_up(client: RawClient) -> None:
    response = client.ask(FETCH, fetch_request(0, max_wait_ms=20))
    assert records_of(response) == b""
    assert response.responses[0].partitions[0].error_code == 0


def test_requests_after_a_delayed_fetch_wait_too(broker: LocalBroker, client: RawClient) -> None:
    first = client.send(FETCH, fetch_request(0, max_wait_ms=3_600_000))
    second = client.send(PRODUCE, produce_request(make_batch(), index=1))
    assert answers_others(broker)
    with RawClient(broker.port) as producer:
        produced(producer, make_batch())
    assert client.receive(FETCH)[0] == first
    assert client.receive(PRODUCE)[0] == second


def test_a_waiting_client_that_leaves_is_forgotten(broker: LocalBroker) -> None:
    for _ in range(50):
        with RawClient(broker.port) as leaving:
            leaving.send(FETCH, fetch_request(0, max_wait_ms=3_600_000))
    with RawClient(broker.port) as producer:
        assert produced(producer, make_batch()) == 0
    assert answers_others(broker)


def test_a_waiting_fetch_hears_of_the_end_of_the_topic(broker: LocalBroker, client: RawClient) -> None:
    client.send(FETCH, fetch_request(0, max_wait_ms=3_600_000))
    with RawClient(broker.port) as other:
        other.ask(DELETE_TOPICS, messages.DeleteTopicsRequest(("t",)))
    partition = client.receive(FETCH)[1].responses[0].partitions[0]
    assert partition.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


# Versions


def test_api_versions_of_the_future_are_answered_with_the_range_in_version_0(client: RawClient) -> None:
    frame = bytearray(client.frame(API_VERSIONS, messages.ApiVersionsRequest()))
    struct.pack_into(">h", frame, 6, 99)
    client.socket.sendall(frame)
    _, body = client.receive(API_VERSIONS, version=0)
    assert body.error_code == Code.UNSUPPORTED_VERSION
    assert [tuple(entry) for entry in body.api_keys] == [
        (API_VERSIONS.key, API_VERSIONS.min_version, API_VERSIONS.max_version)
    ]
    assert client.ask(API_VERSIONS, messages.ApiVersionsRequest("n", "1")).error_code == 0, "the connection lives on"


@pytest.mark.parametrize("version", range(API_VERSIONS.min_version, API_VERSIONS.max_version + 1))
def test_api_versions_in_every_version(client: RawClient, version: int) -> None:
    assert client.ask(API_VERSIONS, messages.ApiVersionsRequest(), version).error_code == 0


@pytest.mark.parametrize("version", range(PRODUCE.min_version, PRODUCE.max_version + 1))
def test_produce_in_every_version(client: RawClient, version: int) -> None:
    response = client.ask(PRODUCE, produce_request(make_batch(2)), version)
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
def test_fetch_in_every_version(client: RawClient, version: int) -> None:
    produced(client, make_batch(2))
    assert len(records_of(client.ask(FETCH, fetch_request(0, 0), version))) == 100


@pytest.mark.parametrize("version", range(LIST_OFFSETS.min_version, LIST_OFFSETS.max_version + 1))
def test_list_offsets_in_every_version(client: RawClient, version: int) -> None:
    produced(client, make_batch(2))
    wanted = messages.ListOffsetsTopic("t", (messages.ListOffsetsPartition(0, timestamp=-1),))
    response = client.ask(LIST_OFFSETS, messages.ListOffsetsRequest(topics=(wanted,)), version)
    assert response.topics[0].partitions[0].offset == 2


@pytest.mark.parametrize("version", range(METADATA.min_version, METADATA.max_version + 1))
def test_metadata_in_every_version(client: RawClient, version: int) -> None:
    assert [topic.name for topic in client.ask(METADATA, messages.MetadataRequest(None), version).topics] == ["t"]


# Misbehaviour


def test_acks_0_gets_no_answer(client: RawClient) -> None:
    client.send(PRODUCE, produce_request(make_batch(4), acks=0))
    assert produced(client, make_batch()) == 4


def test_an_error_with_acks_0_closes_the_connection(client: RawClient) -> None:
    client.send(PRODUCE, produce_request(make_batch()[:80], acks=0))
    assert client.is_closed_by_peer()


GARBAGE = {
    "negative size": struct.pack(">i", -1),
    "too large": struct.pack(">i", 20 * MIB + 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("16030102000100") * 10,
    "empty frame": struct.pack(">i", 0),
    "half a header": struct.pack(">ihh", 4, 3, 1),
    "unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "Produce 2": struct.pack(">ihhih", 10, 0, 2, 1, -1),
    "a body that ends early": struct.pack(">ihhih", 10, 3, 1, 1, -1),
    "noise": struct.pack(">i", 500) + random.Random(5).randbytes(500),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_is_dropped_with_one_line_and_affects_no_other_client(
    broker: LocalBroker, client: RawClient, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.socket.sendall(GARBAGE[case])
    assert client.is_closed_by_peer()
    assert answers_others(broker)
    assert len(caplog.records) == 1
    assert f"127.0.0.1:{client.socket.getsockname()[1]}" in caplog.text


def test_a_client_that_stops_within_a_frame_affects_no_other(broker: LocalBroker) -> None:
    for length in (1, 4, 10, 100):
        with RawClient(broker.port) as breaking:
            breaking.socket.sendall(breaking.frame(PRODUCE, produce_request(make_batch(1, size=1000)))[:length])
    with RawClient(broker.port) as resetting:
        resetting.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with RST
        resetting.socket.sendall(b"\0\0\1")
    assert answers_others(broker)


def test_a_defect_in_a_handler_costs_one_connection(
    broker: LocalBroker, client: RawClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    # No request that we know of leads to a defect, so one is put in; so it is with the steps below.
    monkeypatch.setitem(handlers.HANDLERS, LIST_OFFSETS.key, fail)
    client.send(LIST_OFFSETS, messages.ListOffsetsRequest())
    assert client.is_closed_by_peer()
    assert answers_others(broker)
    assert "bug in the broker" in caplog.text


def test_a_fetch_with_a_repeated_partition_affects_no_other_client(broker: LocalBroker, client: RawClient) -> None:
    wanted = messages.FetchPartition(0, partition_max_bytes=MIB)
    twice = messages.FetchRequest(
        max_wait_ms=20, min_bytes=1, topics=(messages.FetchTopic("t", partitions=(wanted, wanted)),)
    )
    assert records_of(client.ask(FETCH, twice)) == b""
    client.send(FETCH, twice._replace(max_wait_ms=3_600_000))
    with RawClient(broker.port) as producer:
        assert produced(producer, make_batch()) == 0
    assert len(records_of(client.receive(FETCH)[1])) == 100


def test_a_fetch_may_wait_for_weeks(broker: LocalBroker, client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    client.send(FETCH, fetch_request(0, max_wait_ms=2**31 - 1))
    assert answers_others(broker)
    assert not caplog.records


@pytest.mark.parametrize("step", ["work", "serve", "next_deadline", "add"])
def test_a_defect_in_any_step_is_logged_and_the_thread_lives(
    broker: LocalBroker, client: RawClient, step: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.ask(METADATA, messages.MetadataRequest(()))  # it has been added
    real, failures = getattr(Clients, step), [ZeroDivisionError("once")]

    def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*arguments)

    monkeypatch.setattr(Clients, step, failing)
    with contextlib.suppress(ConnectionError), RawClient(broker.port) as first:  # lost, if it could not be added
        first.ask(METADATA, messages.MetadataRequest(()))
    assert answers_others(broker)
    assert client.ask(METADATA, messages.MetadataRequest(())).topics == ()
    assert caplog.text.count("ZeroDivisionError: once") == 1


def test_running_out_of_descriptors_pauses_accepting_and_ends(
    broker: LocalBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = socket.socket.accept, [OSError(24, "Too many open files")]

    def accept(listener: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return real(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    assert answers_others(broker)
    assert "Too many open files" in caplog.text
    assert client.ask(METADATA, messages.MetadataRequest(())).topics == ()
