"""Rows that cannot be written, as values: who asks takes the good rows and keeps the others, or raises the first, as the
producer does."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_producer import Producer
from spark_producer.config import producer_config
from spark_producer.errors import RecordError, RecordTooLarge
from spark_producer.kernel import ArrangedRows, encode_v2, group_rows
from spark_producer.network import metadata_wait
from spark_producer.partitioner import Partitioner, TopicPartitions, describe_topic
from spark_producer.partitioner.round_robin import RoundRobinPartitioner
from spark_producer.producer.metadata_wait import invalid_topic_names
from spark_producer.producer.record_size import too_large
from spark_producer.record import header_column
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.dictionary_slices import BatchPieces
from spark_producer.record.rejected import Rejected, RejectedRows, RowErrorKind, RowErrors
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.producer.rejected_rows import (
    COUNTS,
    FIRST,
    FLAWS,
    HEADERS,
    LAST_SECOND,
    LIMIT,
    NO_TEXT,
    NOW,
    Row,
    batch_of,
    expected_of,
    flawed,
    tables,
)

Start = Callable[..., Producer]
CONFIG = producer_config({"bootstrap.servers": "h:1", "max.request.size": LIMIT, "batch.size": 1024})


# --- who takes what is good -----------------------------------------------------------------------------------------


class Encoded(dict[Any, bytes]):
    """The records of each (topic, partition), one after the other."""

    def __init__(self) -> None:
        self._partitioner = Partitioner(None, RoundRobinPartitioner(random_start=False))
        self._counts: dict[Any, int] = {}

    def reject(self, columns: CheckedColumns) -> RejectedRows:
        return self._partitioner.reject(columns, topics_of(columns))

    def append(self, columns: CheckedColumns) -> None:
        assignment = self._partitioner.assign(columns, topics_of(columns))
        rows, bounds = group_rows(assignment.slots, assignment.slot_count)
        arranged = ArrangedRows(columns.records, rows)
        for slot in np.flatnonzero(np.diff(bounds)).tolist():
            first, stop, out = int(bounds[slot]), int(bounds[slot + 1]), memoryview(bytearray(1 << 17))
            codes, partitions = assignment.topic_partitions(np.array([slot]))
            tp = columns.topics[codes[0]], partitions[0]
            count = self._counts.get(tp, 0)
            following, end, _ = encode_v2(arranged, first, stop, count, 0, out, 0, len(out))
            assert following == stop
            self[tp] = self.get(tp, b"") + bytes(out[:end])
            self._counts[tp] = count + stop - first


def parted(batch: pa.RecordBatch, piece: int = 1 << 20) -> tuple[list[CheckedColumns], RejectedRows, Encoded]:
    """The good rows, the others, and the bytes of the good ones, as a caller takes them who wants to write what can be."""
    pieces = BatchPieces(batch, piece, LIMIT, None, NOW, FIRST)
    good, rejected, encoded = [], pieces.rejected, Encoded()
    for read in pieces:
        read = read.without(too_large(read.columns, CONFIG))
        read = read.without(invalid_topic_names(read.columns))
        read = read.without(encoded.reject(read.columns))
        rejected += read.rejected
        good.append(read.columns)
        encoded.append(read.columns)
    return good, rejected, encoded


def topics_of(columns: CheckedColumns) -> list[TopicPartitions]:
    return [describe_topic(name, tuple(range(COUNTS[name.encode()]))) for name in columns.topics]


@pytest.fixture(autouse=True)
def few_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Patched, since rows with more headers than a record may have take megabytes each.
    monkeypatch.setattr(header_column, "MAX_HEADERS", HEADERS)


def assert_parted(rows: Sequence[Row], batch: pa.RecordBatch, piece: int = 1 << 20) -> list[Rejected]:
    """Every row is in one of the two lists; the good ones have their numbers and become what they become alone."""
    good, found, encoded = parted(batch, piece)
    rejected = list(found)
    assert len(rejected) == len(found)
    numbers = [columns.row_number(row) for columns in good for row in range(len(columns.records))]
    assert sorted(numbers + [reported.row for reported in rejected]) == list(range(FIRST, FIRST + len(rows)))
    assert numbers == sorted(numbers)
    assert encoded == parted(batch.take(pa.array([number - FIRST for number in numbers], pa.int64())), piece)[2]
    return rejected


def test_the_good_rows_encode_as_if_there_were_no_others() -> None:
    @given(tables)
    def check(rows: list[Row]) -> None:
        assert assert_parted(rows, batch_of(rows)) == expected_of(rows)

    check()


def test_so_they_do_in_pieces_with_dictionaries() -> None:
    """Rows that could not be decoded are reported before the pieces are read; their other errors are ignored."""

    @given(tables, st.sampled_from([400, 1 << 20]))
    def check(rows: list[Row], piece: int) -> None:
        rejected = {
            reported.row: reported for reported in assert_parted(rows, batch_of(rows, dictionaries=True), piece)
        }
        large = {FIRST + number for number, row in enumerate(rows) if row.value > LIMIT}
        assert large == {
            reported.row for reported in rejected.values() if "with its dictionaries decoded" in reported.message
        }
        expected = {reported.row: reported for reported in expected_of(rows)}
        assert rejected.keys() == expected.keys()
        for number in rejected.keys() - large:
            assert rejected[number][:4] == expected[number][:4]
        for number in large:
            row = rows[number - FIRST]
            topic = None if row.topic in (None, NO_TEXT) else row.topic.decode()
            assert rejected[number][:4] == (number, RowErrorKind.SIZE, topic, row.value)

    check()


@pytest.mark.parametrize("flaw", FLAWS, ids=str)
def test_each_flaw_alone_is_found(flaw: dict[str, Any]) -> None:
    rows = [Row(), flawed(Row(), [flaw]), Row(value=2)]
    (reported,) = assert_parted(rows, batch_of(rows))
    assert reported == expected_of(rows)[0]
    assert isinstance(reported.error(), RecordTooLarge if reported.kind is RowErrorKind.SIZE else RecordError)
    assert pickle.loads(pickle.dumps(reported)) == reported


@pytest.mark.parametrize(
    ("flaws", "worst"),
    [
        ([{"headers": (b"h",) * 3}, {"headers": (b"h",) * 4}], 1),
        ([{"value": 2500}, {"value": 3000}], 1),
        ([{"time": LAST_SECOND + 1}, {"time": LAST_SECOND + 2}, {"time": -LAST_SECOND - 9}], 1),
        ([{"time": -LAST_SECOND - 1}, {"time": -LAST_SECOND - 2}], 1),
        ([{"partition": 3}, {"partition": 1, "topic": b"b"}, {"partition": 4}], 0),
        ([{"time": -1}, {"time": -9}], 0),
        (
            [{"partition": 9}, {"value": 3000}, {"partition": -1}, {"time": -1}, {"headers": (None,)}, {"topic": None}],
            5,
        ),
    ],
    ids=["headers", "size", "late", "early", "partition", "1970", "kinds"],
)
def test_which_row_goes_first(flaws: list[dict[str, Any]], worst: int) -> None:
    rows = [flawed(Row(), [flaw]) for flaw in flaws]
    rejected = assert_parted(rows, batch_of(rows))
    assert rejected[0].row == FIRST + worst
    assert rejected == expected_of(rows)


@pytest.mark.parametrize("flaw", FLAWS, ids=str)
def test_nothing_may_be_left(flaw: dict[str, Any]) -> None:
    rows = [flawed(Row(), [flaw])] * 3
    assert assert_parted(rows, batch_of(rows)) == expected_of(rows)


def test_timestamps_without_a_type_are_null() -> None:
    batch = pa.record_batch({"value": ["v"] * 2, "topic": ["a"] * 2, "timestamp": pa.nulls(2)})
    (good,), rejected, _ = parted(batch)
    assert len(good.records) == 0
    assert [reported.row for reported in rejected] == [FIRST, FIRST + 1]


def test_a_topic_that_only_bad_rows_have_is_not_asked_for() -> None:
    rows = [Row(topic=b"a"), Row(topic=b"b", partition=-1)]
    (good,), _, _ = parted(batch_of(rows))
    assert good.topics == ("a",)


def test_good_rows_are_not_copied() -> None:
    batch = batch_of([Row(value=100)] * 10)
    ((good,), rejected, _), shared = parted(batch), batch.column("value").buffers()[2]
    assert not len(rejected)
    assert shared is not None
    assert good.records.value.data.ctypes.data == shared.address


class Counted(np.ndarray[Any, Any]):
    """An array that counts the elements that computations on it touch."""

    touched = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        Counted.touched += sum(np.size(one) for one in inputs)
        plain = [one.view(np.ndarray) if isinstance(one, Counted) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **options)


def test_many_bad_names_cost_no_more_than_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(f"{number:05d}" + "n" * 40_000 for number in range(500))
    codes = np.arange(1000, dtype=np.int32) % 500
    (columns, *_), _, _ = parted(batch_of([Row()] * 1000))
    monkeypatch.setattr(Counted, "touched", 0)
    rejected = invalid_topic_names(columns._replace(topics=("a", *names), topic_codes=codes.view(Counted)))
    assert Counted.touched <= 10 * len(codes)
    assert [reported.row - FIRST for reported in rejected] == [row for row in range(1000) if codes[row] > 0]
    assert all(f"'{codes[reported.row - FIRST] - 1:05d}nnn" in reported.message for reported in rejected)


def test_many_faults_are_not_compared_in_pairs() -> None:
    def calls(faults: int) -> int:
        found = [
            RowErrors(RowErrorKind.SIZE, str, np.arange(one, one + 2), np.zeros(2, np.int64)) for one in range(faults)
        ]
        (columns,), _, _ = parted(batch_of([Row()] * (faults + 1)))
        count = 0

        def count_call(frame: object, event: str, arg: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(count_call)
        try:
            rejected = RejectedRows.among(columns, found)
        finally:
            sys.setprofile(before)
        assert rejected.positions.tolist() == list(range(faults + 1))
        return count

    assert calls(200) < 5 * calls(50)


# --- who takes all rows or none -------------------------------------------------------------------------------------


def test_the_producer_raises_the_first_and_sends_nothing(
    cluster: ScriptedCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_wait, "PARTITION_GRACE", 0.0)  # or each of hundreds of tables would wait
    cluster.topics = {"a": 3, "b": 1}
    producer = start(max_request_size=LIMIT, batch_size=1024)

    @given(tables)
    def check(rows: list[Row]) -> None:
        expected = expected_of(rows)
        assume(expected)
        with pytest.raises(RecordError) as raised:
            producer.send_batch(batch_of(rows), first_row=FIRST)
        assert str(raised.value) == expected[0].message
        assert type(raised.value) is (RecordTooLarge if expected[0].kind is RowErrorKind.SIZE else RecordError)

    check()
    producer.flush()
    assert not any(cluster.log.values())


def test_rows_of_a_table_keep_their_numbers_where_some_are_left_out() -> None:
    rows = [Row(), Row(partition=-1), Row(), Row(time=None), Row()]
    (good,), _, _ = parted(batch_of(rows))
    assert good.records.numbers_of(np.array([2, 0, 1])).tolist() == [FIRST + 4, FIRST, FIRST + 2]
    assert good.location(2) == f"topic 'a', row {FIRST + 4} of the task"
