"""The snapshot of the broker's metrics: heap, tiers, page cache. The thread that serves the metrics page collects it.

Counters are read directly. Only sums over all partitions are requested from the broker's thread; if it does not respond soon, the
previous sums are used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from spark_producer.broker.context import Context
from spark_producer.broker.counters import MetricDescription, MetricReading, MetricType, reading
from spark_producer.broker.memory.object_memory import HeapCounts
from spark_producer.broker.memory.plan import SHARES, MemoryPlan
from spark_producer.broker.memory.system_memory import system_memory
from spark_producer.broker.metrics.memory_report import METRIC_OF_PART
from spark_producer.broker.server import Server
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConnectionFailed

logger = escaping_logger(__name__)

SUMS_TIMEOUT_S: Final = 0.5
"""Maximum wait for the broker's thread in seconds."""

_PULSAR_METRICS: Final = {
    "topics": "pulsar_broker_topics_count",
    "committed_offsets": "pulsar_broker_subscriptions_count",
}


def heap_counts(context: Context) -> HeapCounts:
    """Return the numbers of objects that the broker keeps. Only the broker's thread may call this."""
    topics = list(context.topics)
    partitions = [partition for topic in topics for partition in topic.partitions]
    committed = context.coordinator.offsets.committed
    return HeapCounts(
        topics=len(topics),
        partitions=len(partitions),
        producers=sum(partition.producer_count for partition in partitions),
        transactional_ids=len(context.coordinator.transactions),
        committed_offsets=sum(map(len, committed.values())),
    )


class MetricsCollector:
    """Collects the metrics of one broker. One thread at a time may use it, not the broker's."""

    def __init__(self, context: Context, server: Server) -> None:
        self._context = context
        self._server = server
        self._counts = HeapCounts()
        self._requested_counts: Future[HeapCounts] | None = None

    def readings(self) -> Iterator[MetricReading]:
        """Yield all metrics of the broker, and the memory of the system."""
        yield reading("info", 1, _gauge("the engine that keeps the records"), engine=self._context.topics.engine)
        yield from heap_readings(self._latest_counts())
        settings, of_engine = self._context.settings, list(self._context.topics.readings())
        plan = replace(settings.memory, publish_buffer=settings.publish_buffer_bytes)
        yield from plan_readings(plan, {each.name for each in of_engine})
        yield from self._publish_readings()
        yield from of_engine
        yield from system_readings()

    def _latest_counts(self) -> HeapCounts:
        """Return the current sums, or the previous ones if the broker's thread does not respond. One request is pending at a
        time."""
        try:
            if self._requested_counts is None:
                self._requested_counts = self._server.call(lambda: heap_counts(self._context))
            self._counts = self._requested_counts.result(SUMS_TIMEOUT_S)
        except (TimeoutError, ConnectionFailed):
            logger.debug("the broker's thread is busy; the metrics page shows the previous sums")
        finally:
            if self._requested_counts is not None and self._requested_counts.done():
                self._requested_counts = None
        return self._counts

    def _publish_readings(self) -> Iterator[MetricReading]:
        clients = self._server.clients
        buffer = clients.publish_buffer
        yield reading(
            "publish_pending_bytes",
            buffer.bytes.amount,
            _gauge("bytes of Produce requests that are handled and have no response yet"),
        )
        yield reading(
            "publish_paused_connections",
            buffer.paused,
            _gauge("connections that are not read from now", "pulsar_broker_throttled_connections"),
        )
        pauses = MetricDescription("times that a connection was not read from for a while", MetricType.COUNTER)
        yield reading("publish_pauses", buffer.pauses, pauses)
        paused = MetricDescription(
            "milliseconds for which connections were not read from, all together", MetricType.COUNTER
        )
        yield reading("publish_paused_ms", int(buffer.paused_ms), paused)
        limit = _gauge("bytes from which on producers are not read from, -1 for no limit")
        yield reading("publish_limit", self._context.settings.publish_buffer_bytes, limit)
        buffered = _gauge("bytes of requests, responses and delayed Fetches of all connections")
        yield reading("buffered_bytes", clients.budget.held, buffered)


def _gauge(text: str, counterpart: str = "") -> MetricDescription:
    return MetricDescription(text, MetricType.GAUGE, counterpart)


def heap_readings(counts: HeapCounts) -> Iterator[MetricReading]:
    """Yield the numbers of objects, and their estimated memory."""
    for name, count, _ in counts.parts():
        text = f"{name.replace('_', ' ')} in memory"
        yield reading(f"heap_{name}", count, _gauge(text, _PULSAR_METRICS.get(name, "")))
    objects = _gauge("bytes that Python's objects take, estimated", "jvm_memory_bytes_used")
    yield reading("heap_estimated_bytes", counts.bytes, objects)


def plan_readings(plan: MemoryPlan, of_engine: Collection[str]) -> Iterator[MetricReading]:
    """Yield the size of each part of the memory plan; that of a tier only if the engine has a metric of its use.

    Args:
        plan: of the broker.
        of_engine: the names of the engine's metrics.
    """
    meaning = _gauge("bytes that each part of the memory plan may take, -1 for no limit", "jvm_memory_direct_bytes_max")
    for share in SHARES:
        if not share.is_tier or METRIC_OF_PART[share.field] in of_engine:
            yield reading("memory_limit_bytes", getattr(plan, share.field), meaning, part=share.name)


def system_readings() -> Iterator[MetricReading]:
    """Yield the memory of the system."""
    memory = system_memory()
    if memory.resident is not None:
        yield MetricReading(
            "process_resident_memory_bytes", memory.resident, _gauge("bytes of memory that the process has")
        )
    if memory.page_cache is not None:
        yield reading(
            "page_cache_bytes", memory.page_cache, _gauge("bytes of files in the page cache, of all processes")
        )
    if memory.available is not None:
        yield reading("machine_memory_bytes", memory.available, _gauge("bytes of memory that the process may have"))
