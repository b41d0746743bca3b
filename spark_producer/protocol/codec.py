"""Frames, which hold the size, header and body of a request or response (flexible headers: KIP-482).

Request header 1 is api key, version, correlation id and client id; 2 adds a tag section, and keeps the client id's
int16 length. Response header 0 is the correlation id; 1 adds a tag section. A flexible version has headers 2 and 1,
except that the response of ApiVersions always has 0: the client may have guessed its version wrongly.
"""

from __future__ import annotations

import struct
from typing import Any, Generic, NamedTuple

from spark_producer.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from spark_producer.protocol.apis import API_VERSIONS, APIS, AnyApi, Api, RequestBody, ResponseBody
from spark_producer.protocol.fields import Buffer
from spark_producer.protocol.reader import read_body, skip_tags
from spark_producer.protocol.writer import ByteSink, write_body

_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhih")
_NO_TAGS = b"\0"

MAX_REQUEST_ELEMENTS = 50_000
"""Maximum number of elements in all arrays of one request: five times the partitions of a large broker. This bounds the cost of
decoding a request: some 20 MB, and a tenth of a second."""


class RequestFrame(NamedTuple, Generic[RequestBody, ResponseBody]):
    """A request as a broker reads it; `body` is the API's request message."""

    api: Api[RequestBody, ResponseBody]
    version: int
    correlation_id: int
    client_id: str | None
    body: RequestBody


def encode_request(
    api: Api[RequestBody, ResponseBody], version: int, correlation_id: int, client_id: str | None, body: RequestBody
) -> list[Buffer]:
    """Return the frame of a request, its size included, as buffers for `sendmsg`.

    Payloads (`records`) are in the list as the same objects as in `body`.

    Raises:
        LocalProtocolError: The API has no such version here, or `body` does not fit it.
    """
    _check_version(api, version)
    name = b"" if client_id is None else client_id.encode()
    sink = ByteSink()
    sink.head += bytes(_SIZE.size)
    sink.head += _REQUEST_HEADER.pack(api.key, version, correlation_id, -1 if client_id is None else len(name))
    sink.head += name
    flexible = version >= api.first_flexible
    if flexible:
        sink.head += _NO_TAGS
    write_body(api.request, version, flexible, body, sink)
    return _framed(sink)


def encode_response(
    api: Api[RequestBody, ResponseBody], version: int, correlation_id: int, body: ResponseBody
) -> list[Buffer]:
    """Return the frame of a response, its size included; payloads are passed by reference as in `encode_request`.

    Raises:
        LocalProtocolError: The API has no such version here, or `body` does not fit it.
    """
    _check_version(api, version)
    sink = ByteSink()
    sink.head += bytes(_SIZE.size)
    sink.head += _SIZE.pack(correlation_id)
    if _response_header_has_tags(api, version):
        sink.head += _NO_TAGS
    write_body(api.response, version, version >= api.first_flexible, body, sink)
    return _framed(sink)


def decode_request(frame: memoryview) -> RequestFrame[Any, Any]:
    """Return the request in `frame`, which starts after the size; payloads are slices of it.

    Bytes after the body are ignored: librdkafka ends a Metadata request for all topics with three of them.

    Raises:
        UnsupportedVersion: The API or version is not supported here; has `api_key`, `version`, `correlation_id`.
        RemoteProtocolError: The bytes are not a request, or one of more than `MAX_REQUEST_ELEMENTS`.
    """
    frame = memoryview(frame).cast("B")
    try:
        key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
    except struct.error as error:
        raise RemoteProtocolError(f"a request header needs 10 bytes, the frame has {len(frame)}") from error
    api = APIS.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        what = f"{api.name} version {version}" if api else f"API {key}"
        details = {"api_key": key, "version": version, "correlation_id": correlation_id}
        raise UnsupportedVersion(f"{what} is not supported here", **details)
    client_id, position = _read_client_id(frame, _REQUEST_HEADER.size, length)
    flexible = version >= api.first_flexible
    if flexible:
        position = _skip_header_tags(frame, position)
    body = read_body(api.request, version, flexible, frame, position, strict=False, max_elements=MAX_REQUEST_ELEMENTS)
    return RequestFrame(api, version, correlation_id, client_id, body)


def decode_response(
    api: Api[RequestBody, ResponseBody], version: int, frame: memoryview, *, strict: bool = True
) -> tuple[int, ResponseBody]:
    """Return (correlation id, body) of the response in `frame`, which starts after the size; payloads are slices of it.

    Unless `strict`, bytes after the body are ignored.

    Raises:
        LocalProtocolError: The API has no such version here.
        RemoteProtocolError: The bytes are not such a response.
    """
    _check_version(api, version)
    frame = memoryview(frame).cast("B")
    correlation_id = correlation_id_of(frame)
    position = _SIZE.size
    if _response_header_has_tags(api, version):
        position = _skip_header_tags(frame, position)
    flexible = version >= api.first_flexible
    return correlation_id, read_body(api.response, version, flexible, frame, position, strict=strict)


def correlation_id_of(frame: memoryview) -> int:
    """Return the correlation id of a response, which can be read before its version is known.

    Raises:
        RemoteProtocolError: The frame is too short for it.
    """
    if len(frame) < _SIZE.size:
        raise RemoteProtocolError(f"a response needs 4 bytes of correlation id, the frame has {len(frame)}")
    correlation_id: int = _SIZE.unpack_from(frame)[0]
    return correlation_id


def _framed(sink: ByteSink) -> list[Buffer]:
    buffers, size = sink.buffers(), sink.size - _SIZE.size
    if size > 0x7FFFFFFF:
        raise LocalProtocolError(f"a frame of {size} bytes cannot be sent: its size is an int32")
    _SIZE.pack_into(buffers[0], 0, size)  # the first piece always belongs to the sink
    return buffers


def _check_version(api: AnyApi, version: int) -> None:
    if not api.min_version <= version <= api.max_version:
        raise LocalProtocolError(
            f"{api.name} version {version} is not supported here, only {api.min_version} to {api.max_version}"
        )


def _response_header_has_tags(api: AnyApi, version: int) -> bool:
    return version >= api.first_flexible and api.key != API_VERSIONS.key


def _read_client_id(frame: memoryview, position: int, length: int) -> tuple[str | None, int]:
    if length == -1:
        return None, position
    if not 0 <= length <= len(frame) - position:
        raise RemoteProtocolError(f"the client id claims {length} bytes, {len(frame) - position} are left")
    end = position + length
    try:
        return str(frame[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"the client id is not UTF-8: {error}") from error


def _skip_header_tags(frame: memoryview, position: int) -> int:
    try:
        return skip_tags(frame, position, MAX_REQUEST_ELEMENTS)
    except IndexError as error:
        raise RemoteProtocolError("the frame ends within the tags of its header") from error
