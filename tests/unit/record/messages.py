"""V0 and V1 messages for tests, built from the layout alone, so that any field can be wrong."""

from __future__ import annotations

import struct
import zlib

from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.lz4_frame import with_v0_checksum


def message(
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp: int = 1000,
    attributes: int = 0,
    extra: bytes = b"",
) -> bytes:
    """One message; `extra` follows its value."""
    body = struct.pack(">bB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    body += extra
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    magic: int, offset: int, inner: bytes, codec: Codec, *, timestamp: int = 1000, attributes: int = 0
) -> bytes:
    """A wrapper message around `inner`."""
    packed = bytes(Compressor(codec).compress(inner))
    if codec is Codec.LZ4 and magic == 0:
        packed = with_v0_checksum(packed)
    return message(magic, offset, None, packed, timestamp=timestamp, attributes=attributes | codec)


def with_crc(data: bytes) -> bytes:
    """`data`, one message, with the checksum that fits it."""
    return data[:12] + struct.pack(">I", zlib.crc32(data[16:])) + data[16:]
