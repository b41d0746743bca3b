"""Exactly-once writes in the quick ones of Spark's odd ways; the slow ones are played by `python -m tests.matrix.oddities`.

All is read by librdkafka, which knows nothing of us.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_producer import register
from tests.conftest import Broker
from tests.matrix.clusters import held_back, open_transactions
from tests.matrix.odd_ground import wait_for
from tests.spark.frames import short_message, write
from tests.spark.streams import FileStream, run
from tests.support.read_back import read_topic
from tests.support.waiting import wait_until

PATHS = [pytest.param({}, id="inline"), pytest.param({"exactlyOnceMaxInlineBytes": 0}, id="two phases")]
ROWS = 40


def seen(broker: Broker, topic: str) -> Counter[int]:
    """Return the count of each number in committed records; no transaction may be open."""
    assert [name for name in open_transactions(broker) if topic in name] == []
    assert held_back(broker, topic) == {}
    found = read_topic(broker.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    return Counter(int(row.value or b"") for row in found)


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("string(id) as value")


@pytest.mark.parametrize("options", PATHS)
def test_every_column_is_written_as_it_is_without_exactly_once(
    spark: SparkSession, embedded_broker: Broker, topic: str, options: dict[str, object]
) -> None:
    """Null values, headers, topics by column, partitions by column, and by a function of the user."""
    topics = [f"{topic}-{kind}-{number}" for kind in "ab" for number in (0, 1)]
    for each in topics:
        embedded_broker.create_topic(each, 3)

    def frame(kind: str) -> DataFrame:
        return spark.range(0, ROWS, 1, 2).selectExpr(
            f"'{topic}-{kind}-' || (id % 2) as topic",
            "if(id % 5 = 0, null, string(id)) as value",
            "if(id % 7 = 0, null, 'k' || id) as key",
            "array(named_struct('key', 'h', 'value', binary(string(id))), named_struct('key', 'n', 'value', null)) as headers",
            "if(id % 3 = 0, int(id % 2), null) as partition",
            "timestamp_millis(id) as timestamp",
        )

    usual = {"includeHeaders": "true", "kafka.partitioner.class": "tests.spark.test_odd_ways:by_length"}
    write(frame("a"), embedded_broker, None, usual)
    write(frame("b"), embedded_broker, None, {**usual, **options, "exactlyOnceId": topic})

    def rows(name: str) -> Counter[str]:
        found = read_topic(embedded_broker.bootstrap_servers, name, client="confluent", isolation="read_committed")
        return Counter(str(row._replace(topic="", offset=0)) for row in found)

    for number in (0, 1):
        plain, once = rows(f"{topic}-a-{number}"), rows(f"{topic}-b-{number}")
        assert plain.total() == ROWS // 2
        assert once == plain
        assert held_back(embedded_broker, f"{topic}-b-{number}") == {}
    assert [name for name in open_transactions(embedded_broker) if topic in name] == []


def by_length(keys: pa.BinaryArray, values: pa.BinaryArray, topic: str, partition_count: int) -> npt.NDArray[np.int32]:
    """A partitioner of a user."""
    lengths = [len(key or b"") % partition_count for key in keys.to_pylist()]
    return np.array(lengths, np.int32)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("options", PATHS)
def test_the_first_of_two_jobs_with_one_id_gets_an_error(
    spark: SparkSession, embedded_broker: Broker, topic: str, tmp_path: Path, options: dict[str, object]
) -> None:
    embedded_broker.create_topic(topic, 1)
    once = {"exactlyOnceId": topic, **options}
    home = tmp_path

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        (home / "first-writes").touch()
        wait_for(home / "second-is-done")

    def first() -> str:
        session = spark.newSession()
        register(session)
        with pytest.raises(Exception, match="give each its own exactlyOnceId") as failed:
            write(numbers(session, ROWS, 1).mapInArrow(waits, "value string"), embedded_broker, topic, once)
        return str(failed.value)

    with ThreadPoolExecutor(1) as pool:
        losing = pool.submit(first)
        wait_until((home / "first-writes").exists, "the first write", pause=0.02, ended=losing.done)
        write(numbers(spark, ROWS, 1), embedded_broker, topic, once)
        (home / "second-is-done").touch()
        assert "a newer driver has begun a write of this sink" in short_message(losing.result())
    assert seen(embedded_broker, topic) == Counter(range(ROWS))


def test_two_sessions_of_one_application_write_to_two_ids_at_once(
    spark: SparkSession, embedded_broker: Broker, topic: str
) -> None:
    topics, both = [topic, f"{topic}-2"], threading.Barrier(2)

    def job(name: str) -> None:
        session = spark.newSession()
        register(session)
        both.wait(60)
        for _ in range(2):
            write(numbers(session, ROWS), embedded_broker, name, {"exactlyOnceId": name, "txnVersion": 1})

    for each in topics:
        embedded_broker.create_topic(each, 1)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(job, topics))
    for each in topics:
        assert seen(embedded_broker, each) == Counter(range(ROWS))


def test_a_function_that_fails_between_two_writes_is_run_again(
    spark: SparkSession, embedded_broker: Broker, topic: str, tmp_path: Path
) -> None:
    topics, failures = [topic, f"{topic}-2"], ["between", "after"]
    for each in topics:
        embedded_broker.create_topic(each, 1)
    stream = FileStream(spark, tmp_path, "value string")
    stream.put("0.json", [{"value": str(number)} for number in range(ROWS)])

    def write_batch(frame: DataFrame, number: int) -> None:
        for name, place in zip(topics, ("between", "after"), strict=True):
            write(frame, embedded_broker, name, {"exactlyOnceId": name, "txnVersion": number})
            if failures and failures[0] == place:
                failures.pop(0)
                raise RuntimeError(place)

    for wanted in list(failures):
        with pytest.raises(Exception, match=wanted):
            run(stream.frame.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(stream.checkpoint)))
    run(stream.frame.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(stream.checkpoint)))
    for each in topics:
        assert seen(embedded_broker, each) == Counter(range(ROWS))


@pytest.mark.parametrize("options", PATHS)
def test_batches_without_rows_and_every_trigger(
    spark: SparkSession, embedded_broker: Broker, topic: str, tmp_path: Path, options: dict[str, object]
) -> None:
    embedded_broker.create_topic(topic, 1)
    stream = FileStream(spark, tmp_path, "value string")
    frame = stream.frame.where("int(value) >= 0").repartition(3)
    triggers: list[Callable[[DataStreamWriter], DataStreamWriter]] = [
        lambda writer: writer.trigger(once=True),
        lambda writer: writer.trigger(availableNow=True),
        lambda writer: writer.trigger(processingTime="0 seconds"),
    ]
    for number, trigger in enumerate(triggers):
        first = number * ROWS
        stream.put(f"{2 * number}.json", [{"value": str(each)} for each in range(first, first + ROWS)])
        stream.put(f"{2 * number + 1}.json", [{"value": "-1"}])
        query = trigger(stream.to(embedded_broker, topic, frame, {"exactlyOnceId": topic, **options})).start()
        query.processAllAvailable()
        query.stop()
    assert stream.committed() == list(range(5))  # once=True takes both files in one batch
    assert seen(embedded_broker, topic) == Counter(range(len(triggers) * ROWS))
