"""What the journal counts; BookKeeper's metrics of the same are named beside."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_producer.broker.storage.tiered.journal.group_commit import Trigger


@dataclass
class JournalCounters:
    """Totals since the journal was opened. Each is written by one thread, and may be read by any.

    added, added_bytes: records that were appended, and their batches' bytes (JOURNAL_ADD_ENTRY).
    groups: groups of records that were written, by what had them written (JOURNAL_NUM_FLUSH_MAX_WAIT and so on).
    written_bytes: bytes of these groups, with all that is around the batches (JOURNAL_WRITE_BYTES).
    padding_bytes: those of them that end a group.
    forces, force_seconds: how often groups were forced, and how long that took (JOURNAL_SYNC).
    forced_entries, forced_groups: what was forced (JOURNAL_FORCE_WRITE_GROUPING_COUNT, JOURNAL_FORCE_WRITE_BATCH_ENTRIES).
    dropped_bytes: bytes that need not stay in the page cache any more.
    rolls: files that were ended because they were large.
    """

    added: int = 0
    added_bytes: int = 0
    groups: dict[Trigger, int] = field(default_factory=lambda: dict.fromkeys(Trigger, 0))
    written_bytes: int = 0
    padding_bytes: int = 0
    forces: int = 0
    force_seconds: float = 0.0
    forced_entries: int = 0
    forced_groups: int = 0
    dropped_bytes: int = 0
    rolls: int = 0
