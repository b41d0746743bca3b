"""Whatever bytes arrive, the only error is RemoteProtocolError (or UnsupportedVersion from a request's header)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from spark_producer.protocol import (
    APIS,
    LIST_GROUPS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    AnyApi,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    messages,
)
from tests.unit.protocol.random_messages import random_body

GIANT = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff",
)
VERSIONS = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]


def frames(api: AnyApi, version: int, count: int) -> Iterator[tuple[str, bytes]]:
    random = Random(f"hostile{api.name}{version}")
    for _ in range(count):
        request, response = random_body(api.request, version, random), random_body(api.response, version, random)
        yield "request", b"".join(encode_request(api, version, 1, "client", request))[4:]
        yield "response", b"".join(encode_response(api, version, 1, response))[4:]


def decode(kind: str, api: AnyApi, version: int, data: bytes) -> None:
    if kind == "request":
        decode_request(memoryview(data))
    else:
        decode_response(api, version, memoryview(data))


def is_refused(kind: str, api: AnyApi, version: int, data: bytes) -> bool:
    """Return whether the bytes are refused with an error of the protocol. Any other error is raised."""
    try:
        decode(kind, api, version, data)
    except (RemoteProtocolError, UnsupportedVersion):
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_frame_cut_at_any_byte_is_refused(api: AnyApi, version: int) -> None:
    for kind, data in frames(api, version, 2):
        for end in range(len(data)):
            with pytest.raises(RemoteProtocolError):
                decode(kind, api, version, data[:end])


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_bytes_after_the_end_are_refused_in_a_response_and_ignored_in_a_request(api: AnyApi, version: int) -> None:
    for kind, data in frames(api, version, 2):
        if kind == "request":
            assert decode_request(memoryview(data + b"\0")) == decode_request(memoryview(data))
            continue
        with pytest.raises(RemoteProtocolError, match="1 bytes follow its end"):
            decode(kind, api, version, data + b"\0")


@pytest.mark.slow
@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_flipped_bits_and_giant_lengths_anywhere_end_in_one_error(api: AnyApi, version: int) -> None:
    random = Random(version)
    refused = []
    for kind, data in frames(api, version, 1):
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 1 << random.randrange(8)
            refused.append(is_refused(kind, api, version, bytes(flipped)))
            giant = random.choice(GIANT)
            refused.append(is_refused(kind, api, version, data[:position] + giant + data[position + len(giant) :]))
    assert {True, False} == set(refused), "some bytes are lengths, and others are values"


@given(
    st.binary(max_size=200),
    st.sampled_from([(api, v) for api in APIS.values() for v in (api.min_version, api.max_version)]),
)
def test_random_bytes_end_in_one_error(data: bytes, target: tuple[AnyApi, int]) -> None:
    api, version = target
    header = api.key.to_bytes(2, "big") + version.to_bytes(2, "big")
    answers = [is_refused("request", api, version, header + data), is_refused("response", api, version, data)]
    assert answers[1] or len(data) >= 4, "a response begins with its correlation id"


@pytest.mark.parametrize("version", [1, 9])
def test_a_giant_array_is_refused_before_memory_is_taken(version: int) -> None:
    count = b"\x7f\xff\xff\xff" if version < 9 else b"\xff\xff\xff\xff\x07"
    frame = bytes(5 if version >= 9 else 4) + (bytes(4) if version >= 9 else b"") + count + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=r"length 214748364\d"):
            decode_response(METADATA, version, memoryview(frame))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_giant_number_of_tags_is_refused() -> None:
    frame = bytes(4) + b"\xff\xff\xff\xff\x0f" + bytes(100)
    with pytest.raises(RemoteProtocolError):
        decode_response(PRODUCE, 9, memoryview(frame))


def test_a_compact_string_obeys_the_same_limit_as_others() -> None:
    longest = messages.ListGroupsRequest(("x" * 32_767,))
    frame = memoryview(b"".join(encode_request(LIST_GROUPS, 5, 1, "client", longest))[4:])
    assert decode_request(frame).body == longest
    longer = bytes(frame).replace(b"\x80\x80\x02" + b"x", b"\x81\x80\x02" + b"xx")
    assert len(longer) == len(frame) + 1
    with pytest.raises(RemoteProtocolError, match="has 32768 bytes"):
        decode_request(memoryview(longer))
    with pytest.raises(LocalProtocolError, match="a string has 32768 bytes, more than 32767"):
        encode_request(LIST_GROUPS, 5, 1, "client", messages.ListGroupsRequest(("x" * 32_768,)))


def test_the_elements_of_a_request_are_counted_together() -> None:
    def topics(count: int, partitions: int) -> memoryview:
        of_topic = messages.ProduceTopic("t", partition_data=(messages.ProducePartition(),) * partitions)
        request = messages.ProduceRequest(topic_data=(of_topic,) * count)
        return memoryview(b"".join(encode_request(PRODUCE, 12, 1, "client", request))[4:])

    assert len(decode_request(topics(5000, 9)).body.topic_data) == 5000
    for count, partitions in ((5000, 10), (50_001, 0), (1, 50_000)):
        with pytest.raises(RemoteProtocolError, match="more than 50000 elements"):
            decode_request(topics(count, partitions))


def test_tags_are_counted_too() -> None:
    header = LIST_GROUPS.key.to_bytes(2, "big") + bytes((0, 5, 0, 0, 0, 1, 0xFF, 0xFF))
    many = b"\xd1\x86\x03" + b"\x05\x00" * 50_001
    for frame in (header + many + bytes(3), header + b"\0" + b"\1\1" + many):
        with pytest.raises(RemoteProtocolError, match="more than 50000 elements"):
            decode_request(memoryview(frame))


def test_text_that_is_not_utf8_is_refused() -> None:
    frame = b"".join(encode_request(PRODUCE, 3, 1, "client", messages.ProduceRequest(None, 1, 1)))[4:]
    with pytest.raises(RemoteProtocolError, match="client id is not UTF-8"):
        decode_request(memoryview(frame.replace(b"client", b"\xff\xfe\xfd\xfc\xfb\xfa")))


@pytest.mark.covers("SEC32")
@pytest.mark.parametrize(("version", "null"), [(0, b"\xff\xff\xff\xff"), (2, b"\0")])
def test_bytes_that_may_not_be_null_are_refused(version: int, null: bytes) -> None:
    """Fields of a login, where a missing response is none; the records of a Produce may be null."""
    whole = b"".join(
        encode_response(SASL_AUTHENTICATE, version, 1, messages.SaslAuthenticateResponse(0, None, b"proof"))
    )
    reply = (b"\x06" if version == 2 else b"\0\0\0\x05") + b"proof"
    assert reply in whole
    with pytest.raises(RemoteProtocolError):
        decode_response(SASL_AUTHENTICATE, version, memoryview(whole.replace(reply, null))[4:])
