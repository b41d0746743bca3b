"""The state of one log in memory: its offsets and ledgers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.tiered.catalog import CatalogEntry
from spark_producer.broker.storage.tiered.ledgers import Ledger, RollRules, must_roll


@dataclass
class LogState:
    """The state of a log. The broker's thread changes it; the journal changes only `written_end` and `confirmed_end`.

    end_offset: the offset of the next record.
    end_position: position of the next batch: see `CachedBatch.position`.
    written_end, confirmed_end: the offsets after the last batch that the journal has written, and after the last confirmed one.
    ledgers: the last one takes the next batch, unless a new one must be started.
    is_in_catalog: whether the log is in the catalog on the disk.
    damage: why the log cannot be opened, None if it can.
    """

    log_id: int
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    end_position: int
    written_end: int
    confirmed_end: int
    ledgers: list[Ledger] = field(default_factory=list)
    is_in_catalog: bool = False
    damage: str | None = None

    @classmethod
    def of(cls, entry: CatalogEntry, end_offset: int, end_position: int) -> LogState:
        """Return the state of a log in the catalog, with the end of its flushed batches, which are confirmed."""
        ledgers = [replace(ledger) for ledger in entry.ledgers]
        start = entry.start_offset
        return cls(
            entry.log_id, entry.topic, entry.partition, start, end_offset, end_position, end_offset, end_offset, ledgers
        )

    @property
    def name(self) -> str:
        """The name of the partition, such as `orders-0`."""
        return f"{self.topic}-{self.partition}"

    @property
    def has_records(self) -> bool:
        """Whether the log has records, or had records that are missing."""
        return self.end_offset > self.start_offset or self.damage is not None

    def ledger_for(
        self, size: int, max_timestamp: int, settings: TopicSettings, rules: RollRules, now_ms: int
    ) -> Ledger:
        """Return the ledger for the next batch: the last one, or a new one that is not added yet."""
        if self.ledgers and not must_roll(self.ledgers[-1], size, max_timestamp, settings, rules, now_ms):
            return self.ledgers[-1]
        return Ledger(self.end_offset, self.end_offset, now_ms, now_ms)

    def add_batch(self, ledger: Ledger, end_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        """Add a batch that was put into the cache to the ledger that `ledger_for` returned, and advance the end of the log."""
        self.count(ledger, end_offset, size, max_timestamp, now_ms)
        self.end_offset = end_offset
        self.end_position += size

    def count(self, ledger: Ledger, end_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        """Add a batch to the ledger that `ledger_for` returned, without a change of the offsets."""
        if not self.ledgers or self.ledgers[-1] is not ledger:
            self.ledgers.append(ledger)
        ledger.add_batch(end_offset, size, max_timestamp, now_ms)

    def confirm_all(self) -> None:
        """Mark all batches as confirmed, since they were read from the disk."""
        self.written_end = self.confirmed_end = self.end_offset


LogListener = Callable[[str, int], None]
"""Called with topic and partition of a log when batches of it were confirmed, or cannot be confirmed any more."""
