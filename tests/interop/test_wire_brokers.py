"""Every version of every API that a broker and we have in common, sent to it, and its answer read strictly."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.cli.connection_args import connection_settings
from spark_producer.network import parse_bootstrap_servers
from spark_producer.protocol import (
    API_VERSIONS,
    APIS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    AnyApi,
    Api,
    FrameReader,
    RequestBody,
    ResponseBody,
    decode_response,
    encode_request,
    messages,
)
from spark_producer.record import batch_v2
from tests.conftest import Broker
from tests.support.waiting import wait_until

DEADLINE = 30.0
PARTITIONS = 2
UNSETTLED = (3, 6, 14)
"""a topic that was just created, a leader that was just elected, a broker that just started"""

# One record, key null and value b"hello": length, attributes, timestamp delta, offset delta, key, value, headers.
RECORD = bytes((2 * 11, 0, 0, 0, 1, 2 * 5)) + b"hello" + b"\0"


class Wire:
    """One plain connection; asks in whatever version a test wants."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, DEADLINE)
        self._frames = FrameReader()
        self._sent = 0
        answer = self.ask(API_VERSIONS, 3, messages.ApiVersionsRequest("pyproducer", "0"))
        self.ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def ask(self, api: Api[RequestBody, ResponseBody], version: int, body: RequestBody) -> ResponseBody:
        self._sent += 1
        self._socket.sendall(b"".join(encode_request(api, version, self._sent, "test", body)))
        frames: list[memoryview] = []
        while not frames:
            count = self._socket.recv_into(self._frames.space())
            assert count, f"the broker closed the connection after {api.name} version {version}"
            frames = self._frames.received(count)
        correlation_id, answer = decode_response(api, version, frames[0])
        assert correlation_id == self._sent
        return answer

    def ask_for_one(self, api: Api[RequestBody, Any], version: int, body: RequestBody) -> Any:
        """The innermost answer of a request about one thing; asked again while a new broker has not settled."""
        deadline = time.monotonic() + DEADLINE
        while True:
            answer = self.ask(api, version, body)
            for inner in ("responses", "topics", "partition_responses", "partitions"):
                if isinstance(rows := getattr(answer, inner, None), tuple):
                    (answer,) = rows
            if answer.error_code not in UNSETTLED or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)  # the request is sent again, and the test checks its last response

    def versions(self, api: AnyApi) -> list[int]:
        lowest, highest = self.ranges[api.key]
        common = list(range(max(api.min_version, lowest), min(api.max_version, highest) + 1))
        assert common
        return common

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    found = Wire(parse_bootstrap_servers(broker.bootstrap_servers)[0])
    yield found
    found.close()


def batch() -> bytes:
    data = bytearray(batch_v2.HEADER_SIZE) + RECORD
    batch_v2.write_header(memoryview(data), records_count=1, base_timestamp=1, max_timestamp=1)
    return bytes(data)


def test_brokers_speak_every_api_that_we_need(wire: Wire) -> None:
    assert {api.name: wire.versions(api) for api in APIS.values()}


def test_api_versions(wire: Wire) -> None:
    for version in wire.versions(API_VERSIONS):
        answer = wire.ask(API_VERSIONS, version, messages.ApiVersionsRequest("pyproducer", "0"))
        assert answer.error_code == 0
        assert {row.api_key for row in answer.api_keys} >= set(APIS)


def test_metadata(wire: Wire, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, PARTITIONS)
    for version in wire.versions(METADATA):
        absent = f"{topic}-absent"
        names = (topic, absent) if version >= 4 else (topic,)  # older ones cannot forbid the creation
        wanted = tuple(messages.MetadataRequestTopic(name=name) for name in names)
        answer = wire.ask(METADATA, version, messages.MetadataRequest(wanted, allow_auto_topic_creation=False))
        found = {row.name: row for row in answer.topics}
        assert sorted(row.partition_index for row in found[topic].partitions) == list(range(PARTITIONS))
        assert {row.leader_id for row in found[topic].partitions} == {answer.brokers[0].node_id}
        assert absent not in found or found[absent].error_code == 3
        assert (answer.cluster_id is not None) == (version >= 2)
        assert any(found[topic].topic_id) or version < 10
        assert topic in {row.name for row in wire.ask(METADATA, version, messages.MetadataRequest(None)).topics}


def test_produce_offsets_and_fetch(wire: Wire, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, PARTITIONS)
    written = 0
    for version in wire.versions(PRODUCE):
        partition = messages.ProducePartition(1, batch())
        body = messages.ProduceRequest(None, -1, 10_000, (messages.ProduceTopic(topic, partition_data=(partition,)),))
        answer = wire.ask_for_one(PRODUCE, version, body)
        assert (answer.index, answer.error_code, answer.base_offset) == (1, 0, written)
        written += 1
    for version in wire.versions(LIST_OFFSETS):
        for timestamp, expected in ((-2, 0), (-1, written)):
            asked = messages.ListOffsetsPartition(1, timestamp=timestamp)
            topics = (messages.ListOffsetsTopic(topic, (asked,)),)
            offset = wire.ask_for_one(LIST_OFFSETS, version, messages.ListOffsetsRequest(topics=topics))
            assert (offset.error_code, offset.offset) == (0, expected)
    for version in wire.versions(FETCH):
        wanted = messages.FetchPartition(1, fetch_offset=0, partition_max_bytes=1 << 20)
        fetch = messages.FetchRequest(
            max_wait_ms=1000, min_bytes=1, topics=(messages.FetchTopic(topic, partitions=(wanted,)),)
        )
        fetched = wire.ask_for_one(FETCH, version, fetch)
        assert (fetched.error_code, fetched.high_watermark) == (0, written)
        found = [
            (header.base_offset, bytes(data[batch_v2.HEADER_SIZE :]))
            for header, data in batch_v2.batches(fetched.records)
        ]
        assert found == [(offset, RECORD) for offset in range(written)]


def test_a_bad_batch_is_refused_with_a_code_that_we_read(wire: Wire, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, PARTITIONS)
    damaged = bytearray(batch())
    damaged[-3] ^= 1
    for version in wire.versions(PRODUCE):
        body = messages.ProduceRequest(
            None, -1, 10_000, (messages.ProduceTopic(topic, partition_data=(messages.ProducePartition(0, damaged),)),)
        )
        answer = wire.ask_for_one(PRODUCE, version, body)
        assert (answer.error_code, answer.base_offset) == (2, -1)


def test_init_producer_id(wire: Wire) -> None:
    found = set()
    for version in wire.versions(INIT_PRODUCER_ID):
        answer = wire.ask_for_one(INIT_PRODUCER_ID, version, messages.InitProducerIdRequest())
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        found.add(answer.producer_id)
    assert len(found) == len(wire.versions(INIT_PRODUCER_ID))


def test_create_and_delete_topics(wire: Wire, topic: str) -> None:
    created = [f"{topic}-{version}" for version in wire.versions(CREATE_TOPICS)]
    for name, version in zip(created, wire.versions(CREATE_TOPICS), strict=True):
        wanted = messages.CreatableTopic(
            name, PARTITIONS, 1, configs=(messages.CreatableTopicConfig("cleanup.policy", "delete"),)
        )
        (answer,) = wire.ask(CREATE_TOPICS, version, messages.CreateTopicsRequest((wanted,))).topics
        assert (answer.name, answer.error_code) == (name, 0)
        assert answer.num_partitions == (PARTITIONS if version >= 5 else -1)
        (again,) = wire.ask(CREATE_TOPICS, version, messages.CreateTopicsRequest((wanted,))).topics
        assert again.error_code == 36
    for number, name in enumerate(created):
        versions = wire.versions(DELETE_TOPICS)
        request = messages.DeleteTopicsRequest((name,))
        deleted = wire.ask_for_one(DELETE_TOPICS, versions[number % len(versions)], request)
        assert (deleted.name, deleted.error_code) == (name, 0)


def test_an_api_versions_request_from_the_future_is_answered_in_version_0(wire: Wire, broker: Broker) -> None:
    """`Connection` relies on error 35 and the broker's range, in the format of version 0 (KIP-511)."""
    with socket.create_connection(parse_bootstrap_servers(broker.bootstrap_servers)[0], DEADLINE) as plain:
        request = b"".join(encode_request(API_VERSIONS, 3, 7, "test", messages.ApiVersionsRequest("a", "1")))
        plain.sendall(request[:6] + (99).to_bytes(2, "big") + request[8:])
        reader = FrameReader()
        frames: list[memoryview] = []
        while not frames:
            count = plain.recv_into(reader.space())
            assert count
            frames = reader.received(count)
        correlation_id, answer = decode_response(API_VERSIONS, 0, frames[0])
        assert (correlation_id, answer.error_code) == (7, 35)
        assert {row.api_key: row.max_version for row in answer.api_keys}[18] == wire.ranges[18][1]


def test_the_blocking_client(broker: Broker, topic: str) -> None:
    with BlockingClient(
        connection_settings(broker.bootstrap_servers, {"kafka.client.id": "test"}), timeout=DEADLINE
    ) as client:
        create = messages.CreateTopicsRequest((messages.CreatableTopic(topic, PARTITIONS, 1),))
        assert client.request(CREATE_TOPICS, create).topics[0].error_code == 0
        broker_ids = {row.node_id for row in client.metadata([]).brokers}
        # The broker may learn of a topic later than its controller.
        wait_until(lambda: not client.metadata([topic]).topics[0].error_code, "the topic", seconds=DEADLINE)
        assert client.wait_for_topic(topic, partition=PARTITIONS - 1)[PARTITIONS - 1] in broker_ids
