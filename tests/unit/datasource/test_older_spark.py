"""The data source beside Sparks that have less than the one of the tests."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, datasource

from spark_producer import register
from spark_producer.datasource import spark_compat


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
    # what PySpark 4.0 asks of the writer of a stream, and of one of Arrow batches
    assert issubclass(writer, datasource.DataSourceStreamWriter)
    assert issubclass(writer, datasource.DataSourceArrowWriter)


def test_a_newer_spark_gives_its_own_class() -> None:
    assert spark_compat.DataSourceStreamArrowWriter is datasource.DataSourceStreamArrowWriter


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
