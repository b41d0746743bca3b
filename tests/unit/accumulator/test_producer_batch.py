"""One batch: its states, the results of its records, and being cut in two. Ids (tests/ids.md): PB, RA19, RA21, RA31, FU, MD."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from spark_producer.accumulator import (
    BatchResult,
    BatchState,
    PartitionQueue,
    ProducerBatch,
    RecordFuture,
    RecordMetadata,
    TableResult,
)
from spark_producer.accumulator.row_origins import RowNumbers, RowRange
from spark_producer.errors import IllegalState, RecordsRefused
from spark_producer.kernel import ArrangedRows
from spark_producer.metrics import OffsetRange
from spark_producer.record.batch_v2 import read_header
from spark_producer.record.columns import read_columns
from spark_producer.record.splitting import cut_in_half
from tests.fakes.accumulator_fakes import OTHER, TP, accumulator_fakes, rows_of, values_of

REFUSED = ValueError("refused")


def batch_of(*values: bytes | None, size: int = 4096, times: list[int] | int = 5000) -> ProducerBatch:
    rows = rows_of(values, times)
    made = ProducerBatch(PartitionQueue(TP), memoryview(bytearray(size)), 3, 0.0, rows.timestamp_at(0))
    assert made.append(rows, 0, len(values)) == len(values)
    made.closed = True
    return made


def single(batch: ProducerBatch, index: int, seen: list[object] | None = None) -> RecordFuture:
    """The future of the record at this index."""
    callback = None if seen is None else lambda found, error: seen.append((index, found.offset, error))
    batch.result = batch.result or BatchResult(TP)
    return batch.result.add(index, 7000 + index, callback)


@pytest.mark.covers("PB1", "PB2")
def test_an_aborted_batch_fails_its_records_and_cannot_be_aborted_twice() -> None:
    batch = batch_of(b"a")
    waits = single(batch, 0)
    batch.abort(REFUSED)
    assert (batch.state, waits.exception(0)) == (BatchState.ABORTED, REFUSED)
    with pytest.raises(IllegalState, match="has aborted was aborted"):
        batch.abort(REFUSED)


@pytest.mark.covers("PB3")
def test_a_batch_that_has_succeeded_cannot_end_again() -> None:
    batch = batch_of(b"a")
    assert batch.complete(0, -1)
    for again in (lambda: batch.complete(0, -1), lambda: batch.fail(REFUSED), lambda: batch.abort(REFUSED)):
        with pytest.raises(IllegalState, match="succeeded"):
            again()


@pytest.mark.covers("PB4")
@pytest.mark.parametrize("end", [ProducerBatch.fail, ProducerBatch.abort])
def test_after_the_end_a_late_answer_changes_nothing(end: object) -> None:
    batch = batch_of(b"a")
    waits = single(batch, 0)
    end(batch, REFUSED)  # type: ignore[operator]
    state = batch.state
    assert (batch.complete(9, -1), batch.fail(KeyError())) == (False, False)
    assert (batch.state, waits.exception(0)) == (state, REFUSED)


@pytest.mark.covers("PB9")
def test_a_closed_batch_takes_no_rows() -> None:
    with pytest.raises(IllegalState, match="closed batch of topic 'orders', partition 0"):
        batch_of(b"a").append(rows_of([b"b"]), 0, 1)


@pytest.mark.covers("MD1", "IN2")
@pytest.mark.parametrize(("offset", "log_append_time"), [(40, -1), (40, 99), (-1, -1)])
def test_callbacks_run_in_order_before_any_future_of_the_batch_is_done(offset: int, log_append_time: int) -> None:
    batch = batch_of(b"a", b"b", b"c")
    seen: list[object] = []
    waits = [single(batch, index, seen) for index in range(3)]
    batch.complete(offset, log_append_time)
    expected = [offset + index if offset >= 0 else -1 for index in range(3)]
    assert seen == [(index, expected[index], None) for index in range(3)]
    times = [7000 + index if log_append_time < 0 else log_append_time for index in range(3)]
    assert [one.result(0) for one in waits] == [
        RecordMetadata("orders", 0, *found) for found in zip(expected, times, strict=True)
    ]


@pytest.mark.covers("PB10")
def test_complaints_reach_their_records_and_callback_and_future_agree() -> None:
    batch = batch_of(b"a", b"b", b"c")
    seen: list[tuple[int, int, Exception]] = []
    waits = [single(batch, index, seen) for index in range(3)]  # type: ignore[arg-type]
    batch.fail(RecordsRefused("INVALID_RECORD", code=87, records={1: "no key"}, rows={}))
    assert [one.exception(0) for one in waits] == [error for _, _, error in seen]
    assert ["rejected the record: no key" in str(error) for _, _, error in seen] == [False, True, False]
    assert all(error.code == 87 for _, _, error in seen)  # type: ignore[attr-defined]


@pytest.mark.covers("FU2")
def test_a_table_is_done_with_its_last_run_and_knows_ranges_without_gaps() -> None:
    table = TableResult()
    for _ in range(4):
        table.expect()
    table.written(TP, 0, 10)
    table.written(TP, 15, 5)
    table.written(OTHER, 7, 1)
    table.no_more()
    assert not table.future.done()
    table.written(TP, 10, 5)
    found = table.future.result(0)
    assert found.records == 21
    assert found.ranges == {TP: (OffsetRange(0, 19, 20),), OTHER: (OffsetRange(7, 7, 1),)}


@pytest.mark.covers("FU2")
def test_ranges_of_a_table_show_where_others_wrote_and_leave_out_what_is_unknown() -> None:
    table = TableResult()
    for offset in (0, 10, -1):
        table.expect()
        table.written(TP, offset, 5)
    table.no_more()
    assert table.future.result(0).ranges == {TP: (OffsetRange(0, 4, 5), OffsetRange(10, 14, 5))}
    assert table.future.result(0).records == 15


@pytest.mark.covers("FU2")
def test_the_first_error_of_a_table_is_its_result_once_nothing_is_under_way() -> None:
    table = TableResult()
    run = RowRange(table, 0, RowNumbers(0, 3))
    for _ in range(2):
        table.expect()
    table.failed(REFUSED, run)
    table.no_more()
    assert not table.future.done()
    table.failed(KeyError("later"), run)
    assert table.future.exception(0) is REFUSED


# --- cut in two -----------------------------------------------------------------------------------------------------


@pytest.mark.covers("RA19", "PB6")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=2, max_size=200),
    st.integers(0, 2**40),
    st.randoms(use_true_random=False),
)
def test_both_halves_are_what_an_encoder_would_have_made(
    values: list[bytes | None], base: int, choose: random.Random
) -> None:
    times = [base + choose.choice((0, 1, 70, -3, 100_000)) for _ in values]
    times = [max(0, time) for time in times]
    batch = batch_of(*values, size=1 << 16, times=times)
    tail = batch.split()
    halves = [(batch, values[: batch.records_count], times[: batch.records_count])]
    batch.write_header()
    assert values_of(batch) == values[: batch.records_count]
    tail.write_header()
    halves.append((tail, values[batch.records_count :], times[batch.records_count :]))
    assert values_of(tail) == halves[1][1]
    assert batch.records_count + tail.records_count == len(values)
    for half, _, found in halves[1:]:
        header = read_header(half.data)
        assert (header.max_timestamp, header.last_offset_delta + 1) == (max(found), len(found))
        decoded = list(MemoryRecords(bytes(half.data)).next_batch())
        assert [record.timestamp for record in decoded] == found
        assert [record.offset for record in decoded] == list(range(len(found)))


@pytest.mark.covers("RA19")
def test_the_halves_are_about_equal_and_the_cut_leaves_the_first_in_place() -> None:
    batch = batch_of(*[b"v" * 50] * 20)
    before = bytes(batch.data)
    tail = batch.split()
    assert (batch.records_count, tail.records_count) == (10, 10)
    assert bytes(batch.data)[61:] == before[61 : len(batch.data)]
    assert batch.resent
    assert tail.resent


@pytest.mark.covers("RA31")
def test_a_cut_always_leaves_a_record_on_each_side() -> None:
    for sizes in ((1, 1), (1000, 1), (1, 1000)):
        batch = batch_of(*(b"x" * size for size in sizes))
        assert (batch.split().records_count, batch.records_count) == (1, 1)


@pytest.mark.covers("PB5")
def test_a_cut_leaves_attributes_timestamps_keys_and_headers_alone() -> None:
    """All bytes before and after the offset delta stay the same; only the lengths may shrink."""
    records = [b"\x00" + delta + b"\x02k\x04vv\x02\x02h\x02x" for delta in (b"\x00\x00", b"\x02\x02", b"\xc8\x01\x04")]
    data = bytearray().join(bytes([2 * len(record)]) + record for record in records)
    first, cut, end, head_latest, tail_latest = cut_in_half(memoryview(data), 0, len(data), 3)
    assert (first, head_latest, tail_latest) == (2, 1, 100)
    assert bytes(data[:cut]) == b"".join(bytes([2 * len(record)]) + record for record in records[:2])
    assert bytes(data[cut:end]) == bytes([2 * len(records[2])]) + b"\x00\xc8\x01\x00" + records[2][4:]


@pytest.mark.covers("PB5")
def test_a_cut_keeps_keys_headers_and_times_for_a_foreign_reader() -> None:
    headers = [[(f"h{n}", b"%d" % n), ("same", None), ("same", b"")] if n % 3 else [] for n in range(20)]
    table = pa.record_batch(
        {
            "value": [f"value {n}" for n in range(20)],
            "key": [f"key {n}" for n in range(20)],
            "headers": [[{"key": name, "value": content} for name, content in row] for row in headers],
            "timestamp": [9_000 + 7 * n for n in range(20)],
        }
    )
    rows = ArrangedRows(read_columns(table, topic="orders", now_ms=0).or_raise().records, np.arange(20))
    batch = ProducerBatch(PartitionQueue(TP), memoryview(bytearray(4096)), 0, 0.0, rows.timestamp_at(0))
    assert batch.append(rows, 0, 20) == 20
    batch.closed = True
    found = []
    for half in (batch, batch.split()):  # the tail's header lies over the end of the head, which is read first
        half.write_header()
        read = MemoryRecords(bytes(half.data)).next_batch()
        assert read.magic == 2
        found += list(read)
    assert [record.headers for record in found] == headers
    assert [(record.key, record.value) for record in found] == [(b"key %d" % n, b"value %d" % n) for n in range(20)]
    assert [record.timestamp for record in found] == [9_000 + 7 * n for n in range(20)]


@pytest.mark.covers("RA19", "RA32")
def test_futures_follow_their_records_into_the_halves() -> None:
    batch = batch_of(*[b"v" * 50] * 20)
    table = TableResult()
    table.expect()
    waits = [single(batch, index) for index in (0, 9, 10, 19)]
    batch.runs.append(RowRange(table, 5, RowNumbers(105, 15)))
    table.no_more()
    tail = batch.split()
    batch.complete(100, -1)
    assert [one.done() for one in waits] == [True, True, False, False]
    assert not table.future.done()
    tail.complete(500, -1)
    assert [one.result(0).offset for one in waits] == [100, 109, 500, 509]
    assert table.future.result(0).ranges == {TP: (OffsetRange(105, 109, 5), OffsetRange(500, 509, 10))}


@pytest.mark.covers("SN35")
def test_rows_of_a_run_after_the_cut_keep_their_numbers() -> None:
    batch = batch_of(*[b"v" * 50] * 20)
    table = TableResult()
    table.expect()
    batch.runs.append(RowRange(table, 5, RowNumbers(105, 15)))
    table.no_more()
    tail = batch.split()
    tail.fail(RecordsRefused("bad", code=87, records={3: "thirteen"}, rows={}))
    batch.complete(0, -1)
    error = table.future.exception(0)
    assert isinstance(error, RecordsRefused)
    assert error.rows == {113: "thirteen"}


@pytest.mark.covers("RA21")
def test_the_halves_share_one_buffer_of_the_pool_and_the_last_gives_it_back() -> None:
    fakes = accumulator_fakes(linger=0, batch_size=1024, memory=2048)
    fakes.append(*[b"v" * 50] * 14)
    whole = fakes.take()
    fakes.split(whole)
    assert fakes.pool.available == 1024
    head = fakes.take()
    assert head is whole
    assert fakes.ready() == [], "the second half waits: its header lies over the end of the first"
    fakes.split(head)
    parts = []
    for _ in range(3):
        assert fakes.pool.available == 1024
        part = fakes.take()
        parts.append(values_of(part))
        fakes.complete(part)
    assert sum(map(len, parts)) == 14
    assert [value for part in parts for value in part] == [b"v" * 50] * 14
    assert fakes.pool.available == 2048
    assert fakes.incomplete.idle


@pytest.mark.covers("RA12", "RA32")
def test_a_flush_waits_for_both_halves() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(*[b"v" * 50] * 14)
    fakes.split(fakes.take())
    first, second = fakes.queue().batches
    assert (first.number, first.created) == (second.number, second.created)
    fakes.complete(fakes.take())
    assert not fakes.incomplete.idle
    fakes.complete(fakes.take())
    assert fakes.incomplete.idle
