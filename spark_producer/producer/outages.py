"""Logs outages, in which batches wait for lost brokers or for partitions without a leader: once at the beginning, once at the
end.

A connection that is restored at once is not logged, and neither is a lost broker for which no batch waits.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.accumulator import ProducerBatch, RecordAccumulator
from spark_producer.common.addresses import format_address
from spark_producer.common.cluster import NO_LEADER, TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import PyProducerError
from spark_producer.sender import Metadata

REPORT_AFTER = 3.0
"""Minimum seconds of a loss before it is logged. A controlled shutdown moves leaders within a second."""

CHECK_INTERVAL = 1.0
"""Seconds between two checks of the batches that wait."""

MIN_BETWEEN_LOSSES = 10.0
"""Minimum seconds between two lines about losses, so that unstable brokers do not fill the log."""

FORGOTTEN_AFTER = 30.0
"""Seconds after which a lost broker is forgotten if no batch waits for it; a new attempt to connect records it again."""

MAX_BROKERS_IN_MESSAGE = 3
"""Maximum number of brokers in a line."""

logger = escaping_logger("pyproducer")


class BlockedBatches(NamedTuple):
    """The number and bytes of the batches that wait for lost brokers or for leaders, and their nodes (or `NO_LEADER`)."""

    batches: int
    size: int
    nodes: frozenset[int]


class _LostBroker(NamedTuple):
    name: str
    since: float
    reason: str


class Outages:
    """Detects and logs outages and their ends. Only the I/O thread calls it."""

    def __init__(self, accumulator: RecordAccumulator, metadata: Metadata) -> None:
        self._incomplete = accumulator.incomplete
        self._metadata = metadata
        self._lost: dict[int, _LostBroker] = {}
        self._leaderless: tuple[TopicPartition, float] | None = None
        """one of the partitions with batches and without a leader, and the time of the first one"""
        self._next_check = 0.0
        self._next_loss = 0.0
        self._reported: dict[int, _LostBroker] = {}
        """the nodes, or `NO_LEADER`, of the logged outage; empty without an outage"""
        self._last_blocked = BlockedBatches(0, 0, frozenset())
        """the blocked batches at the last check"""

    def on_disconnect(self, node: int, error: PyProducerError | None, now: float) -> None:
        """Record that a connection to a node, or an attempt, has failed."""
        reason = str(error).rstrip(".") if error is not None else "the connection was closed"
        known = self._lost.get(node)
        if known is not None:
            self._lost[node] = known._replace(reason=reason)
            return
        address = self._metadata.cluster.nodes.get(node)
        name = f"broker {node}" if node >= 0 else "a bootstrap server"
        if address is not None:
            name += f" at {format_address(address.host, address.port)}"
        self._lost[node] = _LostBroker(name, now, reason)

    def on_response(self, node: int) -> None:
        """Record that a node has answered a request."""
        if self._lost:
            self._lost.pop(node, None)

    def check(self, now: float) -> None:
        """Log the beginning, growth or end of an outage, if a check is due."""
        if now < self._next_check or not (self._reported or self._lost or self._is_late(now)):
            return
        self._next_check = now + CHECK_INTERVAL
        waiting = self._blocked_batches(now)
        blocking = self._blocking(waiting)
        if self._reported and not waiting.batches:
            self._log_end(now)
        elif waiting.batches and now >= self._next_loss:
            fresh = {node: lost for node, lost in blocking.items() if node not in self._reported}
            if any(now - lost.since >= REPORT_AFTER for lost in fresh.values()):
                self._next_loss = now + MIN_BETWEEN_LOSSES
                self._reported |= fresh
                self._log_loss(fresh, waiting, now)
        if waiting.batches:
            self._last_blocked = waiting
        else:
            self._lost = {node: lost for node, lost in self._lost.items() if now - lost.since < FORGOTTEN_AFTER}

    def _is_late(self, now: float) -> bool:
        """Return whether the oldest batch has waited for `REPORT_AFTER`, possibly for a leader."""
        expiry = self._incomplete.next_expiry()
        return expiry is not None and now - (expiry - self._incomplete.delivery_timeout) >= REPORT_AFTER

    def _blocked_batches(self, now: float) -> BlockedBatches:
        batches = [(batch, self._leader(batch)) for batch in self._incomplete.remaining()]
        blocked = [(batch, node) for batch, node in batches if node == NO_LEADER or node in self._lost]
        nodes = frozenset(node for _, node in blocked)
        leaderless = next((batch.topic_partition for batch, node in blocked if node == NO_LEADER), None)
        if leaderless is not None:
            self._leaderless = leaderless, now if self._leaderless is None else self._leaderless[1]
        elif blocked or not self._reported:
            self._leaderless = None
        return BlockedBatches(len(blocked), sum(batch.size for batch, _ in blocked), nodes)

    def _leader(self, batch: ProducerBatch) -> int:
        return batch.queue.node if batch.in_flight else self._metadata.cluster.leader_of(batch.topic_partition)[0]

    def _blocking(self, waiting: BlockedBatches) -> dict[int, _LostBroker]:
        """Return the brokers that batches wait for. If a partition has no leader, these are all lost brokers."""
        if NO_LEADER not in waiting.nodes or self._leaderless is None:
            return {node: self._lost[node] for node in waiting.nodes}
        brokers = {node: lost for node, lost in self._lost.items() if node >= 0}
        if brokers or self._reported.keys() - {NO_LEADER}:
            return brokers
        partition, since = self._leaderless
        return {NO_LEADER: _LostBroker(f"the leader of {partition}", since, "the brokers return none")}

    def _log_loss(self, fresh: dict[int, _LostBroker], waiting: BlockedBatches, now: float) -> None:
        first = min(fresh.values(), key=lambda lost: lost.since)
        logger.warning(
            "lost %s for %.1f s: %s. %s. They are sent when the outage ends, and fail %g s after they were queued "
            "(kafka.delivery.timeout.ms)",
            _names(fresh),
            now - first.since,
            first.reason,
            f"{_describe(waiting)} wait" if waiting.batches > 1 else f"{_describe(waiting)} waits",
            self._incomplete.delivery_timeout,
        )

    def _log_end(self, now: float) -> None:
        reported, self._reported = self._reported, {}
        leaderless, self._leaderless = self._leaderless, None
        seconds = now - min(lost.since for lost in reported.values())
        still = leaderless is not None and self._metadata.cluster.leader_of(leaderless[0])[0] == NO_LEADER
        if still or reported.keys() & self._lost.keys():
            logger.warning(
                "no batch waits for %s any more, after %.1f s: the batches have other leaders, or are complete",
                _names(reported),
                seconds,
            )
        else:
            logger.warning(
                "%s: back after %.1f s, and %s continued", _names(reported), seconds, _describe(self._last_blocked)
            )


def _names(lost: dict[int, _LostBroker]) -> str:
    names = [each.name for each in lost.values()]
    more = f" and {len(names) - MAX_BROKERS_IN_MESSAGE:,} more" if len(names) > MAX_BROKERS_IN_MESSAGE else ""
    return ", ".join(names[:MAX_BROKERS_IN_MESSAGE]) + more


def _describe(waiting: BlockedBatches) -> str:
    return f"{waiting.batches:,} batch{'es' * (waiting.batches != 1)} of {waiting.size:,} bytes"
