"""Every folder of jars that tests use, and the command that fetches them all before the tests' own deadlines begin.

It also makes the archives of their classes, which spare every JVM much of its start.

    python -m tests.support.jars

Owns: which jars there are. Must not know: where they are kept, or how they are fetched.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.class_archives import is_wanted, make_spark_archive, making
from tests.support.ivy import fetch_jars
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import (
    KAFKA_4,
    KAFKA_28,
    KAFKA_33,
    KAFKA_39,
    KAFKA_44,
    TEST_JVM,
    class_archive,
    kafka_jars,
)
from tests.support.schema_registry import registry_files

_SPARK_SINK = (
    # Fetched one by one: these versions were the newest when this was written, and they work together.
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)


def spark_sink_jars() -> list[Path]:
    """Spark's own source and sink for Kafka, with what they need."""
    return sorted(fetch_jars(*_SPARK_SINK, name="spark-kafka-sink", transitive=False).glob("*.jar"))


def make_kafka_archive(version: str) -> None:
    """Run one node with a topic, if there is no archive yet."""
    archive = class_archive(version)
    if is_wanted(archive):
        with making(archive) as options, KafkaCluster(version, jvm=(*TEST_JVM, *options)) as cluster:
            cluster.create_topic("usual-work", 1)
            cluster.stop(1)


def main() -> None:
    """Fetch and make what is not there yet."""
    spark_sink_jars()
    registry_files()
    for version in (KAFKA_39, KAFKA_4):
        kafka_jars(version)
        make_kafka_archive(version)
    for version in (KAFKA_28, KAFKA_33, KAFKA_44):
        kafka_jars(version)
    make_spark_archive()


if __name__ == "__main__":
    main()
