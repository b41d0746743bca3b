"""A second reader for the fuzzer: one record after the other, in plain Python, straight from the layouts of the formats.

It knows no columns, so that what it and the reader agree on is not one mistake made once. Anything wrong is a ValueError.
"""

from __future__ import annotations

import re
import struct
import zlib

from crc32c import crc32c

from spark_producer.errors import CorruptRecord
from spark_producer.record import codecs
from spark_producer.record.reading import ConsumerRecord

LARGEST = (1 << 63) - 1


def _as_java_reads(text: bytes) -> str:
    """UTF-8 with U+FFFD for what is none; a surrogate, whole or cut off, is one fault to Java, and several to Python."""
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xff", text).decode(errors="replace")


def read_plainly(data: bytes, *, verify_crc: bool, limit: int) -> tuple[list[ConsumerRecord], bool]:
    """The records before the first damage, and whether there is any."""
    found: list[ConsumerRecord] = []
    try:
        position = 0
        while len(data) - position >= 17:
            size, magic = struct.unpack_from(">8xi4xb", data, position)
            if magic not in (0, 1, 2) or size < {0: 14, 1: 22, 2: 49}[magic]:
                raise ValueError
            end = position + 12 + size
            if end > len(data):
                break
            (_read_v2 if magic == 2 else _read_message)(data[position:end], found, verify_crc, limit)
            position = end
    except (ValueError, IndexError, struct.error, CorruptRecord):
        return found, True
    return found, False


def _read_v2(batch: bytes, found: list[ConsumerRecord], verify_crc: bool, limit: int) -> None:
    base, _, _, _, crc, attributes, last, first_time, max_time, _, _, _, count = struct.unpack_from(
        ">qiibIhiqqqhii", batch
    )
    if verify_crc and crc != crc32c(batch[21:]):
        raise ValueError
    if count < 0 or last < 0 or base < 0 or base + last > LARGEST:
        raise ValueError
    body = bytes(codecs.decompress(attributes & 7, batch[61:], limit)) if attributes & 7 else batch[61:]
    if attributes & 0x20:
        if count and struct.unpack_from(">hh", _up_to_key(body, 0)[3] or b"")[0] < 0:
            raise ValueError
        return
    at, previous = 0, -1
    for _ in range(count):
        at, time_delta, delta, key, value, headers = _record(body, at)
        time = first_time + time_delta
        if not previous < delta <= last or not -LARGEST - 1 <= time <= LARGEST:
            raise ValueError
        texts = tuple((_as_java_reads(name), content) for name, content in headers)
        found.append(ConsumerRecord(base + delta, max_time if attributes & 8 else time, key, value, texts))
        previous = delta
    if at != len(body):
        raise ValueError


RecordFields = tuple[int, int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def _up_to_key(body: bytes, at: int) -> tuple[int, int, int, bytes | None, int]:
    size, at = _varint(body, at, 32)
    if size < 0 or at + size > len(body):
        raise ValueError
    end = at + size
    record = body[:end]
    time_delta, at = _varint(record, at + 1, 64)
    delta, at = _varint(record, at, 32)
    key, at = _sized(record, at)
    return end, time_delta, delta, key, at


def _record(body: bytes, at: int) -> RecordFields:
    end, time_delta, delta, key, at = _up_to_key(body, at)
    record = body[:end]
    value, at = _sized(record, at)
    count, at = _varint(record, at, 32)
    if count < 0:
        raise ValueError
    headers = []
    for _ in range(count):
        name, at = _sized(record, at)
        content, at = _sized(record, at)
        if name is None:
            raise ValueError
        headers.append((name, content))
    if at != end:
        raise ValueError
    return end, time_delta, delta, key, value, headers


def _varint(data: bytes, at: int, bits: int) -> tuple[int, int]:
    raw = place = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << place
        place += 7
        if byte < 0x80:
            break
        if place > bits:
            raise ValueError
    if raw >> bits:
        raise ValueError
    return (raw >> 1) ^ -(raw & 1), at


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at, 32)
    if size == -1:
        return None, at
    if size < 0 or at + size > len(data):
        raise ValueError
    return data[at : at + size], at + size


def _read_message(data: bytes, found: list[ConsumerRecord], verify_crc: bool, limit: int) -> None:
    offset, magic, attributes, time, key, value = _message(data, verify_crc)
    codec = attributes & 7
    if not codec:
        found.append(ConsumerRecord(offset, time, key, value, ()))
        return
    if value is None or codec == 4:
        raise ValueError
    content = bytes(codecs.decompress(codec, value, limit, check_lz4_header=magic == 1))
    inner, at = [], 0
    while at < len(content):
        size = struct.unpack_from(">8xi", content, at)[0]
        if size < 14 or at + 12 + size > len(content):
            raise ValueError
        inner.append(_message(content[at : at + 12 + size], verify_crc))
        at += 12 + size
    offsets = [each[0] for each in inner]
    if not inner or offsets != sorted(set(offsets)) or any(each[1] != magic or each[2] & 7 for each in inner):
        raise ValueError
    if magic == 1 and 0 < offset < offsets[-1]:
        raise ValueError
    base = offset - offsets[-1] if magic == 1 and offset else 0
    for relative, _, _, own_time, own_key, own_value in inner:
        shown = time if magic == 1 and attributes & 8 else own_time
        found.append(ConsumerRecord(base + relative, shown, own_key, own_value, ()))


def _message(data: bytes, verify_crc: bool) -> tuple[int, int, int, int, bytes | None, bytes | None]:
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbB", data)
    if offset < 0 or magic not in (0, 1) or (verify_crc and zlib.crc32(data[16:]) != crc):
        raise ValueError
    time, at = (struct.unpack_from(">q", data, 18)[0], 26) if magic else (-1, 18)
    fields: list[bytes | None] = []
    for _ in range(2):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < -1 or at + max(size, 0) > len(data):
            raise ValueError
        fields.append(None if size == -1 else data[at : at + size])
        at += max(size, 0)
    if at != len(data):
        raise ValueError
    return offset, magic, attributes, time, fields[0], fields[1]
