"""Targets: requests of clients and responses of brokers."""

from __future__ import annotations

import contextlib
from functools import partial
from random import Random

from spark_producer.errors import RemoteProtocolError, UnsupportedVersion
from spark_producer.protocol import APIS, decode_request, decode_response
from tests.fuzz.target import single
from tests.unit.protocol.test_hostile_bytes import frames

VERSIONS = [(api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]


def _seeds(kind: str) -> list[bytes]:
    """One frame of every version of every API. A response begins with two bytes that say of which."""
    found = []
    for place, (api, version) in enumerate(VERSIONS):
        frame = dict(frames(api, version, 1))[kind]
        found.append(frame if kind == "request" else place.to_bytes(2, "big") + frame)
    return found


def _request(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError, UnsupportedVersion):
        decode_request(memoryview(data))


def _response(data: bytes) -> None:
    api, version = VERSIONS[int.from_bytes(data[:2], "big") % len(VERSIONS)]
    with contextlib.suppress(RemoteProtocolError):
        decode_response(api, version, memoryview(data)[2:])


def _in_unknown_order(kind: str) -> list[bytes]:
    found = _seeds(kind)
    Random(kind).shuffle(found)
    return found


TARGETS = (
    single(
        "requests",
        "requests of clients, in the embedded broker",
        partial(_in_unknown_order, "request"),
        _request,
    ),
    single(
        "responses",
        "responses of brokers, in every client",
        partial(_in_unknown_order, "response"),
        _response,
    ),
)
