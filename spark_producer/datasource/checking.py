"""The check of a cluster from the executors, whose network and libraries are what a write uses."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from spark_producer.config import parse_options
from spark_producer.network import ConnectionSettings
from spark_producer.tools.checks import Finding, State, check_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "host string, name string, state string, text string, advice string"
TIMEOUT = 10.0
"""Seconds for each question."""


class HostFinding(NamedTuple):
    """What was found on a host."""

    host: str
    finding: Finding


def check_from_executors(spark: SparkSession, options: Mapping[str, object], tasks: int) -> list[HostFinding]:
    """Return what tasks find, each host once; see `spark_producer.check`.

    Raises:
        ConfigError: as `parse_options`.
    """
    config, sink = parse_options(options)
    look = partial(_look, ConnectionSettings.from_config(config), sink.topic)
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(look, SCHEMA).distinct().collect()
    found = [HostFinding(row.host, Finding(row.name, State(row.state), row.text, row.advice)) for row in rows]
    order = ["connection", "tls", "login", "brokers", "versions", "topic", "leaders", "min.insync.replicas", "rights"]
    return sorted(found, key=lambda one: (one.host, order.index(one.finding.name), one.finding.text))


def _look(
    settings: ConnectionSettings, topic: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Look from this task (executor)."""
    for _ in batches:
        found = [(platform.node(), *one) for one in check_cluster(settings, topic, timeout=TIMEOUT)]
        columns = list(zip(*found, strict=True))
        names = ("host", "name", "state", "text", "advice")
        yield pa.record_batch([pa.array(map(str, column), pa.string()) for column in columns], names=list(names))
