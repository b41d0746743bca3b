"""The Spark session and the Kafka broker of a benchmark.

Owns: their settings. Must not know: what is measured.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.ivy import fetch_jars
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4

ROOT = Path(__file__).parent.parent
SPARK_SINK = "4.2.0 (kafka-clients 3.9.1)"
_SINK_JARS = (
    # Fetched one by one: these versions are what was published when this was written, and they work together.
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
# What Kafka's own start script uses.
_BROKER_JVM = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_BROKER_SETTINGS = {
    # The broker's own defaults, where the tests have shorter ones.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
}


def broker() -> KafkaCluster:
    """One node of the newest Kafka, not yet started."""
    return KafkaCluster(KAFKA_4, settings=_BROKER_SETTINGS, jvm=_BROKER_JVM)


def spark_session() -> SparkSession:
    """Two task slots, with Spark's own Kafka sink on the class path."""
    jars = fetch_jars(*_SINK_JARS, name="spark-kafka-sink", transitive=False)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The workers import this package too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return (
        SparkSession.builder.master("local[2]")
        .appName("pyproducer-benchmarks")
        .config("spark.driver.memory", "4g")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={ROOT}/tests/support/log4j2.properties")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def jvm_pid(spark: SparkSession) -> int:
    """Process id of the driver's JVM, which in local mode runs the tasks too."""
    gateway: Any = spark.sparkContext._jvm
    return int(gateway.java.lang.ProcessHandle.current().pid())
