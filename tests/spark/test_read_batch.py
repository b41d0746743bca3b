"""Batches that are read from Kafka: the same rows as Spark's own source and librdkafka see."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_producer import Producer
from tests.conftest import Broker
from tests.kafka.foreign import write_with_kafka_python
from tests.spark.frames import FORMAT, session_settings, short_message
from tests.spark.read_sources import HEADERS, SPARKS, add_sparks_source, assert_read_three_ways, batch, partitions_of
from tests.support.kafka_cluster import KafkaCluster

NIGHTLY = pytest.mark.nightly
PUSH = "spark.sql.python.filterPushdown.enabled"
FIRST_TIME = 1_700_000_000_000


@pytest.fixture(scope="module", autouse=True)
def _sparks_source(spark: SparkSession) -> None:
    add_sparks_source(spark)


def write_every_kind(broker: Broker, topic: str, codec: str) -> None:
    """Keys and values that are null, empty or not UTF-8, headers that repeat, batches of one record and of many."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "batch.size": 20_000}
    with Producer(options) as producer:
        for number in range(3000):
            producer.send(
                topic,
                value=None if number % 7 == 0 else b"\xff\x00%d" % number * (number % 50),
                key=None if number % 5 == 0 else b"" if number % 11 == 0 else b"key-%d" % (number % 100),
                headers=[("h", b"%d" % number), ("h", None), ("ü", b"\xff")][: number % 4],
                partition=number % 3,
                timestamp_ms=FIRST_TIME + number,
            )
            if number in (0, 1, 500):
                producer.flush()
        producer.flush()


@pytest.mark.covers("RD1", "RD15")
@pytest.mark.parametrize(
    "codec", ["none", *(pytest.param(each, marks=NIGHTLY) for each in ("gzip", "snappy", "lz4")), "zstd"]
)
def test_what_our_producer_wrote(spark: SparkSession, broker: Broker, topic: str, codec: str) -> None:
    broker.create_topic(topic, 3)
    write_every_kind(broker, topic, codec)
    assert assert_read_three_ways(spark, broker, topic) == 3000


@pytest.mark.covers("RD1")
def test_what_another_client_wrote(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 3)
    write_with_kafka_python(broker.bootstrap_servers, topic, 500, 3)
    assert assert_read_three_ways(spark, broker, topic) == 500


@pytest.mark.covers("RD5", "RD6")
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions(spark: SparkSession, broker: Broker, topic: str, isolation: str) -> None:
    """Committed, aborted and open ones; the range of partition 1 ends in a marker, and that of partition 2 has nothing else."""
    broker.create_topic(topic, 4)
    options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    with Producer(options) as producer, Producer(options | {"transactional.id": f"{topic}-2"}) as other:
        producer.init_transactions()
        other.init_transactions()
        for turn, commits in enumerate([True, False, True, False]):
            producer.begin_transaction()
            for number in range(100):
                producer.send(topic, b"%d-%d" % (turn, number), partition=number % 2)
            if not commits:
                producer.send(topic, b"aborted", partition=2)
                producer.flush()
            producer.commit_transaction() if commits else producer.abort_transaction()
        other.begin_transaction()
        other.send(topic, b"open", partition=3)
        other.flush()
        read = assert_read_three_ways(spark, broker, topic, isolation=isolation)
        other.abort_transaction()
    assert read == {"read_uncommitted": 403, "read_committed": 200}[isolation]


@pytest.mark.covers("RD3")
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"startingOffsets": "earliest", "endingOffsets": "latest"}, marks=NIGHTLY),
        {"startingOffsets": '{"TOPIC":{"0":5,"1":-2,"2":30}}', "endingOffsets": '{"TOPIC":{"0":40,"1":-1,"2":30}}'},
        {"assign": '{"TOPIC":[2,0]}'},
        pytest.param({"subscribePattern": "TOPI[A-Z]"}, marks=NIGHTLY),
        {"subscribePattern": "^OPIC"},
        pytest.param({"startingTimestamp": FIRST_TIME + 101}, marks=NIGHTLY),
        {"startingTimestamp": FIRST_TIME, "endingTimestamp": FIRST_TIME + 101, "startingOffsets": "earliest"},
        pytest.param(
            {"startingTimestamp": FIRST_TIME + 297, "startingOffsetsByTimestampStrategy": "error"}, marks=NIGHTLY
        ),
        pytest.param(
            {"startingTimestamp": FIRST_TIME + 298, "startingOffsetsByTimestampStrategy": "latest"}, marks=NIGHTLY
        ),
        {"startingTimestamp": FIRST_TIME + 1000, "startingOffsetsByTimestampStrategy": "latest"},
        {"startingOffsetsByTimestamp": '{"TOPIC":{"0":1700000000020,"1":1700000000200,"2":0}}'},
        {"endingOffsetsByTimestamp": '{"TOPIC":{"0":1700000000020,"1":1900000000200,"2":0}}'},
        {"startingTimestamp": -2, "endingTimestamp": -1},
        {"startingOffsetsByTimestamp": '{"TOPIC":{"0":-1,"1":-2,"2":1700000000200}}'},
        pytest.param({"minPartitions": 7}, marks=NIGHTLY),
        # Spark's source does not see that there are more between `earliest` and `latest`, and divides nothing then
        pytest.param(
            {
                "maxRecordsPerPartition": 30,
                "startingOffsets": '{"TOPIC":{"0":0,"1":0,"2":0}}',
                "endingOffsets": '{"TOPIC":{"0":100,"1":100,"2":100}}',
            },
            marks=NIGHTLY,
        ),
        {"minPartitions": 20, "maxRecordsPerPartition": 40},
    ],
    ids=str,
)
def test_options_mean_the_same_as_in_sparks_source(
    spark: SparkSession, broker: Broker, topic: str, options: dict[str, object]
) -> None:
    broker.create_topic(topic, 3)
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number, partition=number % 3, timestamp_ms=FIRST_TIME + number)
        producer.flush()
    pattern = f"{topic[:-1]}[0-9a-f]"
    given = {name: str(value).replace("TOPI[A-Z]", pattern).replace("TOPIC", topic) for name, value in options.items()}
    ours, sparks = (batch(spark, broker, topic, HEADERS | given, source=source) for source in (FORMAT, SPARKS))
    assert partitions_of(ours) == partitions_of(sparks)
    if "minPartitions" in options or "maxRecordsPerPartition" in options:
        assert ranges_of_tasks(ours) == ranges_of_tasks(sparks)


def ranges_of_tasks(frame: DataFrame) -> list[tuple[int, int, int]]:
    """The partition, first and last offset of each task."""
    tasks = frame.groupBy(F.spark_partition_id(), "partition").agg(F.min("offset"), F.max("offset"))
    return sorted((row[1], row[2], row[3]) for row in tasks.collect())


@pytest.mark.covers("RD15")
def test_timestamps_of_the_broker(spark: SparkSession, kafka_4: KafkaCluster, topic: str) -> None:
    kafka_4.create_topic(topic, 3, config={"message.timestamp.type": "LogAppendTime"})
    write_every_kind(kafka_4, topic, "lz4")
    assert_read_three_ways(spark, kafka_4, topic)
    frame = batch(spark, kafka_4, topic)
    assert [row.timestampType for row in frame.select("timestampType").distinct().collect()] == [1]


@pytest.mark.covers("RD17")
def test_pushed_filters_change_no_row(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 3)
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(300):
            producer.send(
                topic, b"%d" % number, partition=number % 3, timestamp_ms=FIRST_TIME + number * (-1) ** number
            )
        producer.flush()
    moment = f"timestamp_millis({FIRST_TIME + 150})"
    for condition, tasks in (
        ("partition = 1", 1),
        ("partition in (0, 2) and offset >= 10", 2),
        ("partition <> 1 and offset between 5 and 7 and topic is not null", 2),
        ("offset in (3, 50)", 3),
        ("offset > 1000", 1),
        (f"timestamp >= {moment}", 3),
        (f"timestamp > {moment} and partition = 2 and value is not null", 1),
        (f"timestamp < {moment} or partition = 0", 3),
        ("topic = 'another'", 1),
    ):
        wanted = partitions_of(batch(spark, broker, topic, HEADERS).where(condition))
        with session_settings(spark, {PUSH: "true"}):
            frame = batch(spark, broker, topic, HEADERS).where(condition)
            assert partitions_of(frame) == wanted, condition
            assert frame.rdd.getNumPartitions() == tasks, condition


@pytest.mark.covers("RD17")
def test_a_schema_of_some_columns(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 3)
    write_every_kind(broker, topic, "zstd")
    whole = batch(spark, broker, topic, HEADERS)
    for columns in ("value BINARY", "offset BIGINT, key BINARY, partition INT", "topic STRING", "timestamp TIMESTAMP"):
        frame = batch(spark, broker, topic, schema=columns)
        assert frame.columns == [each.split()[0] for each in columns.split(", ")]
        assert sorted(map(repr, frame.collect())) == sorted(map(repr, whole.select(frame.columns).collect()))
    with pytest.raises(AnalysisException) as raised:
        batch(spark, broker, topic, schema="value STRING").collect()
    assert "column 'value' of the schema has type string, but is read as binary" in short_message(str(raised.value))


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such-topic"}, "for topic 'no-such-topic'. What to do: create the topic"),
        (
            {"startingOffsets": '{"TOPIC":{"0":-2}}'},
            "startingOffsets lacks topic 'TOPIC', partitions 1, 2. Name each topic-partition",
        ),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"subscribe": ""}, "subscribe"),
    ],
)
def test_errors_on_the_driver_are_short(
    spark: SparkSession, kafka_4: Broker, topic: str, options: dict[str, str], said: str
) -> None:
    kafka_4.create_topic(topic, 3)
    given = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(AnalysisException) as raised:
        batch(spark, kafka_4, topic, given).collect()
    assert said.replace("TOPIC", topic) in short_message(str(raised.value))


def test_a_topic_without_records_has_no_rows(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 3)
    assert batch(spark, broker, topic).collect() == []
    assert batch(spark, broker, topic).count() == 0
