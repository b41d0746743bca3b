"""What is in a topic, read by clients that we did not write.

Owns: reading all partitions from the beginning to the end with kafka-python or confluent-kafka, with a deadline;
the same as a Spark DataFrame of the sink's columns; a summary for topics too large to hold.
Must not know: the package under test.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

Client = Literal["kafka-python", "confluent"]
READ_SECONDS = 60.0


class Row(NamedTuple):
    """One record as a foreign client sees it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass
class TopicSummary:
    """Totals of a topic whose offsets are dense from 0 in every partition."""

    records: Counter[int] = field(default_factory=Counter)
    key_bytes: int = 0
    value_bytes: int = 0

    @property
    def total(self) -> int:
        """Records of all partitions."""
        return sum(self.records.values())


def read_topic(
    bootstrap: str,
    topic: str,
    *,
    client: Client = "kafka-python",
    expected: int | None = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    timeout: float = READ_SECONDS,
    **settings: Any,
) -> list[Row]:
    """Read the whole topic, ordered by partition and offset.

    `expected` is asserted. `settings` go to the client (security, for example), in the client's own spelling.
    Raises TimeoutError when the end is not reached within `timeout` seconds.
    """
    read = _read_kafka_python if client == "kafka-python" else _read_confluent
    deadline = _Deadline(timeout, f"reading {topic} with {client}")
    rows = sorted(read(bootstrap, topic, isolation, deadline, settings), key=lambda row: (row.partition, row.offset))
    if expected is not None and len(rows) != expected:
        counts = dict(Counter(row.partition for row in rows))
        raise AssertionError(f"{len(rows)} records in {topic} instead of {expected}; by partition: {counts}")
    return rows


def end_offsets(bootstrap: str, topic: str, **settings: Any) -> dict[int, int]:
    """High watermark of every partition. `settings` go to librdkafka."""
    with _consumer(bootstrap, "read_uncommitted", settings) as consumer:
        return {partition: end for partition, (_, end) in _watermarks(consumer, topic).items()}


def count_rows(bootstrap: str, topic: str, *, transactional: bool, timeout: float = 300.0) -> int:
    """Rows that are visible: by the end offsets, or by reading what is committed, since markers have offsets too."""
    if not transactional:
        return sum(end_offsets(bootstrap, topic).values())
    deadline = _Deadline(timeout, f"counting {topic}")
    with _consumer(bootstrap, "read_committed", {}) as consumer:
        return sum(1 for _ in _until_the_end(consumer, topic, deadline))


def count_and_check(bootstrap: str, topic: str, *, timeout: float = 300.0) -> TopicSummary:
    """Count millions of records without keeping them; asserts that offsets are dense (so: no transactions).

    librdkafka checks every batch's CRC. About 3 s per million records.
    """
    summary = TopicSummary()
    deadline = _Deadline(timeout, f"counting {topic}")
    with _consumer(bootstrap, "read_uncommitted", {}) as consumer:
        for message in _until_the_end(consumer, topic, deadline):
            partition, offset = _known(message.partition()), _known(message.offset())
            if offset != summary.records[partition]:
                raise AssertionError(f"{topic}-{partition}: offset {offset} instead of {summary.records[partition]}")
            summary.records[partition] += 1
            summary.key_bytes += len(message.key() or b"")
            summary.value_bytes += len(message.value() or b"")
    return summary


def as_dataframe(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    """The rows with the sink's columns and types, for comparison with what was written."""
    columns = {
        "topic": pa.array([row.topic for row in rows], pa.string()),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
        "offset": pa.array([row.offset for row in rows], pa.int64()),
        "timestamp": pa.array([row.timestamp_ms * 1000 for row in rows], pa.timestamp("us", tz="UTC")),
        "key": pa.array([row.key for row in rows], pa.binary()),
        "value": pa.array([row.value for row in rows], pa.binary()),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in row.headers] for row in rows],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    return spark.createDataFrame(pa.table(columns), schema=READ_BACK_SCHEMA)


READ_BACK_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
    ]
)


class _Deadline:
    def __init__(self, seconds: float, what: str) -> None:
        self._end = time.monotonic() + seconds
        self._seconds, self._what = seconds, what

    def check(self, state: str) -> None:
        if time.monotonic() > self._end:
            raise TimeoutError(f"{self._what} took longer than {self._seconds:.0f} s; {state}")


def _read_kafka_python(
    bootstrap: str, topic: str, isolation: str, deadline: _Deadline, settings: dict[str, Any]
) -> Iterator[Row]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        enable_auto_commit=False,
        group_id=None,
        isolation_level=isolation,
        check_crcs=True,
        **settings,
    )
    try:
        numbers = consumer.partitions_for_topic(topic)
        if not numbers:
            raise AssertionError(f"there is no topic {topic} at {bootstrap}")
        partitions = [KafkaPythonPartition(topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while behind := [partition for partition in partitions if consumer.position(partition) < ends[partition]]:
            deadline.check(f"not at the end of {behind}")
            for records in consumer.poll(timeout_ms=200).values():
                for record in records:
                    yield Row(
                        topic,
                        record.partition,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        list(record.headers),
                    )
    finally:
        consumer.close()


def _read_confluent(
    bootstrap: str, topic: str, isolation: str, deadline: _Deadline, settings: dict[str, Any]
) -> Iterator[Row]:
    with _consumer(bootstrap, isolation, settings) as consumer:
        for message in _until_the_end(consumer, topic, deadline):
            yield Row(
                topic,
                _known(message.partition()),
                _known(message.offset()),
                message.timestamp()[1],
                message.key(),
                message.value(),
                _header_list(message),
            )


def _header_list(message: Message) -> list[tuple[str, bytes | None]]:
    # The type allows what may be given to a producer; what is received is always a list of pairs.
    return cast(list[tuple[str, bytes | None]], message.headers() or [])


def _until_the_end(consumer: Consumer, topic: str, deadline: _Deadline) -> Iterator[Message]:
    """Every message up to the end of now, as librdkafka reports it: markers of transactions are no messages."""
    reading = {number for number, (begin, end) in _watermarks(consumer, topic).items() if end > begin}
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in reading])
    while reading:
        deadline.check(f"not at the end of partitions {sorted(reading)}")
        for message in consumer.consume(10_000, timeout=0.2):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(_known(message.partition()))
            else:
                raise AssertionError(f"reading {topic}: {error}")


def _watermarks(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    found = consumer.list_topics(topic, timeout=READ_SECONDS).topics[topic]
    if found.error is not None:
        raise AssertionError(f"there is no topic {topic}: {found.error}")
    marks: dict[int, tuple[int, int]] = {}
    for number in sorted(found.partitions):
        low_and_high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=READ_SECONDS)
        if low_and_high is None:
            raise TimeoutError(f"no watermarks of {topic}-{number} within {READ_SECONDS:.0f} s")
        marks[number] = low_and_high
    return marks


def _consumer(bootstrap: str, isolation: str, settings: dict[str, Any]) -> Consumer:
    fixed = {
        "bootstrap.servers": bootstrap,
        "group.id": "read-back",  # required by the client, unused: partitions are assigned, nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        "log_level": 3,
    }
    return Consumer({**fixed, **settings})


def _known(number: int | None) -> int:
    assert number is not None, "a received message has a partition and an offset"
    return number
