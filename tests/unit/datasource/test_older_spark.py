"""The data source beside Sparks that have less than the one of the tests."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, datasource
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_producer import register
from spark_producer.datasource import spark_compat
from spark_producer.datasource.read import planning, stream_readers
from spark_producer.errors import ConfigError

MODULES = (spark_compat, stream_readers, planning)
"""Modules that depend on the version of PySpark when they are loaded, the lowest first."""


@pytest.fixture
def spark_4_0(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PySpark's module without what came with 4.1."""
    with monkeypatch.context() as patch:
        patch.delattr(datasource, "DataSourceStreamArrowWriter")
        importlib.reload(spark_compat)
        yield
    importlib.reload(spark_compat)


@pytest.mark.covers("COM21")
@pytest.mark.usefixtures("spark_4_0")
def test_a_stream_of_spark_4_0_is_taken_for_one_of_arrow_batches() -> None:
    writer = spark_compat.DataSourceStreamArrowWriter
    assert writer.__module__ == spark_compat.__name__, "PySpark has none of that name"
    # the methods of PySpark 4.0's stream writer, and of its writer of Arrow batches
    assert issubclass(writer, datasource.DataSourceStreamWriter)
    assert issubclass(writer, datasource.DataSourceArrowWriter)


def test_a_newer_spark_gives_its_own_class() -> None:
    assert spark_compat.DataSourceStreamArrowWriter is datasource.DataSourceStreamArrowWriter


@pytest.fixture
def spark_4_1(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PySpark's module without what came with 4.2, and nor with 4.1: read limits, the fixed end of availableNow, filters."""
    with monkeypatch.context() as patch:
        patch.delattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")
        patch.delattr(datasource.DataSourceReader, "pushFilters")
        for module in MODULES:
            importlib.reload(module)
        yield
    for module in MODULES:
        importlib.reload(module)


@pytest.mark.covers("RD16")
@pytest.mark.usefixtures("spark_4_1")
def test_a_stream_of_spark_4_1_has_no_limits_and_says_so() -> None:
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
    schema = StructType([StructField("value", BinaryType())])
    reader = planning.stream_reader(options, schema)
    assert len(inspect.signature(reader.latestOffset).parameters) == 0, "by this Spark sees that there are no limits"
    with pytest.raises(ConfigError, match=r"maxOffsetsPerTrigger needs Spark 4\.2 or newer"):
        planning.stream_reader({**options, "maxOffsetsPerTrigger": "5"}, schema).initialOffset()
    assert planning.batch_reader(options, schema).filters.__func__ is None


def test_a_newer_spark_has_limits() -> None:
    reader = planning.stream_reader(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}, StructType([StructField("value", BinaryType())])
    )
    assert list(inspect.signature(reader.latestOffset).parameters) == ["start", "limit"]
    assert isinstance(reader, spark_compat.SupportsTriggerAvailableNow)


def session(error: Exception | None) -> SparkSession:
    """A session whose registry takes the source, or answers with an error."""

    def answer(source: type[datasource.DataSource]) -> None:
        if error is not None:
            raise error
        registered.append(source.name())

    registered: list[str] = []
    registry = SimpleNamespace(register=answer)
    made = SimpleNamespace(dataSource=registry, registered=registered, createDataFrame=lambda rows, schema: None)
    return cast("SparkSession", made)


def refusal(name: str) -> PySparkException:
    return PySparkException(errorClass=name, messageParameters={}, message=name)


def test_registering_where_spark_keeps_what_it_has_found() -> None:
    register(session(refusal("DATA_SOURCE_ALREADY_EXISTS")))
    taken: Any = session(None)
    register(taken)
    assert taken.registered == ["pyproducer"]
    with pytest.raises(PySparkException, match="ANOTHER"):
        register(session(refusal("ANOTHER")))
