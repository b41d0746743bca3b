"""Parquet whose own types do not say what is meant, as INT96 and intervals of Spark; and dictionaries of several row groups."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from spark_producer.cli.table_files import Mapped, as_sink_columns, check_columns, open_file
from spark_producer.errors import SchemaError

pa: Any = pyarrow
"""Any, because the stubs do not know all types."""


def written(folder: Path, table: Any, value: str = "*", **options: Any) -> list[str | None]:
    path = folder / "rows.parquet"
    parquet.write_table(table, path, **options)
    mapped = Mapped(value=value)
    with ExitStack() as stack:
        source = open_file(stack, str(path), None)
        check_columns(source, mapped)
        batches = list(as_sink_columns(source, mapped))
    return [text for batch in batches for text in batch.column("value").to_pylist()]


NESTED: dict[str, tuple[Any, str]] = {
    "list": (pa.list_(pa.string()), '["a{0}","b"]'),
    "list of bytes": (pa.list_(pa.binary()), "{1}"),
    "struct": (pa.struct([("s", pa.string())]), '{{"s":"a{0}"}}'),
    "map": (pa.map_(pa.string(), pa.string()), '{{"a{0}":"b"}}'),
    "struct of lists": (pa.struct([("s", pa.list_(pa.string()))]), '{{"s":["a{0}"]}}'),
}


@pytest.mark.parametrize("name", NESTED)
def test_texts_in_lists_and_structs_of_several_row_groups(tmp_path: Path, name: str) -> None:
    kind, expected = NESTED[name]
    bytes_of = {"a0": "YTA=", "a1": "YTE=", "a2": "YTI="}
    values: dict[str, Any] = {
        "list": lambda text: [text, "b"], "list of bytes": lambda text: [text.encode()], "struct": lambda text: {"s": text},
        "map": lambda text: [(text, "b")], "struct of lists": lambda text: {"s": [text]},
    }  # fmt: skip
    texts = [f"a{at % 3}" for at in range(10)]
    table = pa.table({"v": pa.array([values[name](text) for text in texts], kind)})
    found = written(tmp_path, table, value="v", row_group_size=4)
    assert found == [expected.format(text[1:], f'["{bytes_of[text]}"]') for text in texts]


MOMENTS = [32_503_680_000_000_001, -14_831_769_600_000_000, 1_357_017_420_123_456]
JSON_TIMES = ["3000-01-01T00:00:00.000001Z", "1500-01-01T00:00:00.000000Z", "2013-01-01T05:17:00.123456Z"]


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("stored", [True, False], ids=["with Arrow's types", "as Spark writes it"])
def test_int96_is_a_moment_in_microseconds(tmp_path: Path, stored: bool, zone: str | None) -> None:
    times = pa.array(MOMENTS, pa.timestamp("us", zone))
    columns = {
        "t": times,
        "l": pa.ListArray.from_arrays([0, 1, 2, 3], times),
        "s": pa.StructArray.from_arrays([pa.array(["x", "y", "x"]), times], ["a", "t"]),
        "n": pa.array(MOMENTS, pa.int64()),
    }
    found = written(tmp_path, pa.table(columns), use_deprecated_int96_timestamps=True, store_schema=stored)
    rows = zip("xyx", JSON_TIMES, MOMENTS, strict=True)
    assert found == [
        f'{{"t":"{time}","l":["{time}"],"s":{{"a":"{name}","t":"{time}"}},"n":{at}}}' for name, time, at in rows
    ]


def spark_table(column: Any, kind: Any) -> Any:
    fields = [{"name": "id", "type": "integer"}, {"name": "v", "type": kind}]
    meant = json.dumps({"type": "struct", "fields": fields}).encode()
    found = pa.table({"id": pa.array([1], pa.int32()), "v": column})
    return found.replace_schema_metadata({b"org.apache.spark.sql.parquet.row.metadata": meant})


DAYS = pa.array([93_784_500_000], pa.int64())
INTERVAL = "INTERVAL '1 02:03:04.5' DAY TO SECOND"


def test_intervals_of_spark_are_written_as_spark_does(tmp_path: Path) -> None:
    assert written(tmp_path, spark_table(DAYS, "interval day to second")) == [f'{{"id":1,"v":"{INTERVAL}"}}']
    assert written(tmp_path, spark_table(DAYS, "interval day to second"), value="v") == [INTERVAL]
    nested = pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([DAYS], ["d"]))
    kind = {"type": "struct", "fields": [{"name": "d", "type": "interval day to second"}]}
    table = spark_table(nested, {"type": "array", "elementType": kind})
    assert written(tmp_path, table, value="v") == [f'[{{"d":"{INTERVAL}"}}]']


VARIANT = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x00"}])
LEFT = {
    "interval hour": DAYS,
    "interval year to month": pa.array([14], pa.int32()),
    "variant": VARIANT,
}


@pytest.mark.parametrize("kind", LEFT)
def test_types_that_parquet_keeps_in_another_form_are_refused(tmp_path: Path, kind: str) -> None:
    message = rf"rows.parquet, column 'v' cannot be written: it has Spark's type {kind}, .*: cast it to string in Spark"
    with pytest.raises(SchemaError, match=message):
        written(tmp_path, spark_table(LEFT[kind], kind))
    nested = spark_table(pa.array([[each] for each in LEFT[kind].to_pylist()], pa.list_(LEFT[kind].type)),
                         {"type": "array", "elementType": kind})  # fmt: skip
    with pytest.raises(SchemaError, match=message):
        written(tmp_path, nested, value="v")
    assert written(tmp_path, nested, value="id") == ["1"]


@pytest.mark.parametrize(
    "text", [b"", b"[", b"[" * 100_000, b"7", b'{"fields":[{"name":[]},3]}', b'{"fields":7}', b"\xff"]
)
def test_invalid_metadata_of_spark_is_ignored(tmp_path: Path, text: bytes) -> None:
    table = pa.table({"v": DAYS}).replace_schema_metadata({b"org.apache.spark.sql.parquet.row.metadata": text})
    assert written(tmp_path, table) == ['{"v":93784500000}']
