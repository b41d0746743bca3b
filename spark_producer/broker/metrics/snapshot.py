"""What the broker shows of itself: heap, tiers, page cache. Collected for the page of metrics, by the thread that serves it.

Counters are read as they are. Only what must be summed up over all partitions is asked of the broker's thread; if that does not
answer soon, the last sums are shown.
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
from spark_producer.broker.metrics.memory_report import USED
from spark_producer.broker.server import Server
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConnectionFailed

logger = escaping_logger(__name__)

SUMS_S: Final = 0.5
"""Seconds to wait for the broker's thread."""

_PULSAR_METRICS: Final = {
    "topics": "pulsar_broker_topics_count",
    "committed_offsets": "pulsar_broker_subscriptions_count",
}


def heap_counts(context: Context) -> HeapCounts:
    """Return the numbers of what the broker keeps in objects. Only the broker's thread may call this."""
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
    """Collects the readings of one broker, for one thread at a time that is not the broker's."""

    def __init__(self, context: Context, server: Server) -> None:
        self._context = context
        self._server = server
        self._counts = HeapCounts()
        self._requested_counts: Future[HeapCounts] | None = None

    def readings(self) -> Iterator[MetricReading]:
        """Yield everything that the broker counts, and what the system says of memory."""
        yield reading("info", 1, _gauge("the engine that keeps the records"), engine=self._context.topics.engine)
        yield from heap_readings(self._latest_counts())
        settings, of_engine = self._context.settings, list(self._context.topics.readings())
        plan = replace(settings.memory, publish_buffer=settings.publish_buffer_bytes)
        yield from plan_readings(plan, {each.name for each in of_engine})
        yield from self._publish_readings()
        yield from of_engine
        yield from system_readings()

    def _latest_counts(self) -> HeapCounts:
        """Return the sums of now, or the last ones if the broker's thread does not answer. It is asked once at a time."""
        try:
            if self._requested_counts is None:
                self._requested_counts = self._server.call(lambda: heap_counts(self._context))
            self._counts = self._requested_counts.result(SUMS_S)
        except (TimeoutError, ConnectionFailed):
            logger.debug("the broker's thread is busy; the page of metrics shows the sums of before")
        finally:
            if self._requested_counts is not None and self._requested_counts.done():
                self._requested_counts = None
        return self._counts

    def _publish_readings(self) -> Iterator[MetricReading]:
        clients = self._server.clients
        published = clients.published
        yield reading(
            "publish_pending_bytes",
            published.bytes.amount,
            _gauge("bytes of Produce requests that are handled and not answered"),
        )
        yield reading(
            "publish_paused_connections",
            published.paused,
            _gauge("connections that are not read from now", "pulsar_broker_throttled_connections"),
        )
        pauses = MetricDescription("times that a connection was not read from for a while", MetricType.COUNTER)
        yield reading("publish_pauses", published.pauses, pauses)
        paused = MetricDescription(
            "milliseconds for which connections were not read from, all together", MetricType.COUNTER
        )
        yield reading("publish_paused_ms", int(published.paused_ms), paused)
        limit = _gauge("bytes from which on producers are not read from, -1 for no limit")
        yield reading("publish_limit", self._context.settings.publish_buffer_bytes, limit)
        buffered = _gauge("bytes of requests, answers and waiting Fetches of all connections")
        yield reading("buffered_bytes", clients.budget.held, buffered)


def _gauge(text: str, counterpart: str = "") -> MetricDescription:
    return MetricDescription(text, MetricType.GAUGE, counterpart)


def heap_readings(counts: HeapCounts) -> Iterator[MetricReading]:
    """Yield the numbers of objects, and the bytes that they are estimated to take."""
    for name, count, _ in counts.parts():
        text = f"{name.replace('_', ' ')} that the broker keeps in memory"
        yield reading(f"heap_{name}", count, _gauge(text, _PULSAR_METRICS.get(name, "")))
    objects = _gauge("bytes that Python's objects take, estimated", "jvm_memory_bytes_used")
    yield reading("heap_estimated_bytes", counts.bytes, objects)


def plan_readings(plan: MemoryPlan, of_engine: Collection[str]) -> Iterator[MetricReading]:
    """Yield the size of each part of the memory plan that there is: a tier is, if the engine has a reading of its use.

    Args:
        plan: of the broker.
        of_engine: the names of the engine's readings.
    """
    meaning = _gauge("bytes that each part of the memory plan may take, -1 for no limit", "jvm_memory_direct_bytes_max")
    for share in SHARES:
        if not share.is_tier or USED[share.field] in of_engine:
            yield reading("memory_limit_bytes", getattr(plan, share.field), meaning, part=share.name)


def system_readings() -> Iterator[MetricReading]:
    """Yield what the system says of memory."""
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
