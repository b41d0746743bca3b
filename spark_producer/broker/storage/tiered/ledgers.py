"""Ledgers: the parts of a log that are deleted together (Kafka's segments).

As in Pulsar, a ledger is not a file: its batches are stored among those of other logs. It is the unit of retention, and the
catalog has the ledgers of each log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spark_producer.broker.settings import TopicSettings
from spark_producer.record.batch_v2 import NO_TIMESTAMP


@dataclass(frozen=True)
class RollRules:
    """The rules by which a log begins a new ledger, besides the settings of its topic (Pulsar's ServiceConfiguration).

    A ledger ends when it is at least `min_ms` old and has `max_entries` batches or `max_bytes` bytes, or when it is `max_ms` old
    (managedLedgerMinLedgerRolloverTimeMinutes, managedLedgerMaxEntriesPerLedger, managedLedgerMaxSizePerLedgerMbytes,
    managedLedgerMaxLedgerRolloverTimeMinutes).
    """

    min_ms: int = 10 * 60 * 1000
    max_entries: int = 50_000
    max_bytes: int = 2 * 1024**3
    max_ms: int = 4 * 60 * 60 * 1000


@dataclass
class Ledger:
    """Consecutive batches of a log.

    first_timestamp and max_timestamp are of records; begun_ms and written_ms are of the broker's clock. All are in milliseconds
    since 1970, -1 for none.
    """

    first_offset: int
    end_offset: int
    begun_ms: int
    written_ms: int
    entries: int = 0
    bytes: int = 0
    first_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP

    def add_batch(self, end_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        """Add a batch after all others."""
        if not self.entries:
            self.first_timestamp = max_timestamp
        self.end_offset = end_offset
        self.entries += 1
        self.bytes += size
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.written_ms = now_ms

    @property
    def newest_ms(self) -> int:
        """The time for its retention: the maximum timestamp, or the time of the last write if records have no timestamps."""
        return self.written_ms if self.max_timestamp == NO_TIMESTAMP else self.max_timestamp


def must_roll(
    ledger: Ledger, size: int, max_timestamp: int, settings: TopicSettings, rules: RollRules, now_ms: int
) -> bool:
    """Return whether a batch with these values begins a new ledger."""
    if not ledger.entries:
        return False
    if ledger.bytes + size > settings.segment_bytes:
        return True
    timed = min(ledger.first_timestamp, max_timestamp) != NO_TIMESTAMP
    if timed and max_timestamp - ledger.first_timestamp > settings.roll_ms:
        return True
    age = now_ms - ledger.begun_ms
    is_large = ledger.entries >= rules.max_entries or ledger.bytes >= rules.max_bytes
    return age >= rules.max_ms or (age >= rules.min_ms and is_large)


def with_batches(ledgers: Sequence[Ledger], batches: Iterable[tuple[Ledger, int, int, int]]) -> list[Ledger]:
    """Return the ledgers of a log after a flush of more batches; the arguments are not changed.

    Args:
        batches: (ledger, end offset, size, maximum timestamp) of each, in order.
    """
    extended = [*ledgers[:-1], *(replace(ledger) for ledger in ledgers[-1:])]
    for live, end_offset, size, max_timestamp in batches:
        if not extended or extended[-1].first_offset != live.first_offset:
            extended.append(Ledger(live.first_offset, live.first_offset, live.begun_ms, live.begun_ms))
        if end_offset > extended[-1].end_offset:
            extended[-1].add_batch(end_offset, size, max_timestamp, live.written_ms)
    return extended
