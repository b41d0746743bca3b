"""MemoryRecordsBuilder: how full a batch is, and where its bytes lie. Ids (tests/ids.md): MB8, MB9, MB12, MB13."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.accumulator.pool import BufferPool
from spark_producer.errors import RecordBatchError
from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns
from spark_producer.legacy_formats.batch_format import BatchFormat
from spark_producer.legacy_formats.builder import GROWTH, MemoryRecordsBuilder, grow_outside_the_pool
from spark_producer.legacy_formats.single_row import record_size
from spark_producer.record.batch_v2 import TimestampType
from spark_producer.record.codecs import Codec, Compressor
from tests.unit.record.builders import FORMATS, buffer, builder_of, every_format, header_of
from tests.unit.record.foreign_records import NOW, Row, decode


@pytest.mark.covers("MB8")
@every_format
def test_compression_ratio(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec)
    for _ in range(50):
        builder.append(NOW, b"key", b"value" * 20)
    uncompressed = builder.uncompressed_size
    size = len(builder.close())
    header = {2: 61, 1: 34 if codec else 0, 0: 26 if codec else 0}[magic]
    assert builder.uncompressed_size == uncompressed
    assert builder.compression_ratio == pytest.approx((size - header) / uncompressed)
    assert (builder.compression_ratio < 0.5) is (codec is not Codec.NONE)


@pytest.mark.covers("MB9")
@every_format
@pytest.mark.parametrize("ratio", [0.1, 1.0, 2.0])
def test_the_estimate_grows_and_is_exact_at_the_end(magic: int, codec: Codec, ratio: float) -> None:
    builder = builder_of(magic, codec, ratio=ratio)
    estimates = []
    for number in range(100):
        builder.append(NOW, b"key", b"%d" % number)
        estimates.append(builder.estimated_size)
    assert estimates == sorted(estimates)
    start = builder.estimated_size - int(builder.uncompressed_size * (1.0 if codec is Codec.NONE else ratio * 1.05))
    assert start == {2: 61, 1: 34 if codec else 0, 0: 26 if codec else 0}[magic]
    builder.close_for_appends()
    assert builder.estimated_size == len(builder.close())
    if codec is Codec.NONE:
        assert estimates[-1] == builder.estimated_size


@pytest.mark.covers("MB12")
@every_format
def test_a_write_limit_of_0_takes_one_record(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec, 0 if codec is Codec.NONE else 61, write_limit=0)
    assert not builder.is_full
    assert builder.fits(NOW, b"k", b"v" * 500)
    columns = RecordColumns(BinaryColumn(pa.array([b"v" * 500] * 3)), timestamps=NOW)
    assert builder.append_rows(ArrangedRows(columns, np.arange(3)), 0, 3) == 1
    assert builder.is_full
    assert not builder.fits(NOW, None, None)
    assert [row.value for row in decode(builder.close())] == [b"v" * 500]


@pytest.mark.covers("MB13")
@every_format
def test_a_batch_past_its_limit_is_full(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec, 100, write_limit=400)
    taken = 0
    while builder.fits(NOW, b"key", b"value"):
        assert not builder.is_full
        builder.append(NOW, b"key", b"value")
        taken += 1
    assert taken > 4
    assert builder.estimated_size <= 400
    builder.append(NOW, b"key", b"v" * 500)  # the caller may insist
    assert builder.is_full
    assert len(decode(builder.close())) == taken + 1


@pytest.mark.covers("MB13")
@every_format
def test_a_batch_that_reaches_its_limit_is_full(magic: int, codec: Codec) -> None:
    """To the byte: a record less is not, and a limit of one byte more is not reached."""
    reached = builder_of(magic, codec)
    for _ in range(3):
        reached.append(NOW, b"key", b"value")
    exact, larger = (builder_of(magic, codec, write_limit=reached.estimated_size + spare) for spare in (0, 1))
    for builder in (exact, larger):
        for _ in range(3):
            assert not builder.is_full
            builder.append(NOW, b"key", b"value")
    assert exact.is_full
    assert not larger.is_full


@pytest.mark.covers("MB13")
@every_format
def test_columns_fill_a_batch_like_single_records(magic: int, codec: Codec) -> None:
    values = [b"v" * (number % 50) for number in range(300)]
    rows = ArrangedRows(RecordColumns(BinaryColumn(pa.array(values)), timestamps=NOW), np.arange(300))
    singly, together = (builder_of(magic, codec, 1000, ratio=0.5, write_limit=2000) for _ in range(2))
    taken = 0
    while singly.fits(NOW, None, values[taken]):
        singly.append(NOW, None, values[taken])
        taken += 1
    following = together.append_rows(rows, 0, 300)
    if codec is Codec.NONE:
        assert following == taken
    else:  # a single record counts in full before it is taken, columns as they are expected to come out
        assert taken <= following <= taken + 3
    assert together.estimated_size <= 2000
    assert len(together.close()) <= 2000


@every_format
def test_a_growing_buffer_is_asked_for_and_handed_over(magic: int, codec: Codec) -> None:
    asked: list[tuple[int, int]] = []

    def grow(before: memoryview, size: int) -> memoryview:
        asked.append((len(before), size))
        larger = buffer(size)
        larger[: len(before)] = before
        return larger

    noise = np.random.default_rng(1).bytes(3000)
    builder = MemoryRecordsBuilder(
        buffer(1000),
        BatchFormat(magic=magic, timestamp_type=TimestampType.CREATE_TIME if magic else TimestampType.NONE),
        compressor=Compressor(codec),
        grow=grow,
    )
    builder.append(NOW, None, b"small")
    assert asked == []
    builder.append(NOW, None, noise)
    assert len(asked) == 1
    assert asked[0][0] == 1000
    assert 3000 < asked[0][1] < 3120
    assert [row.value for row in decode(builder.close())] == [b"small", noise]


@every_format
def test_a_buffer_grows_by_a_tenth_at_least_and_not_past_what_the_batch_may_have(magic: int, codec: Codec) -> None:
    asked: list[tuple[int, int]] = []

    def grow(before: memoryview, size: int) -> memoryview:
        asked.append((len(before), size))
        return grow_outside_the_pool(before, size)

    builder = builder_of(magic, codec, 500, write_limit=20_000, grow=grow)
    rows = ArrangedRows(RecordColumns(BinaryColumn(pa.array([b"v" * 20] * 2000)), timestamps=NOW), np.arange(2000))
    assert 0 < builder.append_rows(rows, 0, 2000) < 2000
    assert all(size >= int(before * GROWTH) for before, size in asked)
    assert len(asked) < 45, "and not for every row"
    assert asked[-1][1] <= 20_000 * GROWTH

    asked.clear()
    builder = builder_of(magic, codec, 500, write_limit=2000, grow=grow)
    large = ArrangedRows(RecordColumns(BinaryColumn(pa.array([b"v" * 700] * 3)), timestamps=NOW), np.arange(3))
    assert builder.append_rows(large, 0, 3) == 2
    assert asked[-1][1] <= 2000 * GROWTH, "the third row does not fit, so no memory is requested for it"


@every_format
def test_a_buffer_grows_within_the_account_of_a_pool(magic: int, codec: Codec) -> None:
    """The old buffer is released as soon as the new one is there, and another batch writes into it."""
    pool = BufferPool(20_000, 1000, lambda: 0.0)

    def grow(before: memoryview, size: int) -> memoryview | None:
        if (larger := pool.try_allocate(size)) is None:
            return None
        larger[: len(before)] = before
        before[:] = bytes([0xEE]) * len(before)
        pool.release(before)
        assert pool.available == pool.total - len(larger)
        return larger

    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    builder = MemoryRecordsBuilder(
        pool.allocate(1000, 0),
        BatchFormat(magic=magic, timestamp_type=kind),
        compressor=Compressor(codec),
        write_limit=15_000,
        grow=grow,
    )
    values = [b"%03d" % number * 30 for number in range(300)]
    rows = ArrangedRows(RecordColumns(BinaryColumn(pa.array(values)), timestamps=NOW), np.arange(300))
    taken = builder.append_rows(rows, 0, 300)
    assert 9000 < builder.uncompressed_size < 15_000, "until the pool cannot hold both buffers"
    assert builder.append_rows(rows, taken, 300) == taken
    assert [row.value for row in decode(builder.close())] == values[:taken]
    assert pool.available == pool.total - len(builder.buffer)
    pool.release(builder.buffer)
    assert pool.available == pool.total


@every_format
def test_a_batch_that_cannot_grow_is_full(magic: int, codec: Codec) -> None:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    options: dict[str, Any] = {
        "compressor": Compressor(codec),
        "ratio": 0.1,
        "write_limit": 4000,
        "grow": lambda *_: None,
    }
    builder = MemoryRecordsBuilder(buffer(1000), BatchFormat(magic=magic, timestamp_type=kind), **options)
    values = [b"v" * 50] * 100
    rows = ArrangedRows(RecordColumns(BinaryColumn(pa.array(values)), timestamps=NOW if magic else -1), np.arange(100))
    taken = builder.append_rows(rows, 0, 100)
    assert 800 < builder.uncompressed_size <= 1000
    assert builder.append_rows(rows, taken, 100) == taken
    with pytest.raises(RecordBatchError, match="does not fit, and the buffer cannot grow"):
        builder.append(NOW, None, b"v" * 500)
    assert [row.value for row in decode(builder.close())] == values[:taken]


@every_format
def test_what_does_not_pack_stays_as_it_is_where_there_is_no_memory(magic: int, codec: Codec) -> None:
    noise = np.random.default_rng(3).bytes(900)
    size = {0: 26 + (26 if codec else 0), 1: 34 + (34 if codec else 0), 2: 61 + 9}[magic] + len(noise)
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    batch_format = BatchFormat(magic=magic, timestamp_type=kind)
    spare = 20  # an upper bound of V2's record is asked for, and less than a codec needs for noise
    builder = MemoryRecordsBuilder(
        buffer(size + spare), batch_format, compressor=Compressor(codec), grow=lambda *_: None
    )
    builder.append(NOW, None, noise)
    builder.buffer = builder.buffer[:size]
    if magic < 2 and codec is not Codec.NONE:
        if codec is not Codec.SNAPPY:  # which packs the zeros before the noise
            for end in (builder.close_for_appends, builder.close, builder.close):
                with pytest.raises(RecordBatchError, match="compressed bytes do not fit"):
                    end()
        return
    assert [row.value for row in decode(builder.close())] == [noise]
    assert len(builder.close()) <= size
    if magic == 2:
        assert header_of(builder).codec == 0
    assert builder.compression_ratio == 1.0


@every_format
def test_a_batch_that_could_not_be_compressed_is_not_given_out(magic: int, codec: Codec) -> None:
    """The batch's header would say that the records are compressed. When there is memory again, it closes."""

    class Failing(Compressor):
        def compress(self, data: bytes | bytearray | memoryview) -> memoryview:
            if failures:
                raise failures.pop()
            return super().compress(data)

    failures = [MemoryError(), MemoryError()]
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    builder = MemoryRecordsBuilder(buffer(), BatchFormat(magic=magic, timestamp_type=kind), compressor=Failing(codec))
    for number in range(20):
        builder.append(NOW if magic else -1, b"k", b"v%d" % number * 20)
    if codec is not Codec.NONE:
        for end in (builder.close, builder.close_for_appends):
            with pytest.raises(MemoryError):
                end()
    assert [row.value for row in decode(builder.close())] == [b"v%d" % number * 20 for number in range(20)]


shape = st.tuples(
    st.integers(-1, 2**41),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMATS), st.lists(shape, min_size=1, max_size=12), st.integers(0, 900), st.integers(0, 2**40))
def test_fits_is_exact_for_any_records(
    magic_codec: tuple[int, Codec], records: list[Any], limit: int, base_offset: int
) -> None:
    magic, codec = magic_codec
    builder = builder_of(magic, codec, 100, base_offset=base_offset, write_limit=limit)
    expected: list[Row] = []
    for timestamp, key, value, pairs in records:
        headers = tuple(pairs) if magic == 2 else ()
        fitted, before = builder.fits(timestamp, key, value, headers), builder.estimated_size
        uncompressed = builder.uncompressed_size
        assert fitted is (builder.records_count == 0) or before <= limit
        builder.append(timestamp, key, value, headers)
        size = builder.uncompressed_size - uncompressed
        if builder.records_count > 1:
            assert fitted is (before < limit and before + size <= limit)
        expected.append(Row(base_offset + len(expected), timestamp if magic else -1, key, value, headers))
    found = decode(builder.close())
    assert found == expected


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("length", [0, 40, 55, 60, 63, 64, 65, 8180, 8191, 8192])
def test_the_size_of_a_single_record_is_exact_at_every_width(magic: int, length: int) -> None:
    builder = builder_of(magic, size=20_000)
    for key, headers in ((None, ()), (b"k" * 64, (("h" * 64, b""), ("n", None)) if magic == 2 else ())):
        before, offset = builder.uncompressed_size, builder.records_count
        builder.append(NOW + 200 * offset, key, b"v" * length, headers)
        size = record_size(magic, 200 * offset, offset, key, b"v" * length, headers)
        assert builder.uncompressed_size - before == size
