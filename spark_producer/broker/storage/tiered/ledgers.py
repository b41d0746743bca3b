"""Ledgers: the stretches into which a log is cut, so that old records can be deleted (what Kafka calls segments).

As in Pulsar, a ledger is no file: its batches lie among those of other logs. It is the unit of retention, and what the catalog
knows of a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spark_producer.broker.settings import TopicSettings
from spark_producer.record.batch_v2 import NO_TIMESTAMP


@dataclass(frozen=True)
class RollRules:
    """When a log begins a new ledger, besides what its topic's settings say (Pulsar's ServiceConfiguration).

    A ledger of `min_ms` milliseconds ends with `max_entries` batches or `max_bytes` bytes; one of `max_ms` milliseconds ends
    anyway (managedLedgerMinLedgerRolloverTimeMinutes, managedLedgerMaxEntriesPerLedger, managedLedgerMaxSizePerLedgerMbytes,
    managedLedgerMaxLedgerRolloverTimeMinutes).
    """

    min_ms: int = 10 * 60 * 1000
    max_entries: int = 50_000
    max_bytes: int = 2 * 1024**3
    max_ms: int = 4 * 60 * 60 * 1000


@dataclass
class Ledger:
    """Batches that follow each other in a log.

    first_timestamp and max_timestamp are those of records; begun_ms and written_ms are by the broker's clock. All are
    milliseconds since 1970, and -1 where there is none.
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
        """Count a batch, which comes after all others."""
        if not self.entries:
            self.first_timestamp = max_timestamp
        self.end_offset = end_offset
        self.entries += 1
        self.bytes += size
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.written_ms = now_ms

    @property
    def newest_ms(self) -> int:
        """The time by which the ledger expires: that of its newest record, or of its last batch if records have no time."""
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
    """Return the ledgers of a log after more batches were flushed; those that were given stay as they are.

    Args:
        batches: (ledger, end offset, size, largest timestamp) of each, in order.
    """
    extended = [*ledgers[:-1], *(replace(ledger) for ledger in ledgers[-1:])]
    for live, end_offset, size, max_timestamp in batches:
        if not extended or extended[-1].first_offset != live.first_offset:
            extended.append(Ledger(live.first_offset, live.first_offset, live.begun_ms, live.begun_ms))
        if end_offset > extended[-1].end_offset:
            extended[-1].add_batch(end_offset, size, max_timestamp, live.written_ms)
    return extended
