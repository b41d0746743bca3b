"""Fetched batches as the rows of a range: every format in one log, cuts at both ends, damage."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest
import zstandard

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.decoding import FetchedBatches, decode
from spark_producer.consumer.settings import ALL_COLUMNS
from spark_producer.errors import ConfigError, CorruptRecord
from spark_producer.protocol.messages import FetchAbortedTransaction, FetchPartitionResponse
from spark_producer.record import lz4_frame
from spark_producer.record.codecs import Codec
from spark_producer.record.control import ControlType
from tests.unit.consumer.fetcher_harness import batch, of
from tests.unit.record import control_batches
from tests.unit.record.messages import message, wrapper
from tests.unit.record.test_reading import foreign_batch, own_batch

MIXED = b"".join(
    [
        message(0, 0, b"k", b"0"),
        message(1, 1, None, b"1"),
        wrapper(0, 3, message(0, 2, None, b"2") + message(0, 3, None, b"3"), Codec.GZIP),
        wrapper(1, 5, message(1, 0, None, b"4") + message(1, 1, None, b"5"), Codec.LZ4),
        foreign_batch([(None, b"6", []), (None, b"7", [("h", b"x")])], base_offset=6),
        foreign_batch([(None, b"8", []), (None, b"9", [])], base_offset=8, codec=Codec.GZIP),
        message(1, 10, None, b"10"),
        foreign_batch([(None, b"11", [])], base_offset=11, codec=Codec.SNAPPY),
    ]
)
END = 12


def fetched(data: bytes, start: int = 0, end: int = END, **fields: Any) -> FetchedBatches:
    row = FetchPartitionResponse(records=memoryview(data), **fields)
    return FetchedBatches.from_response(of(0, start, end), row, first=True)


def rows(found: FetchedBatches, columns: frozenset[str] = frozenset(ALL_COLUMNS)) -> list[dict[str, Any]]:
    return [row for batch in decode(found, columns, check_crcs=True) for row in batch.to_pylist()]


@pytest.mark.covers("RD4")
def test_all_formats_in_one_log_cut_anywhere() -> None:
    for start, end in itertools.combinations(range(END + 1), 2):
        found = fetched(MIXED, start, end)
        assert end <= found.next_offset <= END
        read = rows(found)
        assert [row["offset"] for row in read] == list(range(start, end))
        assert [row["value"] for row in read] == [b"%d" % offset for offset in range(start, end)]
        assert [row["timestamp_type"] for row in read] == [-1 if row["offset"] in (0, 2, 3) else 0 for row in read]


@pytest.mark.covers("RD17")
@pytest.mark.parametrize("bounds", [(0, 2), (1, 2), (0, 1), (-5, 9)])
def test_columns_are_those_that_are_named_whether_rows_are_cut_or_not(bounds: tuple[int, int]) -> None:
    for columns in (frozenset({"value"}), frozenset({"key", "offset"}), frozenset[str]()):
        found = list(decode(fetched(batch(0, 2), *bounds), columns, check_crcs=True))
        assert all(frozenset(each.schema.names) == columns for each in found)
        assert sum(each.num_rows for each in found) == min(bounds[1], 2) - max(bounds[0], 0)


@pytest.mark.covers("RD5", "RD6")
def test_aborted_transactions_and_markers_are_progress_without_rows() -> None:
    data = control_batches.batch(0, 7) + batch(1) + control_batches.marker(2, 7, ControlType.ABORT)
    found = fetched(data, aborted_transactions=(FetchAbortedTransaction(7, 0),))
    assert found.next_offset == 3
    assert [row["offset"] for row in rows(found)] == [1]
    assert rows(fetched(data[-len(control_batches.marker(2, 7, ControlType.ABORT)) :], 2)) == []


@pytest.mark.covers("RD6")
def test_an_empty_batch_that_compaction_left_is_progress_without_rows() -> None:
    empty = control_batches.batch(5, 7, attributes=0, body=b"", records=0)
    found = fetched(empty, 5)
    assert (found.next_offset, rows(found)) == (6, [])


def test_damage_names_its_place_after_the_rows_before_it() -> None:
    data = bytearray(batch(0, 2) + batch(2, 2))
    data[len(batch(0, 2)) + 17] ^= 1  # of the checksum
    found: list[Any] = []
    with pytest.raises(CorruptRecord, match=r"reading topic 't', partition 0 failed at offset 2: .*CRC") as caught:  # noqa: PT012
        for each in decode(fetched(bytes(data)), frozenset({"offset"}), check_crcs=True):
            found += each.column("offset").to_pylist()
    assert found == [0, 1]
    assert caught.value.__dict__ == {"offset": 2, "topic_partition": TopicPartition("t", 0)}
    unchecked = decode(fetched(bytes(data)), frozenset({"offset"}), check_crcs=False)
    assert sum(each.num_rows for each in unchecked) == 4


def test_a_missing_codec_is_named_with_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    data = foreign_batch([(None, b"v" * 1000, [])], codec=Codec.LZ4)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    lz4_frame.library.cache_clear()
    with pytest.raises(ConfigError, match=r"reading topic 't', partition 0 failed: .*pip install lz4") as caught:
        rows(fetched(data))
    assert "records compressed with lz4 cannot be read: the package lz4 is missing" in str(caught.value)
    assert "another compression.type" not in str(caught.value), "a reader cannot choose it"


@pytest.mark.covers("RD11")
@pytest.mark.parametrize("declared", [True, False])
def test_a_batch_that_unpacks_to_a_gigabyte_is_a_clear_error(declared: bool) -> None:
    size, piece = 1 << 30, bytes(1 << 20)
    packer = zstandard.ZstdCompressor().compressobj(size=size if declared else -1)
    body = b"".join(packer.compress(piece) for _ in range(size // len(piece))) + packer.flush()
    assert len(body) < 1 << 20
    data = own_batch(body, attributes=Codec.ZSTD, base_offset=3)
    with pytest.raises(CorruptRecord, match=r"partition 0 failed at offset 3: .*more than .*134217728"):
        rows(fetched(data, 3))


def backwards() -> list[bytes]:
    """Bytes whose offsets do not increase: batches that overlap, that go backwards, and messages that come twice."""
    return [
        batch(0, 4) + batch(2, 4),
        batch(0, 2) + batch(8, 2) + batch(2, 2),
        message(1, 0, None, b"0") + message(1, 1, None, b"1") + message(1, 1, None, b"1"),
        batch(0, 2) + message(1, 1, None, b"1"),
    ]


@pytest.mark.parametrize("data", backwards(), ids=["overlap", "backwards", "messages", "formats"])
def test_offsets_that_do_not_increase_are_damage_and_not_rows_twice(data: bytes) -> None:
    with pytest.raises(CorruptRecord, match=r"partition 0 failed at offset \d: record batch at offset \d follows"):
        fetched(data)


def test_batches_after_the_end_of_a_range_are_not_decoded() -> None:
    found = fetched(batch(0, 2) + batch(2, 2) + batch(4, 2) + b"\xff" * 20, end=3)
    assert (found.next_offset, len(found.data)) == (4, 2 * len(batch(0, 2)))
    assert [row["offset"] for row in rows(found)] == [0, 1, 2]
