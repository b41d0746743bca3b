"""One producer for each Python worker: kept, replaced, and light on the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_producer.config import SinkOptions, producer_config
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.task import cached_producer, drop_producer, write_task
from spark_producer.errors import RecordError
from spark_producer.producer import parts_of
from tests.conftest import Broker
from tests.spark.frames import sink_options
from tests.spark.observed import FORMAT, Entry, ObservedDataSource, read_diary
from tests.spark.streams import FileStream, run
from tests.support.read_back import read_topic


@pytest.fixture(scope="module")
def observed(spark: SparkSession) -> SparkSession:
    """A session that knows the data source with a diary."""
    spark.dataSource.register(ObservedDataSource)
    return spark


def write(spark: SparkSession, broker: Broker, topic: str, diary: Path, options: dict[str, object]) -> list[Entry]:
    """Two tasks of ten rows; what the diary says of them."""
    frame = spark.range(0, 20, 1, 2).selectExpr("string(id) as value")
    given = sink_options(broker, topic, {"diary": diary, **options})
    frame.write.format(FORMAT).options(**given).mode("append").save()
    return read_diary(diary)[-2:]


def test_micro_batches_share_a_producer(observed: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic, 1)
    stream = FileStream(observed, tmp_path, "value string")
    for number in range(6):
        stream.put(f"{number}.json", [{"value": f"{number}"}])
    diary = tmp_path / "diary"
    run(stream.to(broker, topic, options={"diary": diary}, name=FORMAT))
    entries = read_diary(diary)
    assert len(entries) == 6
    assert len({entry.pid for entry in entries}) < len(entries)
    for entry in entries:
        assert {other.producer for other in entries if other.pid == entry.pid} == {entry.producer}
        assert entry.usable[entry.producer]
    assert [row.value for row in read_topic(broker.bootstrap_servers, topic)] == [b"%d" % n for n in range(6)]


def test_jobs_share_a_producer_for_each_configuration(
    observed: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Two sinks that take turns in one worker keep their connections between tasks."""
    broker.create_topic(topic, 1)
    diary = tmp_path / "diary"
    turns = [
        (linger, entry)
        for _ in range(3)
        for linger in (1, 2)
        for entry in write(observed, broker, topic, diary, {"kafka.linger.ms": linger})
    ]
    used: dict[tuple[int, int], set[int]] = {}
    for linger, entry in turns:
        used.setdefault((entry.pid, linger), set()).add(entry.producer)
        assert entry.usable[entry.producer]
    assert all(len(producers) == 1 for producers in used.values())
    both = [pid for pid, linger in used if linger == 1 and (pid, 2) in used]
    assert both
    for pid in both:
        assert used[pid, 1] != used[pid, 2]
    assert len(read_topic(broker.bootstrap_servers, topic)) == 120


def test_workers_freeze_their_garbage_collector_at_their_second_task(
    observed: SparkSession, embedded_broker: Broker, topic: str, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 1)
    entries = [entry for _ in range(4) for entry in write(observed, embedded_broker, topic, tmp_path / "diary", {})]
    frozen = {pid: [entry.frozen for entry in entries if entry.pid == pid] for pid in {entry.pid for entry in entries}}
    assert any(len(counts) > 2 for counts in frozen.values())
    for first, *later in frozen.values():
        assert later == sorted(
            later, reverse=True
        )  # a second freeze would have taken more objects; frozen ones may still end
        assert all(count > 10_000 for count in later)  # everything imported
        assert first == 0 or first >= max(later, default=0)  # a worker may have had its first task in another test


def test_little_is_left_to_collect_after_a_workers_second_task(
    observed: SparkSession, embedded_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """PySpark's daemon collects between tasks; after the first one its answer has made pyarrow import pandas."""
    embedded_broker.create_topic(topic, 1)
    entries = [entry for _ in range(4) for entry in write(observed, embedded_broker, topic, tmp_path / "diary", {})]
    firsts = {entry.pid: entry for entry in reversed(entries)}
    # A worker that was frozen in another test may have imported more since: what this test adds counts.
    before = {pid: first.tracked if first.frozen else 0 for pid, first in firsts.items()}
    later = [entry for entry in entries if entry is not firsts[entry.pid]]
    assert later
    for entry in later:
        assert entry.tracked - before[entry.pid] < 10_000, "27,000 with pandas' modules among them"


@pytest.fixture
def settings(embedded_broker: Broker, topic: str) -> Iterator[TaskSettings]:
    """A task in this process, which is left as it was."""
    embedded_broker.create_topic(topic, 1)
    config = producer_config({"bootstrap.servers": embedded_broker.bootstrap_servers})
    yield TaskSettings(config, SinkOptions(topic=topic))
    drop_producer()
    gc.unfreeze()


def batch(timestamp: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(["v"]), "timestamp": pa.array([timestamp], pa.int64())})


def test_a_failed_producer_is_replaced(settings: TaskSettings, embedded_broker: Broker, topic: str) -> None:
    write_task(settings, iter([batch(1)]))
    first = cached_producer(settings.config)
    with pytest.raises(RecordError, match="before 1970"):
        write_task(settings, iter([batch(-1)]))
    assert parts_of(first).failed
    report = write_task(settings, iter([batch(2), batch(3)])).report
    second = cached_producer(settings.config)
    assert second is not first
    assert not parts_of(second).failed
    assert (report.records, report.ranges[topic, 0]) == (2, (1, 2, 2))
    assert len(read_topic(embedded_broker.bootstrap_servers, topic)) == 3


def test_a_producer_that_was_closed_is_replaced(settings: TaskSettings) -> None:
    first = cached_producer(settings.config)
    assert cached_producer(settings.config) is first
    first.close()
    second = cached_producer(settings.config)
    assert second is not first
    assert not parts_of(second).failed
