"""What Sail does differently from Spark: schemas of Arrow, tasks that are threads of one process, no TaskContext.

`tests/platforms/sail.py` runs Sail itself.
"""

from __future__ import annotations

import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from spark_producer import read_table
from spark_producer.broker import LocalBroker
from spark_producer.consumer import read_ranges
from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.engine import number_without_context
from spark_producer.datasource.spark_compat import schema_to_return, spark_schema
from spark_producer.datasource.write.worker import task
from spark_producer.datasource.write.worker.batch_assignment import task_info
from spark_producer.producer import Producer

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
ROWS = 2_000


@pytest.fixture
def sail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sail runs this process."""
    monkeypatch.setitem(sys.modules, "pysail", ModuleType("pysail"))


def source(broker: LocalBroker, **more: str) -> Any:
    return PyProducerDataSource({"kafka.bootstrap.servers": broker.bootstrap_servers, **more})


def test_sail_finds_the_format_by_its_entry_point() -> None:
    with Path("pyproject.toml").open("rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["pysail.datasources"]
    (name, target), *others = points.items()
    assert not others
    assert name == PyProducerDataSource.name()
    module, _, attribute = target.partition(":")
    assert getattr(sys.modules[module], attribute) is PyProducerDataSource


def test_schemas_of_arrow_are_taken() -> None:
    fields: list[Any] = [pa.field("key", pa.string()), pa.field("value", pa.large_binary(), nullable=False)]
    given = pa.schema(fields)
    expected = StructType([StructField("key", StringType()), StructField("value", BinaryType(), nullable=False)])
    assert spark_schema(given) == expected
    assert spark_schema(expected) is expected


def test_spark_gets_schemas_of_its_own() -> None:
    schema = PyProducerDataSource(OPTIONS).schema()
    assert isinstance(schema, StructType)
    assert schema_to_return(schema) is schema
    assert number_without_context() == 0


@pytest.mark.usefixtures("sail")
def test_sail_gets_a_schema_of_arrow() -> None:
    schema: Any = PyProducerDataSource(OPTIONS).schema()
    assert isinstance(schema, pa.Schema)
    assert schema.field("timestamp").type == pa.timestamp("us", "UTC")


@pytest.mark.usefixtures("sail")
def test_tasks_without_a_context_have_different_numbers() -> None:
    assert len({task_info(False).partition for _ in range(20)}) == 20


@pytest.mark.usefixtures("sail")
@pytest.mark.parametrize("more", [{}, {"exactlyOnceId": "of-sail", "txnVersion": "1"}], ids=["once", "exactly once"])
def test_tasks_of_one_process_write_at_the_same_time(more: dict[str, str]) -> None:
    """Each has a producer of its own: a shared one would report the rows of one task in another, and end both by one error."""
    schema: Any = pa.schema([("value", pa.string())])
    with LocalBroker() as broker:
        writer = source(broker, topic="t", **more).writer(schema, False)
        writer.__getstate__()  # Sail pickles it, too

        def write(first: int) -> Any:
            values = pa.array([f"{row}-" + "x" * 300 for row in range(first, first + ROWS)])
            return writer.write(iter([pa.record_batch([values], names=["value"])]))

        with ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(write, range(0, 4 * ROWS, ROWS)))
        writer.commit(reports)
        options = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
        found = read_table("t", options, columns=["value"])["value"].to_pylist()
    assert sorted(int((value or b"").partition(b"-")[0]) for value in found) == list(range(4 * ROWS))
    if not more:
        assert [report.report.records for report in reports] == [ROWS] * 4
    assert len(task._producers) == 0


@pytest.mark.usefixtures("sail")
def test_tasks_of_one_process_read_at_the_same_time() -> None:
    with LocalBroker() as broker:
        broker.create_topic("t", 4)
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.send_many("t", [str(row) for row in range(ROWS)])
        reading = source(broker, subscribe="t")
        columns: Any = {"value": pa.binary(), "timestamp": pa.timestamp("us", "Etc/UTC")}
        schema: Any = pa.schema(columns)
        reader = reading.reader(schema)
        before = len(read_ranges.CONNECTIONS)
        with ThreadPoolExecutor(4) as pool:
            tasks = list(pool.map(lambda each: list(reader.read(each)), reader.partitions()))
        assert len(read_ranges.CONNECTIONS) == before
    assert {batch.schema for batches in tasks for batch in batches} == {schema}
    values = [int(value) for batches in tasks for batch in batches for value in batch.column("value").to_pylist()]
    assert sorted(values) == list(range(ROWS))
