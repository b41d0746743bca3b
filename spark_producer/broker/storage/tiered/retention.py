"""The rules by which old ledgers are deleted: Kafka's `cleanup.policy=delete` (UnifiedLog.deleteOldSegments), with whole
ledgers."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.broker.settings import UNLIMITED, TopicSettings
from spark_producer.broker.storage.tiered.ledgers import Ledger


def count_expired(ledgers: Sequence[Ledger], settings: TopicSettings, now_ms: int, high_watermark: int) -> int:
    """Return the number of ledgers to delete, from the oldest on. All of them end at `high_watermark` or before."""
    confirmed = next((index for index, each in enumerate(ledgers) if each.end_offset > high_watermark), len(ledgers))
    return min(confirmed, max(_past_their_time(ledgers, settings, now_ms), _beyond_the_size(ledgers, settings)))


def _past_their_time(ledgers: Sequence[Ledger], settings: TopicSettings, now_ms: int) -> int:
    if settings.retention_ms == UNLIMITED:
        return 0
    young = (index for index, ledger in enumerate(ledgers) if now_ms - ledger.newest_ms <= settings.retention_ms)
    return next(young, len(ledgers))


def _beyond_the_size(ledgers: Sequence[Ledger], settings: TopicSettings) -> int:
    if settings.retention_bytes == UNLIMITED:
        return 0
    too_many = sum(ledger.bytes for ledger in ledgers) - settings.retention_bytes
    for count, ledger in enumerate(ledgers):
        too_many -= ledger.bytes
        if too_many < 0:
            return count
    return len(ledgers)
