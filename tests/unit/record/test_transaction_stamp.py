"""The stamp of a transaction on an encoded batch, and batches of a few records."""

from __future__ import annotations

import pytest

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import CONTROL_BIT, batch_attributes, check_crc, read_header, write_header
from spark_producer.record.codecs import Codec
from spark_producer.record.reading import read_records
from spark_producer.record.small_batch import encode_few
from spark_producer.record.transaction_stamp import stamp

ROWS = [(b"a", b"1"), (b"b", None), (b"", b"")]


def rows_of(data: bytearray) -> list[tuple[int, int, bytes | None, bytes | None]]:
    found = [row for batch in read_records(data) for row in batch.to_pylist()]
    return [(row["offset"], row["timestamp"], row["key"], row["value"]) for row in found]


def test_few_records_are_read_as_they_were_written() -> None:
    assert rows_of(encode_few(ROWS, 17)) == [(0, 17, b"a", b"1"), (1, 17, b"b", None), (2, 17, b"", b"")]


def test_a_stamp_changes_producer_sequence_and_bit_and_nothing_else() -> None:
    batch = encode_few(ROWS, 17)
    write_header(
        memoryview(batch),
        records_count=3,
        base_timestamp=17,
        max_timestamp=17,
        attributes=batch_attributes(codec=Codec.GZIP),
    )
    before = bytes(batch)
    stamped = stamp(batch, 5_000_000_000, 7, 2**31 - 1)
    header, old = read_header(stamped), read_header(before)
    check_crc(header, memoryview(stamped))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5_000_000_000, 7, 2**31 - 1)
    assert header.is_transactional
    assert header.codec == Codec.GZIP
    same = {"crc": 0, "attributes": 0, "producer_id": 0, "producer_epoch": 0, "base_sequence": 0}
    assert header._replace(**same) == old._replace(**same)
    assert stamped[61:] == before[61:]
    assert batch == before


def test_what_is_not_one_batch_of_rows_is_not_stamped() -> None:
    batch = encode_few(ROWS, 17)
    control = bytearray(batch)
    write_header(memoryview(control), records_count=3, base_timestamp=17, max_timestamp=17, attributes=CONTROL_BIT)
    gaps = bytearray(batch)
    write_header(memoryview(gaps), records_count=3, base_timestamp=17, max_timestamp=17, last_offset_delta=5)
    for bad in (batch + batch, batch[:-1], control, gaps, b""):
        with pytest.raises(CorruptRecord):
            stamp(bad, 1, 0, 0)
