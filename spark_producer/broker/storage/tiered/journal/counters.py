"""The metrics of the journal, each with the BookKeeper metric for the same value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_producer.broker.counters import counter, gauge
from spark_producer.broker.storage.tiered.journal.group_commit import Trigger


@dataclass
class JournalCounters:
    """Counters of the journal and its group commit, since it was opened. Entries are record batches."""

    added: int = counter("entries put into the journal", "bookie_journal_JOURNAL_ADD_ENTRY")
    added_bytes: int = counter("bytes put into the journal")
    queue: int = gauge("entries waiting to be written", "bookie_journal_JOURNAL_QUEUE_SIZE")
    memory: int = gauge("bytes of unconfirmed entries", "bookie_journal_JOURNAL_MEMORY_USED")
    written_bytes: int = counter("bytes written, padding and headers included", "bookie_journal_JOURNAL_WRITE_BYTES")
    padding_bytes: int = counter("bytes of padding, which end each group")
    flush_max_wait: int = counter(
        "groups written as the oldest entry had waited", "bookie_journal_JOURNAL_NUM_FLUSH_MAX_WAIT"
    )
    flush_max_outstanding_bytes: int = counter(
        "groups written as large", "bookie_journal_JOURNAL_NUM_FLUSH_MAX_OUTSTANDING_BYTES"
    )
    flush_empty_queue: int = counter(
        "groups written as the queue was empty", "bookie_journal_JOURNAL_NUM_FLUSH_EMPTY_QUEUE"
    )
    flush_asked: int = counter("groups written for a waiting flush or force")
    forces: int = counter("forces, each of which commits groups", "bookie_journal_JOURNAL_SYNC")
    force_us: int = counter("microseconds in forces", "bookie_journal_JOURNAL_SYNC")
    forced_groups: int = counter("forced groups", "bookie_journal_JOURNAL_FORCE_WRITE_GROUPING_COUNT")
    forced_entries: int = counter("forced entries", "bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES")
    dropped_bytes: int = counter("bytes of forced journal dropped from the page cache")
    rolls: int = counter("files ended as large")

    @property
    def groups(self) -> Mapping[Trigger, int]:
        """The number of groups written, by trigger."""
        return {trigger: getattr(self, _name(trigger)) for trigger in Trigger}

    def count_group(self, trigger: Trigger) -> None:
        """Count a group that is written."""
        name = _name(trigger)
        setattr(self, name, getattr(self, name) + 1)


def _name(trigger: Trigger) -> str:
    return f"flush_{trigger.value}"
