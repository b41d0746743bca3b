"""pyproducer: Kafka for DataFrames, read and written, the whole client in Python over Arrow columns.

Owns: the public names. They are loaded on first use, so importing this package is cheap in every Spark Python worker.
Must not know: how anything is done.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_producer import errors
from spark_producer.version import __version__ as __version__

if TYPE_CHECKING:
    import threading

    from pyspark.sql import SparkSession

    from spark_producer.accumulator import RecordMetadata, TableMetadata
    from spark_producer.config import ProducerConfig
    from spark_producer.consumer.table import read_table
    from spark_producer.dataframes import as_cloud_events, as_records
    from spark_producer.datasource.follow import Reports
    from spark_producer.datasource.write.driver.executor_check import HostFinding
    from spark_producer.producer import Producer
    from spark_producer.producer.mock import MockProducer
    from spark_producer.sender.transactions.partitions import ConsumerGroup, GroupOffset

__all__ = [
    "ConsumerGroup",
    "GroupOffset",
    "MockProducer",
    "Producer",
    "ProducerConfig",
    "RecordMetadata",
    "TableMetadata",
    "as_cloud_events",
    "as_records",
    "check",
    "errors",
    "follow",
    "read_table",
    "register",
    "warm_up",
]

_HOMES = {
    "ConsumerGroup": "spark_producer.sender.transactions.partitions",
    "GroupOffset": "spark_producer.sender.transactions.partitions",
    "MockProducer": "spark_producer.producer.mock",
    "Producer": "spark_producer.producer",
    "ProducerConfig": "spark_producer.config",
    "RecordMetadata": "spark_producer.accumulator",
    "TableMetadata": "spark_producer.accumulator",
    "as_cloud_events": "spark_producer.dataframes",
    "as_records": "spark_producer.dataframes",
    "read_table": "spark_producer.consumer.table",
}


def register(spark: SparkSession) -> None:
    """Register `format("pyproducer")` with this session, for `--py-files`, or where Spark's own lookup does not find it.

    The session becomes the active one of the calling thread, because Spark looks for Python data sources in that one alone. What
    `follow` has registered stays.

    Raises:
        ImportError: this PySpark is older than 4.0.
    """
    from spark_producer.datasource import PyProducerDataSource
    from spark_producer.datasource.registration import followed, make_active, register_once

    if spark not in followed:
        register_once(spark, PyProducerDataSource)
    make_active(spark)


def warm_up(spark: SparkSession) -> threading.Thread:
    """Start the Python processes of a batch write while the program goes on, so that its first write does not wait for them.

        spark_producer.warm_up(spark)
        df = spark.read…
        df.write.format("pyproducer")….save()

    It registers `format("pyproducer")`, as `register` does. Then a thread writes some rows through Spark to nowhere, and no
    broker is asked. The returned thread can be joined. Spark ends workers that are idle for a minute.

    Raises:
        ImportError: this PySpark is older than 4.0.
    """
    register(spark)
    from spark_producer.datasource.warm_up import start_warm_up

    return start_warm_up(spark)


def check(spark: SparkSession, options: Mapping[str, object], *, tasks: int = 8) -> list[HostFinding]:
    """Return whether executors find everything that a write with these options needs, as `pyproducer check` does on one machine.

        for host, finding in spark_producer.check(spark, {"kafka.bootstrap.servers": "kafka:9092", "topic": "orders"}):
            print(host, finding.state, finding.name, finding.text, finding.advice)

    It runs `tasks` tasks, with as many as there are cores, every executor is likely to get one. Nothing is written or created. It
    works in Spark Connect too.

    Raises:
        ConfigError: as the data source, of the same options.
    """
    from spark_producer.datasource.write.driver.executor_check import check_from_executors

    return check_from_executors(spark, options, tasks)


def follow(spark: SparkSession) -> Reports:
    """Return the reports of all writes that this session begins from now on (docs/reports.md).

        reports = spark_producer.follow(spark)
        df.write.format("pyproducer")….save()
        reports.latest.records, reports.latest.ranges["flights", 0]

    It registers `format("pyproducer")` with the session, as `register` does. A second call returns the same reports.

    Raises:
        ConfigError: Spark Connect, which has no way to bring reports back; there is the option `reportPath`.
    """
    from spark_producer.datasource.follow import follow

    return follow(spark)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("Producer", "read_table"):  # the data source warns in its workers itself
        from spark_producer import kernel

        kernel.warn_once()
    return getattr(importlib.import_module(_HOMES[name]), name)
