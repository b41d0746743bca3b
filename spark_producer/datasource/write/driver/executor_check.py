"""The check of a cluster from the executors, since a write uses their network and libraries."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions

from spark_producer.admin.checks import Finding, FindingState, check_cluster
from spark_producer.config import parse_options
from spark_producer.network import ConnectionSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "host: string, name: string, state: string, text: string, advice: string"
TIMEOUT = 10.0
"""Maximum seconds of each check."""


class HostFinding(NamedTuple):
    """A finding of the check on one host."""

    host: str
    finding: Finding


def check_from_executors(spark: SparkSession, options: Mapping[str, object], tasks: int) -> list[HostFinding]:
    """Return the findings of tasks, each host once; see `spark_producer.check`.

    Raises:
        ConfigError: as `parse_options`.
    """
    config, sink = parse_options(options)
    look = partial(_look, ConnectionSettings.from_config(config), sink.topic)
    # A plain function: those over Arrow want pandas on the driver.
    called = functions.udf(look, f"array<struct<{SCHEMA}>>", useArrow=False)("id")
    frame = spark.range(0, tasks, 1, tasks).select(functions.explode(called).alias("found"))
    rows = frame.select("found.*").distinct().collect()
    found = [HostFinding(row.host, Finding(row.name, FindingState(row.state), row.text, row.advice)) for row in rows]
    order = ["connection", "tls", "login", "brokers", "versions", "topic", "leaders", "min.insync.replicas", "rights"]
    return sorted(found, key=lambda one: (one.host, order.index(one.finding.name), one.finding.text))


def _look(settings: ConnectionSettings, topic: str | None, _task: int) -> list[tuple[str, ...]]:
    """Return the findings of this task (executor)."""
    return [(platform.node(), *map(str, one)) for one in check_cluster(settings, topic, timeout=TIMEOUT)]
