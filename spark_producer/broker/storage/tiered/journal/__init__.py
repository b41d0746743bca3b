"""The journal: a write-ahead log of the batches of all partitions. Many batches share a force (group commit).

Owns: its files (`records`, `file`, `file_names`, `old_files`), the rules for writing a group of batches (`queue`, `group_commit`)
and for forcing it (`adaptive_grouping`), the two threads that do so (`journal`), the replay (`replay`, `reader`) and its first
position (`mark`).
Must not know: partitions and offsets (a record has the id of a log and a batch), the caches, the entry logs.
"""

from spark_producer.broker.storage.tiered.journal.counters import JournalCounters
from spark_producer.broker.storage.tiered.journal.file_names import ids_in as journal_ids
from spark_producer.broker.storage.tiered.journal.group_commit import Trigger
from spark_producer.broker.storage.tiered.journal.journal import Journal
from spark_producer.broker.storage.tiered.journal.mark import LastMark
from spark_producer.broker.storage.tiered.journal.reader import JournalReader
from spark_producer.broker.storage.tiered.journal.records import JournalDamaged, JournalMissing, JournalRecord, Mark
from spark_producer.broker.storage.tiered.journal.replay import force_again, replay
from spark_producer.broker.storage.tiered.journal.settings import MIN_ALIGNMENT, JournalSettings

__all__ = [
    "MIN_ALIGNMENT",
    "Journal",
    "JournalCounters",
    "JournalDamaged",
    "JournalMissing",
    "JournalReader",
    "JournalRecord",
    "JournalSettings",
    "LastMark",
    "Mark",
    "Trigger",
    "force_again",
    "journal_ids",
    "replay",
]  # fmt: skip
