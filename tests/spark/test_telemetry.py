"""Telemetry of Spark's workers (KIP-714): a subscription for each client and a push an interval, however many tasks there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_producer.broker import LocalBroker
from spark_producer.broker.context import HandlerResult
from spark_producer.broker.requests.handlers import HANDLERS
from spark_producer.protocol import APIS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY, messages
from spark_producer.protocol.messages import NO_UUID
from tests.spark.frames import FORMAT
from tests.support.waiting import wait_until
from tests.unit.telemetry.pushed import Pushed, pushed
from tests.unit.telemetry.test_reporter import ANSWER, SENT

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

INTERVAL_S = 1
SECONDS = 180
BATCHES = 40
MAX_WORKERS = 4
"""Each of the session's two slots has a task at a time, which reads in one worker and writes in another."""
MAX_CLIENTS = 2 * MAX_WORKERS
"""A worker writes at one time and reads at another: it has a producer and a reader."""
CONSUMED = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"


class AskingBroker:
    """The embedded broker with a plugin that takes metrics, and gives each client an id: the requests by that id."""

    def __init__(self) -> None:
        self.subscriptions: Counter[bytes] = Counter()
        self.pushes: dict[bytes, list[Pushed]] = defaultdict(list)

    def subscribe(self, _context: object, _version: int, request: Any) -> HandlerResult[Any]:
        known = request.client_instance_id
        instance = known if known != NO_UUID else (len(self.subscriptions) + 1).to_bytes(16, "big")
        self.subscriptions[instance] += 1
        return HandlerResult(ANSWER._replace(client_instance_id=instance, push_interval_ms=INTERVAL_S * 1000))

    def push(self, _context: object, _version: int, request: Any) -> HandlerResult[Any]:
        content = pushed(request._replace(metrics=bytes(request.metrics)))
        self.pushes[request.client_instance_id].append(content)
        return HandlerResult(messages.PushTelemetryResponse())

    def clients(self, name: str) -> list[bytes]:
        """Return the clients that have pushed a metric three times."""
        return [
            each for each, found in list(self.pushes.items()) if sum((name, "") in one.points for one in found) >= 3
        ]


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalBroker, AskingBroker]]:
    asking = AskingBroker()
    for api, handler in ((GET_TELEMETRY_SUBSCRIPTIONS, asking.subscribe), (PUSH_TELEMETRY, asking.push)):
        monkeypatch.setitem(APIS, api.key, api)
        monkeypatch.setitem(HANDLERS, api.key, handler)
    with LocalBroker(default_partitions=2) as broker:
        yield broker, asking


def stream(frame: DataFrame, servers: str, topic: str, home: Path) -> StreamingQuery:
    writer = frame.writeStream.format(FORMAT).option("kafka.bootstrap.servers", servers).option("topic", topic)
    return writer.option("checkpointLocation", str(home / topic)).trigger(processingTime="200 milliseconds").start()


def test_a_client_asks_once_and_pushes_once_an_interval(
    spark: SparkSession, asking: tuple[LocalBroker, AskingBroker], tmp_path: Path
) -> None:
    broker, requests = asking
    servers = broker.bootstrap_servers
    for topic in ("first", "second"):
        broker.create_topic(topic, 2)
    rates = spark.readStream.format("rate").option("rowsPerSecond", 100).load().selectExpr("string(value) as value")
    again = (
        spark.readStream.format(FORMAT)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "first")
        .option("startingOffsets", "earliest")
        .load()
    )
    queries = [stream(rates, servers, "first", tmp_path)]
    try:
        queries.append(stream(again.select("key", "value"), servers, "second", tmp_path))

        def batches() -> int:
            for query in queries:
                if (error := query.exception()) is not None:
                    raise error
            return sum((query.lastProgress or {"batchId": 0})["batchId"] for query in queries)

        wait_until(lambda: batches() > BATCHES, "micro-batches", seconds=SECONDS, pause=0.2)
        wait_until(lambda: requests.clients(SENT), "three pushes of a producer", seconds=SECONDS, pause=0.2)
        wait_until(lambda: requests.clients(CONSUMED), "three pushes of a reader", seconds=SECONDS, pause=0.2)
    finally:
        for query in queries:
            query.stop()
    assert set(requests.subscriptions.values()) == {1}, "no client asks again"
    assert len(requests.subscriptions) <= MAX_CLIENTS < BATCHES, "not one for each task"
    assert requests.pushes.keys() <= requests.subscriptions.keys()
    for found in requests.pushes.values():
        moments = sorted({point.at for push in found for point in push.points.values()})
        assert len(moments) == len(found)
        assert all(later - earlier >= INTERVAL_S * 1e9 for earlier, later in pairwise(moments))
