"""Batches as kafka-python decodes them, in the shape that the tests of the formats compare.

Owns: the shape. Must not know: who wrote the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka.record.memory_records import MemoryRecords

NOW = 1_700_000_000_000


class Row(NamedTuple):
    """One record as a reader sees it; `timestamp` -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def decode(data: bytes | memoryview) -> list[Row]:
    """All records of all batches or messages in `data`, their checksums verified."""
    found: list[Row] = []
    reader = MemoryRecords(bytes(data))
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        found += [
            Row(
                record.offset,
                -1 if record.timestamp is None else record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for record in batch
        ]
    return found


def rows_of_every_shape(magic: int, base_offset: int = 0) -> Sequence[Row]:
    """Null, empty and long keys and values, times that go back; headers where the format has them."""
    keys = (b"key", None, b"", bytes(range(256)))
    values = (b"value", b"", None, b"\xff\x00" * 4000)
    headers: tuple[tuple[tuple[str, bytes | None], ...], ...] = ((), (("a", b"1"), ("a", None)), (("ü", b""),))
    return [
        Row(
            base_offset + number,
            NOW + (number * 7919) % 1000 if magic else -1,
            keys[number % 4],
            values[(number // 4) % 4],
            headers[number % 3] if magic == 2 else (),
        )
        for number in range(96)
    ]
