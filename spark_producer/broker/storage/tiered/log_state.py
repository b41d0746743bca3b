"""What an engine knows of one log besides its batches: its offsets, and its ledgers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.tiered.catalog import CatalogEntry
from spark_producer.broker.storage.tiered.ledgers import Ledger, RollRules, must_roll


@dataclass
class LogState:
    """The state of a log. The broker's thread changes it; the journal's threads change `written_end` and `confirmed_end` alone.

    end_offset: the offset that the next record gets.
    end_position: the bytes of all batches before it. Only differences of positions mean anything.
    written_end, confirmed_end: the offsets behind the last batch that the journal has written, and that is confirmed.
    ledgers: the last one takes the next batch, or is followed by a new one.
    is_noted: whether the catalog on the disk has the log for certain.
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
        """Return the state of a log that the catalog knows, with the end of what was flushed, all of which is confirmed."""
        ledgers = [replace(ledger) for ledger in entry.ledgers]
        start = entry.start_offset
        return cls(
            entry.log_id, entry.topic, entry.partition, start, end_offset, end_position, end_offset, end_offset, ledgers
        )

    @property
    def name(self) -> str:
        """The name of the partition, for people."""
        return f"{self.topic}-{self.partition}"

    @property
    def has_records(self) -> bool:
        """Whether the log holds any record, or held one that is missing."""
        return self.end_offset > self.start_offset or self.damage is not None

    def ledger_for(
        self, size: int, max_timestamp: int, settings: TopicSettings, rules: RollRules, now_ms: int
    ) -> Ledger:
        """Return the ledger for the next batch, which is a new one if the last one must not take it. Nothing is changed."""
        if self.ledgers and not must_roll(self.ledgers[-1], size, max_timestamp, settings, rules, now_ms):
            return self.ledgers[-1]
        return Ledger(self.end_offset, self.end_offset, now_ms, now_ms)

    def add_batch(self, ledger: Ledger, end_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        """Count a batch that was put into the cache, in the ledger that `ledger_for` returned."""
        self.count(ledger, end_offset, size, max_timestamp, now_ms)
        self.end_offset = end_offset
        self.end_position += size

    def count(self, ledger: Ledger, end_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        """Count a batch in the ledger that `ledger_for` returned, and nowhere else."""
        if not self.ledgers or self.ledgers[-1] is not ledger:
            self.ledgers.append(ledger)
        ledger.add_batch(end_offset, size, max_timestamp, now_ms)

    def confirm_all(self) -> None:
        """Take everything for confirmed, which was read from the disk again."""
        self.written_end = self.confirmed_end = self.end_offset


LogListener = Callable[[str, int], None]
"""Called with topic and partition of a log of which batches were confirmed, or can no longer be."""
