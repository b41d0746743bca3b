"""One row has one rendering: `pyproducer write` and `as_records` give the same keys and values, byte for byte, in real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_producer import as_records
from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main
from spark_producer.cli.table_files import Mapped, as_sink_columns, open_file
from spark_producer.errors import SchemaError
from tests.spark.frames import write
from tests.support.read_back import read_topic
from tests.support.rendered import ARROW, CASES, KEPT_NULLS

Records = list[tuple[bytes | None, bytes | None]]
OF_SPARK = {name: case for name, case in CASES.items() if case.given is not None}


def table(name: str) -> pa.Table:
    """The column, beside one that is never null and one with nulls, so that every comma has its turn."""
    column = CASES[name].column
    return pa.table({"n": pa.array([None] * len(column), pa.int32()), "v": column, "id": pa.array(range(len(column)))})


def frame_and_file(spark: SparkSession, name: str, folder: Path) -> tuple[DataFrame, Path]:
    if CASES[name].given == ARROW:
        path = folder / "rows.arrow"
        feather.write_feather(table(name), str(path), compression="uncompressed")
        return spark.createDataFrame(table(name)), path
    path = folder / "rows.parquet"
    parquet.write_table(table(name), path)
    return spark.read.parquet(str(path)), path


def from_spark(records: DataFrame) -> Records:
    rows = records.select(F.col("key").cast("binary"), F.col("value").cast("binary")).collect()
    return [
        (None if row.key is None else bytes(row.key), None if row.value is None else bytes(row.value)) for row in rows
    ]


def from_file(path: Path, mapped: Mapped) -> Records:
    with ExitStack() as stack:
        batches = list(as_sink_columns(open_file(stack, str(path), None), mapped))
    keys, values = ([value for batch in batches for value in as_bytes(batch.column(name))] for name in ("key", "value"))
    return list(zip(keys, values, strict=True))


def as_bytes(column: Any) -> Iterator[bytes | None]:
    for value in column.to_pylist():
        yield value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("name", OF_SPARK)
def test_a_type_is_the_same_through_write_and_through_as_records(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    frame, path = frame_and_file(spark, name, tmp_path)
    records = from_spark(as_records(frame, key="v"))
    assert from_file(path, Mapped(key="v")) == records
    kept = from_spark(as_records(frame, key="id", keep_nulls=True))
    assert from_file(path, Mapped(key="id", keep_nulls=True)) == kept
    values = from_spark(as_records(frame, key="id", value="v"))
    assert from_file(path, Mapped(key="id", value="v")) == values
    case = CASES[name]
    objects = [f'{{"id":{at}}}' if json is None else f'{{"v":{json},"id":{at}}}' for at, json in enumerate(case.json)]
    texts = [
        None if text is None else text if isinstance(text, bytes) else text.encode() for text in case.text or case.json
    ]
    assert records == list(zip(texts, map(str.encode, objects), strict=True))


def test_null_fields_are_kept_by_spark_in_the_same_way(spark: SparkSession, tmp_path: Path) -> None:
    frame, _ = frame_and_file(spark, "struct", tmp_path)
    kept = from_spark(as_records(frame, key="v", keep_nulls=True))
    assert [key for key, _ in kept] == [None if text is None else text.encode() for text in KEPT_NULLS]


def test_calendar_intervals_are_those_of_spark(spark: SparkSession) -> None:
    made = ("make_interval(1,2,3,4,5,6,7.5)", "make_interval(-1,-2,0,0,0,0,-0.000001)", "make_interval()")
    given = spark.sql(" union all ".join(f"select {at} id, {text} v" for at, text in enumerate(made)))
    found = [key for key, _ in from_spark(as_records(given.orderBy("id"), key="v", value="id"))]
    assert found == [str(text).encode() for text in CASES["calendar interval"].text or ()]


def test_parquet_of_spark_s_own_is_the_same_through_both(spark: SparkSession, tmp_path: Path) -> None:
    times = "timestamp'3000-01-01 00:00:00.000001' t, array(struct(timestamp'1500-01-01' as t, 'x' as s)) l"
    spark.sql(f"select 1 id, {times}, interval '1 02:03:04.5' day to second v").write.parquet(str(tmp_path / "rows"))
    (path,) = (tmp_path / "rows").glob("*.parquet")
    records = from_spark(as_records(spark.read.parquet(str(path)), key="v"))
    assert from_file(path, Mapped(key="v")) == records
    assert b"3000-01-01T00:00:00.000001" in (records[0][1] or b"")


KEYS = (
    "double",
    "no numbers",
    "small decimals",
    "timestamp",
    "date",
    "binary",
    "list",
    "map",
    "struct",
    "string with escapes",
)


def keyed_rows(broker: LocalBroker, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    rows = read_topic(broker.bootstrap_servers, topic)
    return [(row.partition, row.key, row.value) for row in rows if row.key is not None]


def test_a_row_gets_one_partition_by_either_way(
    spark: SparkSession, embedded_broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    topics = (f"{topic}-file", f"{topic}-frame")
    for one in topics:
        embedded_broker.create_topic(one, 7)
    rows = 0
    for name in KEYS:
        (tmp_path / name).mkdir()
        frame, path = frame_and_file(spark, name, tmp_path / name)
        given = ["--key", "v", "--bootstrap-servers", embedded_broker.bootstrap_servers]
        assert main(["write", str(path), topics[0], *given]) == 0
        keyed = CASES[name].column.drop_null()
        rows += len(keyed)
        write(as_records(frame, key="v"), embedded_broker, topics[1])
    by_file, by_frame = (sorted(keyed_rows(embedded_broker, one)) for one in topics)
    assert by_file == by_frame
    assert len(by_file) == rows
    assert len({partition for partition, _, _ in by_file}) == 7


@pytest.mark.parametrize("key", ["binary", "struct<a: int>", "array<int>"])
def test_keys_of_maps_that_spark_writes_as_addresses_are_refused(spark: SparkSession, key: str) -> None:
    frame = spark.createDataFrame([], f"id int, v map<{key.replace(': ', ':')}, int>")
    with pytest.raises(SchemaError, match=r"has no JSON\. Make its keys strings"):
        as_records(frame)
    with pytest.raises(SchemaError, match=r"has no JSON\. Make its keys strings"):
        as_records(frame.selectExpr("array(struct(v as w)) as x", "id"), key="x", value="id")
