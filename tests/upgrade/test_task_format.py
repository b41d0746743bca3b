"""Tasks and reports between a driver and workers of other versions: their shape has a number, and workers compare it first."""

from __future__ import annotations

import copy
import io
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from pyspark.accumulators import Accumulator
from pyspark.serializers import CloudPickleSerializer, read_int
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StringType, StructField, StructType
from pyspark.sql.worker.plan_data_source_read import write_read_func_and_partitions

from spark_producer.common.cluster import ProducerIdAndEpoch, Span, TopicPartition, TransactionVersion
from spark_producer.config import parse_options
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.datasource import PyProducerDataSource, task_format
from spark_producer.datasource.follow import _followed_source, _ReportQueue
from spark_producer.datasource.read import stream_readers
from spark_producer.datasource.read.planning import batch_reader, default_schema, stream_reader
from spark_producer.datasource.read.readers import BatchReader
from spark_producer.datasource.read.task_ranges import TopicRangesPartition
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter
from spark_producer.errors import CommitError
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.exactly_once.protocol.task_messages import (
    EncodedBatch,
    InlineRows,
    PreparedTask,
    Skipped,
    WriteHandle,
)
from spark_producer.metrics import WriteReport
from spark_producer.version import __version__
from tests.upgrade import task_shape

RESTORE = "spark_producer.datasource.task_format.restored_task"
CHECK = "spark_producer.datasource.task_format.check_task_format"
OPTIONS = {"kafka.bootstrap.servers": "a:9092", "topic": "t", "exactlyOnceId": "orders"}
READ = {"kafka.bootstrap.servers": "a:9092", "subscribe": "t"}
HANDLE = WriteHandle("orders", "ab" * 16, ProducerIdAndEpoch(7, 1), TransactionVersion.IMPLICIT, None)
TRANSACTION = TaskTransaction("orders-0", 8, 1, TransactionVersion.IMPLICIT, (Span("t", 0, 5, 9, 5),))
OUTCOMES = (
    InlineRows(HANDLE, "q", 1, (EncodedBatch("t", 0, 1, b"."),), 1),
    PreparedTask(HANDLE, "q", 1, TRANSACTION, 0, 5),
    Skipped(HANDLE, "q", 1, 5),
)


FOLLOWER = Accumulator(-18, deque[str](), _ReportQueue())
SOURCES: Mapping[str, type[PyProducerDataSource]] = {
    "plain": PyProducerDataSource,
    "followed": _followed_source(FOLLOWER),
}


def writer(kind: type[BatchWriter | StreamWriter], follower: Accumulator[Any] | None = None) -> Any:
    made = kind(TaskSettings(*parse_options(OPTIONS), handle=HANDLE))
    if follower is not None:
        made.follower = follower
    return made


def limited(kind: type[stream_readers.StreamReader]) -> Any:
    return kind(batch_reader(READ, default_schema(READ)).settings, StructType([StructField("value", StringType())]))


TASKS: Mapping[str, Callable[[], Any]] = {
    "batch writer": lambda: writer(BatchWriter),
    "stream writer": lambda: writer(StreamWriter),
    "followed batch writer": lambda: writer(BatchWriter, FOLLOWER),
    "followed stream writer": lambda: writer(StreamWriter, FOLLOWER),
    "batch reader": lambda: batch_reader(READ, default_schema(READ)),
    "stream reader": lambda: stream_reader(READ, default_schema(READ)),
    "limited stream reader": lambda: limited(stream_readers.LimitedStreamReader),
    "unlimited stream reader": lambda: limited(stream_readers.UnlimitedStreamReader),
}
OTHERS: Mapping[str, Any] = {
    "partition": TopicRangesPartition((OffsetRange(TopicPartition("t", 0), 0, 9),), {"t": b"i" * 16}),
    **{type(each).__name__: TaskReport(WriteReport({}), outcome=each) for each in OUTCOMES},
}


def as_spark_sends(task: Any, source: DataSource) -> bytes:
    """Return the function of a task, pickled as PySpark does: that of a read has the data source, too."""
    if isinstance(task, DataSourceReader | DataSourceStreamReader):
        sent = io.BytesIO()
        given: dict[str, Any] = {"data_source": source, "max_arrow_batch_size": 1, "binary_as_bytes": True}
        write_read_func_and_partitions(sent, reader=task, schema=StructType([]), **given)
        sent.seek(0)
        return sent.read(read_int(sent))  # type: ignore[no-untyped-call]

    def write(iterator: Iterator[Any]) -> Iterator[Any]:  # as in `pyspark.sql.worker.write_into_data_source`
        yield task.write(iterator)

    return bytes(CloudPickleSerializer().dumps((write, StructType([]))))  # type: ignore[no-untyped-call]


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DataSource:
    monkeypatch.setattr(BatchReader, "partitions", lambda _: [])  # no cluster is asked
    made = SOURCES[request.param](READ)
    made.streamReader(StructType([]))  # Spark makes the reader of the data source that it pickles
    return made


def names_in(pickled: bytes) -> Iterator[str]:
    """Yield what a pickle imports from this package, in the order in which it is read."""

    class Names(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found.append(f"{module}.{name}")
            return super().find_class(module, name)

    found: list[str] = []
    Names(io.BytesIO(pickled)).load()
    return (each for each in found if each.startswith("spark_producer"))


def test_the_shape_of_tasks_has_not_changed_without_a_new_number() -> None:
    number, *kept = task_shape.LIST.read_text(encoding="utf-8").splitlines()
    assert task_shape.shape() == kept, (
        "what is pickled for tasks has changed: raise TASK_FORMAT, then run python -m tests.upgrade.task_shape"
    )
    assert int(number) == task_format.TASK_FORMAT


@pytest.mark.parametrize("name", [*TASKS, *OTHERS])
def test_the_list_has_every_class_of_a_pickle(name: str, source: DataSource) -> None:
    listed = {line.partition("(")[0] for line in task_shape.LIST.read_text(encoding="utf-8").splitlines()[1:]}
    pickled = as_spark_sends(TASKS[name](), source) if name in TASKS else pickle.dumps(OTHERS[name])
    assert set(names_in(pickled)) - {RESTORE, CHECK} <= listed


@pytest.mark.parametrize("name", TASKS)
def test_a_task_s_stamp_is_read_before_anything_else(name: str, source: DataSource) -> None:
    """These two names are in the pickles of every version from 1.0.0rc1 on."""
    assert [*names_in(as_spark_sends(TASKS[name](), source))][:2] == [RESTORE, CHECK]


@pytest.mark.parametrize("name", [each for each in TASKS if "reader" in each])
def test_a_read_brings_no_accumulator(name: str, source: DataSource) -> None:
    pickled = as_spark_sends(TASKS[name](), source)
    assert b"_ReportQueue" not in pickled
    assert b"FollowedDataSource" not in pickled


def test_the_commit_of_a_stream_has_the_accumulator() -> None:
    """Spark makes its writer of a pickled data source (`pyspark.sql.worker.python_streaming_sink_runner`)."""
    pickled = CloudPickleSerializer().dumps(SOURCES["followed"](OPTIONS))  # type: ignore[no-untyped-call]
    assert b"_ReportQueue" in pickled
    assert type(pickle.loads(pickled)).__name__ == "FollowedDataSource"


@pytest.mark.parametrize("number", [0, 2, 17])
@pytest.mark.parametrize("name", TASKS)
def test_a_task_of_another_format_is_refused_before_its_classes_are_known(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, source: DataSource
) -> None:
    task = TASKS[name]()
    with monkeypatch.context() as driver:
        driver.setattr(task_format, "TASK_FORMAT", number)
        driver.setattr(task_format, "__version__", "9.8.7")
        pickled = as_spark_sends(task, source)
    for lost in (b"TaskSettings", b"SourceSettings", b"PyProducerDataSource", b"_ReportQueue"):
        pickled = pickled.replace(lost, lost[:-1] + b"z")
    with pytest.raises(CommitError) as caught:
        pickle.loads(pickled)
    text = str(caught.value)
    assert f"the driver has pyproducer 9.8.7 (task format {number}), and this worker (" in text
    assert f"has {__version__} (task format {task_format.TASK_FORMAT}). Install the same version on the driver" in text


@pytest.mark.parametrize("name", TASKS)
def test_another_version_of_the_same_format_does_the_task(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    task = TASKS[name]()
    with monkeypatch.context() as driver:
        driver.setattr(task_format, "__version__", "9.8.7")
        pickled = pickle.dumps(task)
    restored = pickle.loads(pickled)
    assert type(restored) is type(task)
    assert restored.settings == task.settings
    assert copy.copy(task).settings is task.settings
