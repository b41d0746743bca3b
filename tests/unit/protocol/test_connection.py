"""The client's side of a connection as tables: bytes in, bytes out, no socket."""

from __future__ import annotations

import importlib.metadata
import itertools
import re
from typing import Any

import pytest

from spark_producer.errors import (
    BrokerError,
    LocalProtocolError,
    PyProducerError,
    RemoteProtocolError,
    UnsupportedVersion,
)
from spark_producer.protocol import (
    API_VERSIONS,
    CREATE_TOPICS,
    METADATA,
    PRODUCE,
    PRODUCE_ZSTD,
    AnyApi,
    Connection,
    ConnectionState,
    RequestFrame,
    Response,
    ResponseBody,
    decode_request,
    encode_response,
    messages,
)
from spark_producer.protocol.connection import TRANSITIONS, ConnectionEvent
from spark_producer.protocol.negotiation import SOFTWARE_NAME, SOFTWARE_VERSION, BrokerIdentity

MODERN = {0: (0, 13), 1: (4, 18), 3: (0, 13), 18: (0, 4), 22: (0, 5)}
"""a 4.1 broker: Produce from 0, although it refuses 0 to 2 (KAFKA-18659)"""


def versions_body(ranges: dict[int, tuple[int, int]], error_code: int = 0) -> messages.ApiVersionsResponse:
    keys = tuple(messages.ApiVersion(key, *versions) for key, versions in ranges.items())
    return messages.ApiVersionsResponse(error_code, keys)


def asked(connection: Connection[str]) -> list[RequestFrame[Any, Any]]:
    """The requests that the connection wants to send."""
    data, found = memoryview(b"".join(connection.outgoing())), []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(decode_request(data[4 : 4 + size]))
        data = data[4 + size :]
    return found


def feed(connection: Connection[str], data: bytes) -> list[Response[str]]:
    space = connection.space()
    space[: len(data)] = data
    return connection.received(len(data))


def answer(request: RequestFrame[Any, ResponseBody], body: ResponseBody, version: int | None = None) -> bytes:
    return b"".join(
        encode_response(request.api, request.version if version is None else version, request.correlation_id, body)
    )


def started() -> tuple[Connection[str], RequestFrame[Any, Any]]:
    connection: Connection[str] = Connection("client")
    connection.start()
    (request,) = asked(connection)
    return connection, request


def negotiated(ranges: dict[int, tuple[int, int]] = MODERN) -> Connection[str]:
    connection, request = started()
    assert feed(connection, answer(request, versions_body(ranges))) == []
    assert connection.state is ConnectionState.READY
    return connection


def send_metadata(connection: Connection[str], tag: str) -> RequestFrame[Any, Any]:
    connection.send(METADATA, messages.MetadataRequest(), tag)
    return asked(connection)[0]


# Negotiation


def test_api_versions_is_asked_first_in_version_3_with_our_name() -> None:
    _, request = started()
    assert (request.api, request.version, request.client_id) == (API_VERSIONS, 3, "client")
    assert request.body == messages.ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION)


def meant_for(expected: BrokerIdentity) -> tuple[Connection[str], RequestFrame[Any, Any]]:
    connection: Connection[str] = Connection("client", expected=expected)
    connection.start()
    (request,) = asked(connection)
    return connection, request


def test_a_broker_that_compares_gets_the_expected_identity() -> None:
    """KIP-1242: from version 5 on."""
    connection, request = meant_for(BrokerIdentity("cluster", 7))
    assert request.version == 5
    assert (request.body.cluster_id, request.body.node_id) == ("cluster", 7)
    feed(connection, answer(request, versions_body(MODERN)))
    assert connection.state is ConnectionState.READY


def test_a_broker_that_is_another_one_ends_the_connection() -> None:
    connection, request = meant_for(BrokerIdentity("cluster", 7))
    feed(connection, answer(request, versions_body({}, error_code=129)))
    assert connection.state is ConnectionState.CLOSED
    assert isinstance(connection.fault, BrokerError)
    assert "REBOOTSTRAP_REQUIRED (129) for broker 7 of cluster 'cluster'" in str(connection.fault)


def test_an_older_broker_is_asked_without_its_identity() -> None:
    connection, request = meant_for(BrokerIdentity("cluster", 7))
    feed(connection, answer(request, versions_body({18: (0, 4)}, error_code=35), version=0))
    (second,) = asked(connection)
    assert (second.version, second.body) == (4, messages.ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION))


def test_our_name_and_version_are_such_that_a_broker_takes_them() -> None:
    legal = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # KIP-511
    assert legal.fullmatch(SOFTWARE_NAME)
    assert legal.fullmatch(SOFTWARE_VERSION)
    assert importlib.metadata.version("pyproducer") == SOFTWARE_VERSION


@pytest.mark.covers("NW8")
@pytest.mark.parametrize(
    ("ranges", "again"),
    [
        ({18: (0, 2)}, 2),  # Kafka 2.0 to 2.3
        ({18: (0, 1)}, 1),
        ({18: (0, 0)}, 0),
        ({}, 0),  # it does not say
        ({18: (0, 9)}, 0),  # it lists the version that it has just refused
        ({18: (-5, -3)}, 0),
    ],
)
def test_error_35_is_followed_by_the_brokers_newest_version(ranges: dict[int, tuple[int, int]], again: int) -> None:
    connection, request = started()
    feed(connection, answer(request, versions_body(ranges, error_code=35), version=0))
    (second,) = asked(connection)
    assert (second.api, second.version, connection.state) == (API_VERSIONS, again, ConnectionState.NEGOTIATING)
    feed(connection, answer(second, versions_body(MODERN)))
    assert connection.state is ConnectionState.READY


@pytest.mark.covers("NW8")
@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\xff\xff\xff\xff", b"\0\0\x02\0\x12", b"\0\x23", bytes(40)])
def test_a_body_that_cannot_be_read_is_followed_by_version_0(body: bytes) -> None:
    connection, request = started()
    frame = request.correlation_id.to_bytes(4, "big") + body
    feed(connection, len(frame).to_bytes(4, "big") + frame)
    (second,) = asked(connection)
    assert (second.version, second.body) == (0, messages.ApiVersionsRequest())
    feed(connection, answer(second, versions_body({3: (0, 5)})))
    assert connection.version_of(METADATA) == 5


@pytest.mark.covers("NW8")
def test_a_broker_that_refuses_every_version_ends_the_connection() -> None:
    connection, request = started()
    for _ in range(2):
        feed(connection, answer(request, versions_body({}, error_code=35), version=0))
        if connection.state is ConnectionState.NEGOTIATING:
            (request,) = asked(connection)
    assert connection.state is ConnectionState.CLOSED
    assert isinstance(connection.fault, UnsupportedVersion)


def test_a_version_0_body_that_cannot_be_read_ends_the_connection() -> None:
    connection, request = started()
    garbage = request.correlation_id.to_bytes(4, "big") + b"\0"
    feed(connection, len(garbage).to_bytes(4, "big") + garbage)
    (second,) = asked(connection)
    garbage = second.correlation_id.to_bytes(4, "big") + b"\0"
    feed(connection, len(garbage).to_bytes(4, "big") + garbage)
    assert isinstance(connection.fault, RemoteProtocolError)


@pytest.mark.covers("NW6")
def test_another_error_of_api_versions_ends_the_connection() -> None:
    connection, request = started()
    feed(connection, answer(request, versions_body({}, error_code=58)))
    assert isinstance(connection.fault, BrokerError)
    assert connection.state is ConnectionState.CLOSED


def test_a_first_answer_to_something_else_ends_the_connection() -> None:
    connection, request = started()
    feed(connection, answer(request._replace(correlation_id=77), versions_body(MODERN)))
    assert "may not be a Kafka broker" in str(connection.fault)


# Versions


@pytest.mark.covers("AV1")
@pytest.mark.parametrize(
    ("api", "theirs", "version"),
    [
        (PRODUCE, (0, 13), 12),
        (PRODUCE, (0, 7), 7),
        (PRODUCE, (3, 3), 3),
        (PRODUCE, (12, 15), 12),
        (METADATA, (0, 7), 7),
        (METADATA, (4, 13), 13),
        (METADATA, (4, 14), 13),
        (CREATE_TOPICS, (0, 2), 2),
    ],
)
def test_the_newest_version_in_common_is_used(api: AnyApi, theirs: tuple[int, int], version: int) -> None:
    connection = negotiated({api.key: theirs})
    assert connection.version_of(api) == version
    assert connection.send(api, (None, 1, 1, ()) if api is PRODUCE else ((), 1, False, False), "tag") == version


@pytest.mark.covers("AV1")
@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({0: (0, 2)}, "Produce: the broker supports versions 0 to 2, this package 3 to 12"),
        ({0: (13, 15)}, "Produce: the broker supports versions 13 to 15, this package 3 to 12"),
        ({3: (0, 9)}, "does not support Produce"),
    ],
)
def test_no_version_in_common_is_an_error_that_names_both_ranges(
    ranges: dict[int, tuple[int, int]], message: str
) -> None:
    connection = negotiated(ranges)
    with pytest.raises(UnsupportedVersion, match=message):
        connection.send(PRODUCE, messages.ProduceRequest(), "tag")
    assert (connection.in_flight, connection.outgoing(), connection.state) == (0, [], ConnectionState.READY)


@pytest.mark.covers("LB4")
def test_zstd_goes_to_no_broker_that_does_not_know_it() -> None:
    connection = negotiated({0: (0, 6)})
    with pytest.raises(
        UnsupportedVersion, match=r"with zstd \(kafka\.compression\.type\).* 0 to 6, this package 7 to 13"
    ):
        connection.send(PRODUCE_ZSTD, messages.ProduceRequest(), "tag")
    connection.send(PRODUCE, messages.ProduceRequest(), "tag")
    assert negotiated({0: (0, 7)}).version_of(PRODUCE_ZSTD) == 7


# Requests and responses


def test_responses_come_back_in_order_with_their_tags() -> None:
    connection = negotiated()
    requests = [send_metadata(connection, tag) for tag in "abc"]
    assert len({request.correlation_id for request in requests}) == 3
    data = b"".join(answer(r, messages.MetadataResponse(controller_id=i)) for i, r in enumerate(requests))
    assert connection.in_flight == 3
    found = feed(connection, data[:-3]) + feed(connection, data[-3:])
    assert [(response.tag, response.body.controller_id) for response in found] == [("a", 0), ("b", 1), ("c", 2)]
    assert connection.in_flight == 0


def test_a_request_without_a_response_is_not_waited_for() -> None:
    connection = negotiated()
    connection.send(PRODUCE, messages.ProduceRequest(acks=0), "fire", expect_response=False)
    assert [request.api.key for request in asked(connection)] == [PRODUCE.key]
    request = send_metadata(connection, "ask")
    assert connection.in_flight == 1
    assert [response.tag for response in feed(connection, answer(request, messages.MetadataResponse()))] == ["ask"]


@pytest.mark.parametrize("mutate", ["out of order", "unasked", "garbage", "too large", "short"])
def test_a_peer_that_breaks_the_protocol_closes_the_connection_and_keeps_the_tags(mutate: str) -> None:
    connection = negotiated()
    first, second = send_metadata(connection, "first"), send_metadata(connection, "second")
    fine = answer(first, messages.MetadataResponse())
    bad = {
        "out of order": answer(second._replace(correlation_id=second.correlation_id + 1), messages.MetadataResponse()),
        "unasked": answer(second, messages.MetadataResponse()) + answer(second, messages.MetadataResponse()),
        "garbage": b"\0\0\0\x05" + second.correlation_id.to_bytes(4, "big") + b"\xff",
        "too large": b"HTTP/1.1 400",
        "short": b"\0\0\0\x02\0\0",
    }[mutate]
    responses = feed(connection, fine + bad)
    done = ["first", "second"] if mutate == "unasked" else ["first"]
    assert [response.tag for response in responses] == done  # nothing that was answered before the fault is lost
    assert isinstance(connection.fault, RemoteProtocolError)
    assert connection.state is ConnectionState.CLOSED
    assert connection.close() == ([] if mutate == "unasked" else ["second"])


def test_bytes_after_a_response_are_ignored_as_by_the_java_client() -> None:
    connection = negotiated()
    frame = answer(send_metadata(connection, "tag"), messages.MetadataResponse(controller_id=5))[4:] + b"\0"
    (response,) = feed(connection, len(frame).to_bytes(4, "big") + frame)
    assert (response.body.controller_id, connection.fault) == (5, None)


def test_close_names_what_was_in_flight_in_the_order_sent() -> None:
    connection = negotiated()
    for tag in ("a", "b", "c"):
        connection.send(METADATA, messages.MetadataRequest(), tag)
    assert connection.close() == ["a", "b", "c"]
    assert (connection.close(), connection.outgoing(), connection.in_flight) == ([], [], 0)


def test_correlation_ids_wrap() -> None:
    connection = negotiated()
    connection._next_correlation_id = 0x7FFFFFFF  # else two billion requests
    assert [send_metadata(connection, tag).correlation_id for tag in "abc"] == [0x7FFFFFFF, 0, 1]


# States


@pytest.mark.parametrize(("state", "change"), list(itertools.product(ConnectionState, ConnectionEvent)))
def test_every_change_of_state_is_in_the_table_or_refused(state: ConnectionState, change: ConnectionEvent) -> None:
    connection: Connection[str] = Connection(None)
    connection.state = state
    if change in TRANSITIONS[state]:
        connection._move(change)  # itself, since no bytes and no call lead to some of these pairs
        assert connection.state is TRANSITIONS[state][change]
    else:
        with pytest.raises(LocalProtocolError, match=f"{state.value} cannot {change.value}"):
            connection._move(change)
        assert connection.state is state


@pytest.mark.parametrize("state", [ConnectionState.NEW, ConnectionState.NEGOTIATING, ConnectionState.CLOSED])
def test_nothing_is_sent_unless_ready(state: ConnectionState) -> None:
    connection: Connection[str] = Connection(None)
    connection.state = state
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        connection.send(METADATA, messages.MetadataRequest(), "tag")
    assert connection.outgoing() == []


def test_a_closed_connection_receives_nothing() -> None:
    connection = negotiated()
    connection.close()
    with pytest.raises(PyProducerError, match="closed connection"):
        connection.received(3)
