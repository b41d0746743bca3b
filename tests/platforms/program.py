"""Program for every version of Spark: write and read, in a batch and in a stream; write from `foreachBatch` and exactly once.

    python tests/platforms/program.py

It needs PySpark, this package and confluent-kafka, and prints one line of JSON for each way. librdkafka reads what Spark writes
to the embedded broker, and writes what Spark reads. It is a file of its own, since its environments lack the other tests.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow
import pyspark
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

import spark_producer
from spark_producer import kernel
from spark_producer.broker import LocalBroker

ROWS = 20_000
SECONDS = 120.0


def rows(spark: SparkSession) -> DataFrame:
    """Rows of which each value is there once."""
    return spark.range(ROWS, numPartitions=2).selectExpr(
        "cast(id % 100 as string) as key", "cast(id as string) as value"
    )


def as_batch(spark: SparkSession, options: dict[str, str], _: Path) -> None:
    """`df.write`."""
    rows(spark).write.format("pyproducer").mode("append").options(**options).save()


def files(spark: SparkSession, home: Path) -> DataFrame:
    """The same rows as a stream of two files."""
    rows(spark).write.parquet(str(home / "rows"))
    return (
        spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1).parquet(str(home / "rows"))
    )


def in_foreach_batch(spark: SparkSession, options: dict[str, str], home: Path) -> None:
    """`foreachBatch` with `df.write`."""

    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("pyproducer").mode("append").options(**options).save()

    writer = files(spark, home).writeStream.foreachBatch(write).trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(home / "checkpoint")).start().awaitTermination(int(SECONDS))


def as_stream(spark: SparkSession, options: dict[str, str], home: Path) -> None:
    """`writeStream`."""
    writer = files(spark, home).writeStream.format("pyproducer").options(**options).trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(home / "checkpoint")).start().awaitTermination(int(SECONDS))


def exactly_once(spark: SparkSession, options: dict[str, str], home: Path) -> None:
    """`writeStream` with an `exactlyOnceId`."""
    as_stream(spark, {**options, "exactlyOnceId": options["topic"]}, home)


def as_batch_exactly_once(spark: SparkSession, options: dict[str, str], home: Path) -> None:
    """`df.write` with an `exactlyOnceId` and a `txnVersion`, twice: the second one writes nothing."""
    for _ in range(2):
        as_batch(spark, {**options, "exactlyOnceId": options["topic"], "txnVersion": "1"}, home)


WRITES: dict[str, Callable[[SparkSession, dict[str, str], Path], None]] = {
    "batch": as_batch,
    "foreachBatch": in_foreach_batch,
    "stream": as_stream,
    "exactly once, batch": as_batch_exactly_once,
    "exactly once, stream": exactly_once,
}
"""The ways to write all rows to a topic."""


def read_as_batch(spark: SparkSession, servers: str, topic: str, _: Path) -> list[str]:
    """`spark.read`."""
    send(servers, topic, range(ROWS))
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    return values(spark.read.format("pyproducer").options(**options).load())


def read_as_stream(spark: SparkSession, servers: str, topic: str, home: Path) -> list[str]:
    """`spark.readStream`, twice with one checkpoint: the second query begins where the first one ended."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    for numbers in (range(ROWS // 2), range(ROWS // 2, ROWS)):
        send(servers, topic, numbers)
        rows = spark.readStream.format("pyproducer").options(**options).load()
        writer = rows.writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(home / "checkpoint")).start(str(home / "rows"))
        assert query.awaitTermination(int(SECONDS))
    return values(spark.read.parquet(str(home / "rows")))


def values(rows: DataFrame) -> list[str]:
    """The values of records that Spark has read, as texts."""
    return [row.value for row in rows.selectExpr("cast(value as string) as value").collect()]


READS: dict[str, Callable[[SparkSession, str, str, Path], list[str]]] = {
    "read, batch": read_as_batch,
    "read, stream": read_as_stream,
}
"""The ways to read all rows of a topic, which return the values."""
WAYS = (*WRITES, *READS)


def send(servers: str, topic: str, numbers: Iterable[int]) -> None:
    """Write numbers as the values of records, by librdkafka."""
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": ROWS})
    for number in numbers:
        producer.produce(topic, str(number).encode(), str(number % 100).encode())
    if left := producer.flush(SECONDS):
        raise TimeoutError(f"{left} records were not written within {SECONDS:g} s")


def read(servers: str, topic: str) -> list[str]:
    """The values of all committed records, by librdkafka."""
    settings = {"bootstrap.servers": servers, "group.id": "platforms", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": False, "enable.auto.commit": False})
    try:
        numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in numbers
        }
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found: list[str] = []
        deadline = time.monotonic() + SECONDS
        while any(
            place.offset < ends[place.partition]
            for place in consumer.position(_places(topic, numbers))
            if ends[place.partition]
        ):
            for message in consumer.consume(10_000, timeout=0.2):
                found.append((message.value() or b"").decode())
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} records within {SECONDS:g} s")
        return found
    finally:
        consumer.close()


def _places(topic: str, numbers: dict[int, object]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def judge(found: list[str]) -> str:
    """Return the faults of the rows that were read; none if each is there once."""
    counts = Counter(found)
    missing = sum(1 for number in range(ROWS) if str(number) not in counts)
    twice = sum(1 for count in counts.values() if count > 1)
    return (
        ""
        if not missing and not twice and len(counts) == ROWS
        else f"{missing} rows are missing, {twice} are there twice"
    )


def found_by(way: str, spark: SparkSession, servers: str, topic: str, home: Path) -> list[str]:
    """The values of the rows that were written or read in this way."""
    if way in READS:
        return READS[way](spark, servers, topic, home)
    WRITES[way](spark, {"kafka.bootstrap.servers": servers, "topic": topic}, home)
    return read(servers, topic)


def main() -> int:
    """Write and read in each way, print each outcome, and return the number of ways that failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder, LocalBroker() as broker:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        spark_producer.register(spark)  # also where Spark has found it already
        for number, way in enumerate(WAYS):
            home = Path(folder) / str(number)
            home.mkdir()
            begun = time.monotonic()
            try:
                wrong = judge(found_by(way, spark, broker.bootstrap_servers, f"rows-{number}", home))
            except Exception:
                wrong = traceback.format_exc()
            failed += bool(wrong)
            seconds = round(time.monotonic() - begun, 1)
            reported = {"way": way, "wrong": wrong, "seconds": seconds, "kernel": kernel.LOADED.describe()}
            versions = {"spark": pyspark.__version__, "python": sys.version.split()[0], "pyarrow": pyarrow.__version__}
            print(json.dumps({**reported, **versions}), flush=True)
        spark.stop()
    return failed


if __name__ == "__main__":
    sys.exit(main())
