"""Every API, in every version, both ways, byte for byte against kio, whose schemas are generated from Kafka's own."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import re
import uuid
from random import Random
from typing import Any, TypeGuard, get_args

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader as RequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeader2
from kio.serial import entity_reader, entity_writer

from spark_producer.protocol import (
    APIS,
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    AnyApi,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from spark_producer.protocol.fields import Array, Struct
from tests.unit.protocol.random_messages import random_body

pytestmark = pytest.mark.xdist_group("kio")  # hundreds of short tests

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MESSAGES_PER_VERSION = 20

UNKNOWN_TO_KIO = {("ApiVersions", 5)}
"""Versions of Kafka 4.4, which kio 0.6.5 does not have; a broker of it judges them (`tests/kafka/test_broker_versions`)."""

TELEMETRY = (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY)
VERSIONS = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in (*APIS.values(), *TELEMETRY)
    for version in range(api.min_version, api.max_version + 1)
    if (api.name, version) not in UNKNOWN_TO_KIO
]


@pytest.fixture(autouse=True)
def telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `decode_request` know telemetry, which the embedded broker does not offer."""
    for api in TELEMETRY:
        monkeypatch.setitem(APIS, api.key, api)


def kio_class(api: AnyApi, version: int, kind: str) -> type[Any]:
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.{kind}")
    found: type[Any] = getattr(module, f"{api.name}{kind.title()}")
    return found


def to_kio(schema: Struct[Any], body: tuple[Any, ...], target: type[Any], version: int) -> Any:
    """The same message as kio's dataclass: its times are durations and dates, its error codes an enumeration."""
    ours = {field.name.removesuffix("_ms"): (field, value) for field, value in zip(schema.fields, body, strict=True)}
    values = {}
    for theirs in dataclasses.fields(target):
        field, value = ours[theirs.name]
        assert field.in_version(version), f"{target.__name__}.{theirs.name} is not in our version {version}"
        values[theirs.name] = _convert(field.type, value, theirs, version)
    present = {name for name, (field, _) in ours.items() if field.in_version(version)}
    assert present == set(values), f"{target.__name__} has other fields in version {version}"
    return target(**values)


def _convert(kind: Any, value: Any, theirs: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, Struct):
        return to_kio(kind, value, theirs.type, version)
    if isinstance(kind, Array) and isinstance(kind.of, Struct):
        element = next(option for option in _options(theirs.type) if _is_message(option))
        return tuple(to_kio(kind.of, item, element, version) for item in value)
    match theirs.metadata.get("kafka_type"):
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
        case "uuid":
            return None if value == bytes(16) else uuid.UUID(bytes=value)
    return value


def _is_message(option: Any) -> TypeGuard[type[Any]]:
    return isinstance(option, type) and dataclasses.is_dataclass(option)


def _options(hint: Any) -> list[Any]:
    """`hint` and everything within it: tuple[X, ...] | None → X among others."""
    return [hint, *(inner for argument in get_args(hint) for inner in _options(argument))]


def kio_bytes(message: Any, *, client_id: str | None, correlation_id: int) -> bytes:
    out = io.BytesIO()
    header = message.__header_schema__
    if header in (RequestHeader1, RequestHeader2):
        written = header(
            request_api_key=message.__api_key__,
            request_api_version=message.__version__,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    else:
        written = header(correlation_id=correlation_id)
    entity_writer(header)(out, written)
    entity_writer(type(message))(out, message)
    return out.getvalue()


def read_by_kio(target: type[Any], data: bytes) -> Any:
    _, header_size = entity_reader(target.__header_schema__)(data, 0)
    message, size = entity_reader(target)(data, header_size)
    assert header_size + size == len(data)
    return message


def without_size(buffers: list[Any]) -> bytes:
    data = b"".join(buffers)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_requests_are_those_of_kio(api: AnyApi, version: int) -> None:
    random = Random(f"{api.name}{version}")
    target = kio_class(api, version, "request")
    for number in range(MESSAGES_PER_VERSION):
        body = random_body(api.request, version, random)
        client_id = random.choice((None, "", "client-ä"))
        expected = to_kio(api.request, body, target, version)
        data = without_size(encode_request(api, version, number, client_id, body))
        assert data == kio_bytes(expected, client_id=client_id, correlation_id=number)
        assert read_by_kio(target, data) == expected
        assert decode_request(memoryview(data)) == (api, version, number, client_id, body)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_responses_are_those_of_kio(api: AnyApi, version: int) -> None:
    random = Random(f"{version}{api.name}")
    target = kio_class(api, version, "response")
    for number in range(MESSAGES_PER_VERSION):
        body = random_body(api.response, version, random)
        expected = to_kio(api.response, body, target, version)
        data = without_size(encode_response(api, version, number, body))
        assert data == kio_bytes(expected, client_id=None, correlation_id=number)
        assert read_by_kio(target, data) == expected
        assert decode_response(api, version, memoryview(data)) == (number, body)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_flexible_versions_start_where_those_of_kio_do(api: AnyApi) -> None:
    versions = [v for v in range(api.min_version, api.max_version + 1) if (api.name, v) not in UNKNOWN_TO_KIO]
    flexible = [v for v in versions if kio_class(api, v, "request").__flexible__]
    assert flexible == [v for v in versions if v >= api.first_flexible], "SaslHandshake has none"
