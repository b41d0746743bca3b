"""Streams that are read from Kafka: offsets, limits and restarts as with Spark's own source."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_producer import Producer
from spark_producer.admin import BlockingClient
from spark_producer.admin.topics import delete_topic
from spark_producer.network import ConnectionSettings
from tests.conftest import Broker
from tests.spark.frames import FORMAT
from tests.spark.read_sources import SECONDS, SPARKS, add_sparks_source, run, source_options, stream
from tests.support.kafka_cluster import KafkaCluster
from tests.support.waiting import wait_until

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture(scope="module", autouse=True)
def _sparks_source(spark: SparkSession) -> None:
    add_sparks_source(spark)


class Sink:
    """Files that a query writes exactly once, and its checkpoint."""

    def __init__(self, spark: SparkSession, home: Path, name: str = "") -> None:
        self._spark = spark
        self.files, self.checkpoint = home / f"files{name}", home / f"checkpoint{name}"

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        columns = frame.select("topic", "partition", "offset", "value").writeStream.format("parquet")
        return columns.option("path", str(self.files)).option("checkpointLocation", str(self.checkpoint))

    def rows(self) -> list[tuple[str, int, int, bytes]]:
        """All rows, in the order of offsets."""
        frame = self._spark.read.parquet(str(self.files))
        return sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in frame.collect())

    def offsets(self) -> list[dict[str, dict[str, int]]]:
        """The ends of all micro-batches in the offset log, without the ids of topics, which Spark's source does not write."""
        numbered = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        logged = [json.loads(path.read_text().splitlines()[-1]) for path in numbered]
        return [{topic: ends for topic, ends in each.items() if ends} for each in logged]


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> Sink:
    return Sink(spark, tmp_path)


def send(broker: Broker, topic: str, numbers: range, partitions: int = 2) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number * number % 7 % partitions)
        producer.flush()


def numbers(rows: list[tuple[str, int, int, bytes]]) -> list[int]:
    return sorted(int(value) for *_, value in rows)


@pytest.mark.covers("RD3", "RD10")
@pytest.mark.parametrize("limit", [pytest.param(None, marks=pytest.mark.nightly), 30])
def test_micro_batches_are_those_of_sparks_source(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, limit: int | None
) -> None:
    broker.create_topic(topic, 3)
    send(broker, topic, range(100), 3)
    sinks = {source: Sink(spark, tmp_path, source) for source in (FORMAT, SPARKS)}
    options = EARLIEST | ({} if limit is None else {"maxOffsetsPerTrigger": str(limit)})
    for turn in range(2):
        for source, sink in sinks.items():
            run(sink.writer(stream(spark, broker, topic, options, source=source)))
        send(broker, topic, range(100 + 50 * turn, 150 + 50 * turn), 3)
    assert sinks[FORMAT].rows() == sinks[SPARKS].rows()
    assert numbers(sinks[FORMAT].rows()) == list(range(150))
    assert sinks[FORMAT].offsets() == sinks[SPARKS].offsets()
    if limit is not None:
        assert len(sinks[FORMAT].offsets()) > 5


@pytest.mark.covers("RD3")
@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsetsByTimestamp": '{"TOPIC":{"0":1700000000020,"1":1700000000040}}'},
        {"startingOffsetsByTimestamp": '{"TOPIC":{"0":-2,"1":-1}}'},
        {"startingTimestamp": "1700000000030"},
    ],
    ids=str,
)
def test_a_stream_that_starts_at_a_time_has_the_rows_of_sparks_source(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, options: dict[str, str]
) -> None:
    broker.create_topic(topic, 2)
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1_700_000_000_000 + number)
    given = {name: text.replace("TOPIC", topic) for name, text in options.items()}
    sinks = {source: Sink(spark, tmp_path, source) for source in (FORMAT, SPARKS)}
    for source, sink in sinks.items():
        run(sink.writer(stream(spark, broker, topic, given, source=source)))
    assert sinks[FORMAT].rows() == sinks[SPARKS].rows() != []


@pytest.mark.covers("RD8", "RD10")
def test_a_running_query_finds_new_topics_and_partitions(
    spark: SparkSession, embedded_broker: Broker, topic: str, sink: Sink
) -> None:
    embedded_broker.create_topic(f"{topic}-a", 1)
    send(embedded_broker, f"{topic}-a", range(10), 1)
    options = {"subscribePattern": f"^{topic}-.*", **EARLIEST}
    query = (
        sink.writer(stream(spark, embedded_broker, topic, options)).trigger(processingTime="200 milliseconds").start()
    )
    try:
        wait_until(lambda: query.lastProgress is not None or not query.isActive, "a first batch", seconds=SECONDS)
        embedded_broker.create_topic(f"{topic}-b", 2)
        send(embedded_broker, f"{topic}-b", range(10, 30), 2)
        ends = {f"{topic}-a": {"0": 10}, f"{topic}-b": {"0": 0, "1": 0}}

        def all_read() -> bool:
            assert query.exception() is None, query.exception()
            log = sink.offsets()
            return (
                bool(log)
                and sum(sum(each.values()) for each in log[-1].values()) == 30
                and log[-1].keys() == ends.keys()
            )

        wait_until(all_read, "the records of the new topic", seconds=SECONDS)
        query.processAllAvailable()
        progress = query.lastProgress
        assert progress is not None
        assert json.loads(json.dumps(progress.sources[0].latestOffset)) is not None
    finally:
        query.stop()
    assert numbers(sink.rows()) == list(range(30))


KILLED = """
import sys
from pyspark.sql import SparkSession

checkpoint, files, *pairs = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = dict(zip(pairs[::2], pairs[1::2]))
frame = spark.readStream.format("pyproducer").options(**options).load().select("topic", "partition", "offset", "value")
writer = frame.writeStream.format("parquet").option("path", files).option("checkpointLocation", checkpoint)
writer.trigger(processingTime="100 milliseconds").start().awaitTermination()
"""


@pytest.mark.covers("RD10")
@pytest.mark.slow
def test_a_query_that_was_killed_goes_on(
    spark: SparkSession, embedded_broker: Broker, topic: str, sink: Sink, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 2)
    send(embedded_broker, topic, range(400))
    options = source_options(embedded_broker, topic, EARLIEST | {"maxOffsetsPerTrigger": "20"})
    pairs = [text for pair in options.items() for text in pair]
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    arguments = [sys.executable, str(script), str(sink.checkpoint), str(sink.files), *pairs]
    with subprocess.Popen(
        arguments, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            done = sink.checkpoint / "commits"
            wait_until(lambda: len(list(done.glob("[0-9]*"))) >= 3, "three batches", seconds=SECONDS)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    begun = len(sink.offsets())
    assert 3 <= begun < 20
    run(sink.writer(stream(spark, embedded_broker, topic, options)))
    assert numbers(sink.rows()) == list(range(400)), "nothing lost, nothing twice"
    sizes = [sum(each[topic].values()) for each in sink.offsets()]
    assert all(later - earlier <= 20 for earlier, later in zip([0, *sizes], sizes, strict=False)), (
        "limits hold after a restart"
    )


@pytest.mark.covers("RD18")
def test_kafkas_own_tool_shows_the_lag(spark: SparkSession, kafka_4: KafkaCluster, topic: str, sink: Sink) -> None:
    kafka_4.create_topic(topic, 2)
    send(kafka_4, topic, range(100))
    run(
        sink.writer(
            stream(spark, kafka_4, topic, EARLIEST | {"commitGroup": f"lag-of-{topic}", "maxOffsetsPerTrigger": "60"})
        )
    )
    send(kafka_4, topic, range(100, 130))
    said = kafka_4.run_tool(
        GROUPS, "--bootstrap-server", kafka_4.bootstrap_servers, "--describe", "--group", f"lag-of-{topic}", "--offsets"
    )
    rows = [line.split() for line in said.splitlines() if topic in line and "GROUP" not in line]
    ends = sink.offsets()[-1][topic]
    assert {row[2]: int(row[3]) for row in rows} == ends
    assert sum(int(row[5]) for row in rows) == 30


@pytest.mark.covers("RD8")
@pytest.mark.parametrize("count", [5, 15], ids=["fewer", "more"])
def test_a_topic_that_is_created_again_ends_the_query_or_is_read_from_its_start(
    spark: SparkSession, embedded_broker: Broker, topic: str, sink: Sink, count: int
) -> None:
    """Each start of the query says so, until it may lose records. A log that is longer than the earlier one hides nothing."""
    embedded_broker.create_topic(topic, 1)
    send(embedded_broker, topic, range(10), 1)
    run(sink.writer(stream(spark, embedded_broker, topic, EARLIEST)))
    create_again(embedded_broker, topic)
    send(embedded_broker, topic, range(10, 10 + count), 1)
    for _ in range(2):
        with pytest.raises(StreamingQueryException) as raised:
            run(sink.writer(stream(spark, embedded_broker, topic, EARLIEST)))
        assert f"topic '{topic}' was deleted and created again since records of it were read" in str(raised.value)
        assert str(raised.value).count("/spark_producer/") == 1, "one frame of ours"
    run(sink.writer(stream(spark, embedded_broker, topic, {**EARLIEST, "failOnDataLoss": "false"})))
    assert numbers(sink.rows()) == list(range(10 + count))


@pytest.mark.covers("RD8", "RD10")
def test_a_batch_that_was_begun_with_another_topic_is_not_read_from_the_new_one(
    spark: SparkSession, embedded_broker: Broker, topic: str, sink: Sink
) -> None:
    """The driver was killed in a batch, and the topic created again with more records: the plan is in the offset log."""
    embedded_broker.create_topic(topic, 1)
    for first in (0, 10):
        send(embedded_broker, topic, range(first, first + 10), 1)
        run(sink.writer(stream(spark, embedded_broker, topic, EARLIEST)))
    for log in (sink.checkpoint / "commits", sink.files / "_spark_metadata"):
        for name in ("1", ".1.crc"):
            (log / name).unlink()
    create_again(embedded_broker, topic)
    send(embedded_broker, topic, range(20, 50), 1)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="are lost, because the topic was deleted and created again"):
            run(sink.writer(stream(spark, embedded_broker, topic, EARLIEST)))
    run(sink.writer(stream(spark, embedded_broker, topic, {**EARLIEST, "failOnDataLoss": "false"})))
    assert numbers(sink.rows()) == [*range(10), *range(20, 50)], "each record of the new topic once"


def create_again(broker: Broker, topic: str) -> None:
    """Delete a topic of one partition, and create it."""
    host, _, port = broker.bootstrap_servers.partition(":")
    with BlockingClient(ConnectionSettings(((host, int(port)),)), timeout=10) as client:
        delete_topic(client, topic)
    broker.create_topic(topic, 1)


@pytest.mark.covers("RD10")
@pytest.mark.parametrize("first", [SPARKS, pytest.param(FORMAT, marks=pytest.mark.nightly)])
def test_a_checkpoint_goes_from_one_source_to_the_other(
    spark: SparkSession, broker: Broker, topic: str, sink: Sink, first: str
) -> None:
    """docs/moving_over.md says that it does."""
    broker.create_topic(topic, 2)
    send(broker, topic, range(50))
    other = FORMAT if first == SPARKS else SPARKS
    run(sink.writer(stream(spark, broker, topic, EARLIEST, source=first)))
    send(broker, topic, range(50, 80))
    run(sink.writer(stream(spark, broker, topic, EARLIEST, source=other)))
    send(broker, topic, range(80, 90))
    run(sink.writer(stream(spark, broker, topic, EARLIEST, source=first)))
    assert numbers(sink.rows()) == list(range(90)), "nothing lost, nothing twice"


def test_kafka_to_kafka(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Both halves in one query."""
    from tests.support.read_back import read_topic

    for name in (topic, f"{topic}-out"):
        broker.create_topic(name, 2)
    send(broker, topic, range(100))
    frame = stream(spark, broker, topic, EARLIEST).selectExpr("key", "value")
    writer = frame.writeStream.format(FORMAT).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    run(writer.option("topic", f"{topic}-out").option("checkpointLocation", str(tmp_path / "checkpoint")))
    rows = read_topic(broker.bootstrap_servers, f"{topic}-out")
    assert sorted(int(row.value or b"") for row in rows) == list(range(100))
