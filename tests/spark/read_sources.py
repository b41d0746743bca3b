"""One topic, read by our source, by Spark's own Kafka source and by librdkafka: what each of them sees, in the order of offsets.

Owns: the spelling of a read's options in tests, the form in which rows are compared, and the comparison of all three.
Must not know: what a test expects of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.conftest import Broker
from tests.spark.frames import FORMAT
from tests.support.jars import spark_sink_jars
from tests.support.read_back import Row, read_topic

SPARKS = "kafka"
"""The format of Spark's own source."""
SECONDS = 120
HEADERS = {"includeHeaders": "true"}


class Seen(NamedTuple):
    """One record in a partition, without the type of its timestamp, which librdkafka does not give."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Partitions = dict[tuple[str, int], list[Seen]]
"""The records of each topic-partition, in the order in which they were read."""


def add_sparks_source(spark: SparkSession) -> None:
    """Give a session Spark's own Kafka source."""
    for jar in spark_sink_jars():
        spark.sql(f"ADD JAR '{jar}'")


def source_options(broker: Broker, topic: str, options: Mapping[str, object] | None = None) -> dict[str, str]:
    """Options of a read; those in `options` win."""
    given: dict[str, object] = {"kafka.bootstrap.servers": broker.bootstrap_servers, **(options or {})}
    if not given.keys() & {"subscribe", "subscribePattern", "assign"}:
        given["subscribe"] = topic
    return {name: str(value) for name, value in given.items()}


def batch(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    options: Mapping[str, object] | None = None,
    *,
    source: str = FORMAT,
    schema: str | None = None,
) -> DataFrame:
    """A batch of a topic."""
    reader = spark.read.format(source).options(**source_options(broker, topic, options))
    return (reader if schema is None else reader.schema(schema)).load()


def stream(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    options: Mapping[str, object] | None = None,
    *,
    source: str = FORMAT,
) -> DataFrame:
    """A stream of a topic."""
    return spark.readStream.format(source).options(**source_options(broker, topic, options)).load()


def partitions_of(frame: DataFrame) -> Partitions:
    """The rows of a batch with headers, by topic-partition."""
    columns = ("offset", "unix_millis(timestamp) as timestamp_ms", "key", "value", "headers")
    found: Partitions = {}
    for row in frame.selectExpr("topic", "partition", *columns).collect():
        headers = tuple((each.key, _bytes(each.value)) for each in row.headers or ())
        seen = Seen(row.offset, row.timestamp_ms, _bytes(row.key), _bytes(row.value), headers)
        found.setdefault((row.topic, row.partition), []).append(seen)
    return found


def partitions_in(rows: list[Row]) -> Partitions:
    """Return the records that a foreign client has read, in the same form."""
    found: Partitions = {}
    for row in rows:
        seen = Seen(row.offset, row.timestamp_ms, row.key, row.value, tuple(row.headers))
        found.setdefault((row.topic, row.partition), []).append(seen)
    return found


def assert_read_three_ways(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    options: Mapping[str, str] | None = None,
    isolation: str = "read_uncommitted",
) -> int:
    """Compare rows and their order in each partition, and return how many there are."""
    given = {**HEADERS, "kafka.isolation.level": isolation, **(options or {})}
    ours, sparks = (batch(spark, broker, topic, given, source=source) for source in (FORMAT, SPARKS))
    assert ours.schema == sparks.schema
    found = partitions_of(ours)
    assert found == partitions_of(sparks)
    rows = read_topic(broker.bootstrap_servers, topic, client="confluent", isolation=isolation)  # type: ignore[arg-type]
    assert found == partitions_in(rows)
    assert _type_counts(ours) == _type_counts(sparks)
    return len(rows)


def _type_counts(frame: DataFrame) -> list[tuple[int, int, int]]:
    """Rows by what librdkafka does not give: the type of the timestamp, and whether headers are null or empty."""
    counted = frame.groupBy("timestampType", F.coalesce(F.size("headers"), F.lit(-1)).alias("headers")).count()
    return sorted((row.timestampType, row.headers, row["count"]) for row in counted.collect())


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def run(writer: DataStreamWriter) -> StreamingQuery:
    """Read everything that is there now; raises what ended the query."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SECONDS), f"the query has not ended within {SECONDS} s"
    finally:
        query.stop()
    return query
