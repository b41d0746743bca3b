"""The traceback of Spark's users shows little of our code before the message; called as Spark's processes call it."""

from __future__ import annotations

import importlib
import logging
import pickle
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from spark_producer.common.cluster import TopicPartition
from spark_producer.config import parse_options
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.error_boundary import hide_internal_traceback, hide_traceback_of_iterator
from spark_producer.datasource.read.readers import BatchReader
from spark_producer.datasource.read.task_ranges import TopicRangesPartition
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter
from spark_producer.errors import ConfigError, ConnectionFailed, PartitionerError, PyProducerError

VALUE = StructType([StructField("value", StringType())])
DEAD = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.max.block.ms": "1"}
ROWS = pa.record_batch({"value": ["a"]})
PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
SETTINGS = TaskSettings(*parse_options(DEAD))


def source(**options: str) -> PyProducerDataSource:
    return PyProducerDataSource(DEAD | options)


def readers(**options: str) -> tuple[BatchReader, DataSourceStreamReader]:
    """Readers for brokers that do not answer."""
    waits = {f"kafka.{name}": "100" for name in ("default.api.timeout.ms", "request.timeout.ms")}
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.fetch.max.wait.ms": "10", **waits, **options}
    made, schema = PyProducerDataSource(given), StructType([StructField("value", BinaryType())])
    return made.reader(schema), made.streamReader(schema)


def begin_stream() -> None:
    _, reader = readers(subscribe="t")
    try:
        reader.initialOffset()
    finally:
        reader.stop()


TASK = TopicRangesPartition((OffsetRange(TopicPartition("t", 0), 0, 5),), {})

CALLS: dict[str, Callable[[], Any]] = {
    "an unknown option": lambda: source(topics="x").writer(VALUE, False),
    "a contradiction": lambda: source(**{"kafka.batch.size": "1000000000"}).writer(VALUE, False),
    "overwrite": lambda: source().writer(VALUE, True),
    "a column": lambda: source().writer(StructType([*VALUE.fields, StructField("id", StringType())]), False),
    "no broker": lambda: source().writer(VALUE, False),
    "no broker for a stream": lambda: source().streamWriter(VALUE, False),
    "a schema": lambda: source().schema(),
    "a reader": lambda: source().reader(VALUE),
    "a plan of a batch": lambda: readers(subscribe="t")[0].partitions(),
    "the beginning of a stream": begin_stream,
    "a task that reads": lambda: list(readers(subscribe="t")[0].read(TASK)),
    "a task of a stream that reads": lambda: list(readers(subscribe="t")[1].read(TASK)),
    "a task": lambda: BatchWriter(SETTINGS).write(iter([ROWS])),
    "a task of a stream": lambda: StreamWriter(SETTINGS).write(iter([ROWS])),
    "a commit": lambda: BatchWriter(SETTINGS).commit([None]),
    "a commit of a stream": lambda: StreamWriter(SETTINGS).commit([None], 7),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_one_frame_of_ours_before_the_message(call: Callable[[], Any]) -> None:
    with pytest.raises(PyProducerError) as raised:
        call()
    own = [frame for frame in traceback.extract_tb(raised.tb) if "spark_producer" in frame.filename]
    assert [frame.name for frame in own] == ["surface"]
    error = raised.value
    printed = traceback.format_exception(type(error), error, raised.tb)
    assert not [line for line in printed if line.startswith(("\nDuring handling", "\nThe above exception"))]


def test_the_whole_way_is_in_the_log_for_who_asks_for_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "pyproducer"), pytest.raises(ConfigError):
        source(topics="x").writer(VALUE, False)
    (record,) = caplog.records
    assert record.getMessage() == "PyProducerDataSource.writer failed"
    assert "parse_sink_options" in caplog.text


def test_what_a_users_own_function_raised_is_shown_whole() -> None:
    @hide_internal_traceback
    def write() -> None:
        try:
            {"a": 1}["their mistake"]
        except KeyError as error:
            raise PartitionerError("the partitioner raised") from error

    with pytest.raises(PartitionerError) as raised:
        write()
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__cause__.__traceback__ is not None


def test_a_cause_of_ours_is_left_out() -> None:
    @hide_internal_traceback
    def write() -> None:
        try:
            raise OSError("connection refused")
        except OSError as error:
            raise ConnectionFailed("cannot connect: connection refused") from error

    with pytest.raises(ConnectionFailed) as raised:
        write()
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_defects_pass_whole() -> None:
    @hide_internal_traceback
    def write() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        write()
    assert [frame.name for frame in traceback.extract_tb(raised.tb)][-2:] == ["surface", "write"]


def lacking(module: str) -> Callable[[], Any]:
    @hide_internal_traceback
    def write() -> None:
        importlib.import_module(module)

    return write


def lacking_in_iterator(module: str) -> Callable[[], Any]:
    @hide_traceback_of_iterator
    def read() -> Iterator[int]:
        yield 1
        importlib.import_module(module)

    return lambda: list(read())


@pytest.mark.parametrize("make", [lacking, lacking_in_iterator])
@pytest.mark.parametrize("package", [re.split(r"\W", each)[0] for each in PROJECT["project"]["dependencies"]])
def test_a_dependency_that_a_worker_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, make: Callable[[str], Callable[[], Any]]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ConfigError, match=rf"^{package} is not installed for \S+ on \S+\. What to do: install pyproducer, or "
    ):
        make(package)()


@pytest.mark.parametrize("make", [lacking, lacking_in_iterator])
def test_another_module_that_is_missing_passes_whole(make: Callable[[str], Callable[[], Any]]) -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'users_own'"):
        make("users_own")()


def test_writers_still_travel_to_the_executors() -> None:
    assert pickle.loads(pickle.dumps(BatchWriter(SETTINGS))).settings == SETTINGS
