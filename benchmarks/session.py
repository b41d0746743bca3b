"""The Spark session and the Kafka broker of a benchmark, with their settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support.jars import spark_sink_jars
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4

ROOT = Path(__file__).parent.parent
SPARK_SINK = "4.2.0 (kafka-clients 3.9.1)"
# Kafka's own start script uses these options.
BROKER_JVM = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_JVM_ENDS_WITHIN = 30.0
BROKER_SETTINGS = {
    # These are the broker's own defaults; the tests have shorter ones.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    # A segment's two index files are mapped into memory at this size, 10 MiB by default. A device that reads far ahead fills
    # them with zeros at their first use: for 1,000 partitions that took 3 of the broker's 3.5 CPU seconds per million records.
    "log.index.size.max.bytes": "1048576",
}


def broker() -> KafkaCluster:
    """Return one node of the newest Kafka, which is not yet started."""
    return KafkaCluster(KAFKA_4, settings=BROKER_SETTINGS, jvm=BROKER_JVM)


def spark_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with two task slots, its own Kafka sink on the class path, and the given settings."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The workers import this package too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pyproducer-benchmarks")
        .config("spark.driver.memory", "4g")
        .config("spark.jars", ",".join(map(str, spark_sink_jars())))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={ROOT}/tests/support/log4j2.properties")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    return builder.config(map=dict(settings or {})).getOrCreate()


def end_session(spark: SparkSession) -> None:
    """Stop Spark and its JVM, so that the next session has a new one, as cold as this one was."""
    gateway: Any = SparkContext._gateway
    spark.stop()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_ENDS_WITHIN)


def jvm_pid(spark: SparkSession) -> int:
    """Return the process id of the driver's JVM, which in local mode runs the tasks too."""
    gateway: Any = spark.sparkContext._jvm
    return int(gateway.java.lang.ProcessHandle.current().pid())
