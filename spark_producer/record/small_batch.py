"""Encodes a V2 batch of a few records with keys and values, for control records and the like; rows are not encoded here."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.kernel.varint import encode_varint
from spark_producer.record.batch_v2 import HEADER_SIZE, write_header


def encode_few(records: Sequence[tuple[bytes, bytes | None]], timestamp: int) -> bytearray:
    """Return a batch of (key, value) records, all of one time (milliseconds since 1970), without producer or compression."""
    batch = bytearray(HEADER_SIZE)
    for number, (key, value) in enumerate(records):
        body = b"".join(
            (
                b"\x00",
                encode_varint(0),
                encode_varint(number),
                encode_varint(len(key)),
                key,
                encode_varint(-1 if value is None else len(value)),
                value or b"",
                encode_varint(0),
            )
        )
        batch += encode_varint(len(body)) + body
    write_header(memoryview(batch), records_count=len(records), base_timestamp=timestamp, max_timestamp=timestamp)
    return batch
