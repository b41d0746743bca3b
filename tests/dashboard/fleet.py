"""A small fleet that Prometheus scrapes: a driver of Spark with two streams, the clients of a Kafka, an embedded broker.

Orders go to Kafka by one stream, with some dead letters, and from there to the embedded broker by another.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_producer
from spark_producer.broker import BrokerSettings, LocalBroker
from tests.dashboard.panels import ROOT, Target, targets, variable_queries
from tests.dashboard.pushed import PushedMetrics
from tests.support.ports import free_ports
from tests.support.prometheus import HOST, Prometheus, Series
from tests.support.telemetry_kafka import TelemetryKafka, telemetry_kafka

FORMAT = "pyproducer"
ROWS_PER_SECOND = 300
WAVE = "sin(value / 3000.0) > random() * 3 - 1.5"
"""Keeps more rows at some times than at others, so that the curves are no straight lines."""


class Fleet:
    """The fleet while it runs. Grafana's queries are those of `panels`."""

    def __init__(self, prometheus: Prometheus, broker: LocalBroker, queries: list[StreamingQuery]) -> None:
        self.prometheus = prometheus
        self._broker = broker
        self._queries = queries

    def unanswered(self) -> list[str]:
        """Return the queries of panels and variables without a number in their answer. Raises the error of a stream."""
        for query in self._queries:
            if (error := query.exception()) is not None:
                raise error
        self.read()
        answers = [(target.expression, self.prometheus.query(target.expression)) for target in targets()]
        answers += [(metric, self.prometheus.query(metric)) for metric in variable_queries()]
        return [query for query, answer in answers if not _numbers(answer)]

    def read(self) -> int:
        """Read what is in the embedded broker, from its start."""
        options = {"bootstrap.servers": self._broker.bootstrap_servers}
        return int(spark_producer.read_table("loud-orders", options, columns=["offset"]).num_rows)

    def answers(self, seconds: float) -> Iterator[tuple[Target, list[Series]]]:
        """Yield each query with its answers of the last `seconds`."""
        now = time.time()
        for target in targets():
            yield target, self.prometheus.query_range(target.expression, now - seconds, now, max(1.0, seconds / 120))


def _numbers(answer: list[Series]) -> list[float]:
    return [value for series in answer for _, value in series.points if value == value]


@contextmanager
def fleet(spark: SparkSession, home: Path) -> Iterator[Fleet]:
    """Start the fleet; its streams keep their checkpoints in `home`."""
    with ExitStack() as life:
        kafka = life.enter_context(telemetry_kafka())
        broker = life.enter_context(LocalBroker(settings=BrokerSettings(storage_engine="tiered"), metrics_port=0))
        for topic in ("orders", "dead-orders"):
            kafka.cluster.create_topic(topic, 2)
        broker.create_topic("loud-orders", 2)
        ports = {"drivers": _driver_page(life, spark), "clients": _clients_page(life, kafka)}
        assert broker.metrics_port is not None
        ports["brokers"] = broker.metrics_port
        queries = _streams(spark, kafka.cluster.bootstrap_servers, broker.bootstrap_servers, home)
        for query in queries:
            life.callback(query.stop)
        yield Fleet(life.enter_context(Prometheus(ports)), broker, queries)


def _driver_page(life: ExitStack, spark: SparkSession) -> int:
    """Serve the metrics of the block for Prometheus in docs/reports.md; return the port."""
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:(?!```).)*REGISTRY\.register.*?)```", page, re.DOTALL)
    registry = CollectorRegistry()
    scope: dict[str, Any] = {"reports": spark_producer.follow(spark)}
    exec(block.replace("REGISTRY.register(Writes())", "writes = Writes()"), scope)
    registry.register(scope["writes"])
    return _serve(life, registry)


def _clients_page(life: ExitStack, kafka: TelemetryKafka) -> int:
    registry = CollectorRegistry()
    registry.register(PushedMetrics(kafka))
    return _serve(life, registry)


def _serve(life: ExitStack, registry: CollectorRegistry) -> int:
    (port,) = free_ports(1)
    server, thread = start_http_server(port, HOST, registry)
    life.callback(thread.join)
    life.callback(server.server_close)
    life.callback(server.shutdown)
    return port


def _streams(spark: SparkSession, kafka: str, embedded: str, home: Path) -> list[StreamingQuery]:
    rates = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load().where(WAVE)
    orders = rates.selectExpr(
        "string(value % 100) as key",
        "concat('order ', value) as value",
        "cast(if(value % 50 = 0, -5, null) as int) as partition",
    )
    dead = {"deadLetterTopic": "dead-orders", "maxBadRecordsRatio": "1"}
    first = _write(orders, {"kafka.bootstrap.servers": kafka, "topic": "orders", **dead}, home / "orders")
    from_kafka = {"kafka.bootstrap.servers": kafka, "subscribe": "orders", "startingOffsets": "earliest"}
    loud = (
        spark.readStream.format(FORMAT).options(**from_kafka).load().selectExpr("key", "upper(string(value)) as value")
    )
    second = _write(loud, {"kafka.bootstrap.servers": embedded, "topic": "loud-orders"}, home / "loud-orders")
    return [first, second]


def _write(frame: DataFrame, options: dict[str, str], checkpoint: Path) -> StreamingQuery:
    writer = frame.writeStream.format(FORMAT).options(**options).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="1 second").start()
