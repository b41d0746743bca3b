"""The sum of a micro-batch's rows: the same in any order and in any tasks, another one for other rows."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.datasource.write.worker.batch_assignment import run_of
from spark_producer.datasource.write.worker.row_contents import HashedBatches, content_of

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a", "b", None, "cc"]),
    (pa.large_binary(), [b"a", b"b", None, b"cc"]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None, "cc"]),
    (pa.bool_(), [True, False, None, False]),
    (pa.int8(), [1, 2, None, 4]),
    (pa.int64(), [1, 2, None, 4]),
    (pa.float64(), [1.5, 2.5, None, -0.5]),
    (pa.decimal128(38, 3), [decimal.Decimal("1.5"), decimal.Decimal("2.5"), None, decimal.Decimal(7)]),
    (pa.timestamp("us", "UTC"), [NOW, NOW + datetime.timedelta(1), None, NOW - datetime.timedelta(1)]),
    (pa.date32(), [NOW.date(), datetime.date(1999, 1, 1), None, datetime.date(2000, 1, 1)]),
    (pa.list_(pa.string()), [["a", "b"], [], None, ["c"]]),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [("b", 2)], None, []]),
    (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))]),
        [{"a": 1, "b": [{"c": "x"}]}, {"a": 2, "b": []}, None, {"a": None, "b": None}],
    ),
]


def batch(kind: pa.DataType, values: list[Any], name: str = "value") -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, kind)})


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])
def test_order_and_tasks_change_nothing_and_each_value_does(kind: pa.DataType, values: list[Any]) -> None:
    whole = content_of(batch(kind, values))
    assert content_of(batch(kind, values[::-1])) == whole
    shared = HashedBatches(iter([batch(kind, values[2:]), batch(kind, values).slice(0, 2)]), hashes=True)
    assert sum(part.num_rows for part in shared) == 4
    assert shared.content == whole
    assert content_of(batch(kind, [values[0], *values[:1], *values[2:]])) != whole
    assert content_of(batch(kind, [None, *values[1:]])) != whole


@pytest.mark.parametrize("width", [1, 8, 9, 40])
def test_files_of_rows_of_one_width_are_distinguished(width: int) -> None:
    def file(first: int) -> pa.RecordBatch:
        return batch(pa.string(), [str(number).zfill(width)[-width:] for number in range(first, first + 5)])

    assert len({content_of(file(first)) for first in range(0, 5 if width == 1 else 50, 5)}) == (1 if width == 1 else 10)


def test_rows_without_a_value_are_distinguished_by_their_keys_alone() -> None:
    def deleted(*keys: str, **more: object) -> int:
        return content_of(pa.record_batch({"value": pa.nulls(2, pa.string()), "key": list(keys)} | more))

    assert deleted("a", "b") == deleted("b", "a", topic=["t", "u"]) != deleted("a", "c")
    rows = {"value": ["x", None], "key": ["a", "b"]}
    assert content_of(pa.record_batch(rows)) == content_of(pa.record_batch(rows | {"key": ["z", "b"]}))


def test_no_column_and_nulls_alone() -> None:
    assert content_of(pa.record_batch({"value": pa.nulls(3)})) == 0
    plain = HashedBatches(iter([batch(pa.int8(), [1])]), hashes=False)
    assert [part.num_rows for part in plain] == [1]
    assert plain.content is None


@pytest.mark.parametrize(
    ("group", "run"),
    [
        ("2c7fe3a1-0d4e-4b60-9f3c-0f7d6b0f7a11", "2c7fe3a1-0d4e-4b60-9f3c-0f7d6b0f7a11"),
        ("nightly", ""),
        (None, ""),
        ("", ""),
    ],
)
def test_a_job_group_of_a_program_s_own_is_no_run(group: str | None, run: str) -> None:
    assert run_of(group) == run
