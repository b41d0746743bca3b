from __future__ import annotations

from random import Random

import pytest

from spark_producer.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from spark_producer.protocol import (
    API_VERSIONS,
    APIS,
    METADATA,
    PRODUCE,
    AnyApi,
    Buffer,
    RequestFrame,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    messages,
)
from spark_producer.protocol.reader import read_unsigned_varint
from spark_producer.protocol.writer import unsigned_varint
from tests.unit.protocol.random_messages import random_body


def produce(*partitions: messages.ProducePartition) -> messages.ProduceRequest:
    return messages.ProduceRequest(None, -1, 30_000, (messages.ProduceTopic("topic", partition_data=partitions),))


def joined(buffers: list[Buffer]) -> memoryview:
    data = b"".join(buffers)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return memoryview(data)[4:]


@pytest.mark.parametrize("version", range(3, 13))
def test_payloads_are_listed_by_reference(version: int) -> None:
    payloads: list[Buffer] = [bytes(1_000_000), bytearray(5), memoryview(bytearray(70_000))[10:]]
    body = produce(*(messages.ProducePartition(i, payload) for i, payload in enumerate(payloads)))
    buffers = encode_request(PRODUCE, version, 1, "client", body)
    assert [buffer for buffer in buffers if any(buffer is payload for payload in payloads)] == payloads
    assert all(buffers[2 * i + 1] is payload for i, payload in enumerate(payloads))


def test_small_pieces_are_merged() -> None:
    body = produce(*(messages.ProducePartition(i, b"payload") for i in range(10)))
    assert len(encode_request(PRODUCE, 7, 1, "client", body)) == 2 * 10  # the last payload ends the frame
    assert len(encode_request(METADATA, 12, 1, "client", messages.MetadataRequest())) == 1


def test_records_may_be_several_buffers() -> None:
    parts: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"three"), b""]
    buffers = encode_request(PRODUCE, 9, 1, None, produce(messages.ProducePartition(0, parts)))
    assert [next(b for b in buffers if b is part) for part in parts[:3]] == parts[:3]
    request = decode_request(joined(buffers))
    assert bytes(request.body[3][0].partition_data[0].records) == b"onetwothree"


def test_the_size_of_a_payload_is_in_bytes_whatever_its_items_are() -> None:
    payload = memoryview(bytes(16)).cast("q")
    request = decode_request(
        joined(encode_request(PRODUCE, 9, 1, None, produce(messages.ProducePartition(0, payload))))
    )
    assert len(request.body[3][0].partition_data[0].records) == 16


def test_null_and_empty_records_differ() -> None:
    body = produce(messages.ProducePartition(0, None), messages.ProducePartition(1, b""))
    for version in (3, 12):
        topic = decode_request(joined(encode_request(PRODUCE, version, 1, None, body))).body[3][0]
        assert topic.partition_data[0].records is None
        assert topic.partition_data[1].records == b""


def test_decoded_records_are_a_slice_of_the_frame() -> None:
    frame = joined(encode_request(PRODUCE, 9, 1, None, produce(messages.ProducePartition(0, b"payload"))))
    records = decode_request(frame).body[3][0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj


def test_fields_that_a_version_lacks_are_defaults_when_read() -> None:
    answer = messages.ProducePartitionResponse(
        1, 2, 3, 4, 5, (messages.BatchIndexAndErrorMessage(6, "seven"),), "eight", messages.LeaderIdAndEpoch(9, 10)
    )
    body = messages.ProduceResponse(
        (messages.ProduceTopicResponse("t", partition_responses=(answer,)),), 11, (messages.NodeEndpoint(),)
    )
    expected = {
        3: answer._replace(log_start_offset=-1, record_errors=(), error_message=None),
        5: answer._replace(record_errors=(), error_message=None),
        8: answer,
        10: answer,
    }
    for version, partition in expected.items():
        _, read = decode_response(PRODUCE, version, joined(encode_response(PRODUCE, version, 0, body)))
        leader = answer.current_leader if version >= 10 else messages.LeaderIdAndEpoch()
        assert read.responses[0].partition_responses[0] == partition._replace(current_leader=leader)
        assert read.node_endpoints == (body.node_endpoints if version >= 10 else ())


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_version_reads_what_it_writes(api: AnyApi) -> None:
    random = Random(api.name)
    for version in range(api.min_version, api.max_version + 1):
        for number in range(30):
            request = random_body(api.request, version, random)
            response = random_body(api.response, version, random)
            read = decode_request(joined(encode_request(api, version, number, "client", request)))
            assert read == RequestFrame(api, version, number, "client", request)
            assert type(read.body) is type(request)
            answered = decode_response(api, version, joined(encode_response(api, version, number, response)))
            assert answered == (number, response)


def test_unknown_tags_are_skipped() -> None:
    # Metadata 9: correlation id, header tags {5: 3 bytes}, throttle, no brokers, cluster id null, controller, no topics,
    # operations, body tags {0: 1 byte, 300: none}
    frame = bytes.fromhex("00000007 01 05 03 aabbcc 00000000 01 00 00000001 01 80000000 02 00 01 ff ac02 00")
    assert decode_response(METADATA, 9, memoryview(frame)) == (7, messages.MetadataResponse(controller_id=1))


def test_the_api_versions_response_has_header_0_in_flexible_versions_too() -> None:
    frame = joined(encode_response(API_VERSIONS, 3, 9, messages.ApiVersionsResponse()))
    assert frame.hex(" ") == "00 00 00 09 00 00 01 00 00 00 00 00"


def test_the_client_id_keeps_its_int16_length_in_header_2() -> None:
    frame = joined(encode_request(METADATA, 9, 1, "ab", messages.MetadataRequest(None)))
    assert frame.hex(" ") == "00 03 00 09 00 00 00 01 00 02 61 62 00 00 01 00 00 00"


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (18, 99), (18, -1), (77, 0), (-5, 0)])
def test_an_unknown_version_says_what_a_broker_needs_to_answer(key: int, version: int) -> None:
    header = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + (42).to_bytes(4, "big")
    with pytest.raises(UnsupportedVersion, match=r"is not supported here") as raised:
        decode_request(memoryview(header + b"\xff\xff and anything"))
    found = raised.value.__dict__
    assert (found["api_key"], found["version"], found["correlation_id"]) == (key, version, 42)


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (METADATA, 9, messages.MetadataRequest((messages.MetadataRequestTopic(name=None),))),  # nullable since 10
        (PRODUCE, 3, messages.ProduceRequest(acks=1 << 15)),
        (PRODUCE, 3, messages.ProduceRequest(topic_data=None)),  # type: ignore[arg-type]
        (PRODUCE, 3, messages.ProduceRequest("x" * 40_000)),
        (PRODUCE, 3, messages.ProduceRequest("\ud800")),
        (PRODUCE, 3, ()),
        (PRODUCE, 2, messages.ProduceRequest()),
        (PRODUCE, 13, messages.ProduceRequest()),
    ],
)
def test_what_does_not_fit_is_our_own_fault(api: AnyApi, version: int, body: tuple[object, ...]) -> None:
    with pytest.raises(LocalProtocolError, match=r"Metadata|Produce"):
        encode_request(api, version, 1, None, body)


def test_a_null_where_the_version_has_none_is_refused() -> None:
    frame = joined(
        encode_request(METADATA, 10, 1, None, messages.MetadataRequest((messages.MetadataRequestTopic(name=None),)))
    )
    assert decode_request(frame).body.topics[0].name is None
    # Version 9 has no topic id before the name.
    old = bytes(frame[:2]) + b"\0\x09" + bytes(frame[4:12]) + bytes(frame[28:])
    with pytest.raises(RemoteProtocolError, match="not allowed"):
        decode_request(memoryview(old))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 300, (1 << 21) - 1, 1 << 21, (1 << 32) - 1])
def test_varints_at_every_boundary(value: int) -> None:
    data = unsigned_varint(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    assert read_unsigned_varint(memoryview(data), 0) == (value, len(data))


def test_an_unterminated_varint_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 5 bytes"):
        read_unsigned_varint(memoryview(b"\xff" * 6), 0)
