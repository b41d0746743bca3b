"""The settings of the journal, with BookKeeper's names and Pulsar's defaults (conf/bookkeeper.conf) where they exist."""

from __future__ import annotations

from dataclasses import dataclass

from spark_producer.errors import ConfigError

MIN_ALIGNMENT = 512
"""The unit in which disks write; groups of records begin at multiples of the alignment, which is a multiple of this."""


@dataclass(frozen=True)
class JournalSettings:
    """How records are grouped, and how files grow. Times are in milliseconds, sizes in bytes.

    max_group_wait_ms: a group is written when its oldest record has waited for so long (journalMaxGroupWaitMSec).
    buffered_writes_threshold: … or when it has more bytes than this, and more are waiting (journalBufferedWritesThreshold).
    buffered_entries_threshold: … or more records than this; 0 for no such limit (journalBufferedEntriesThreshold).
    flush_when_queue_empty: … or when no more are waiting (journalFlushWhenQueueEmpty).
    alignment: groups begin at multiples of it (journalAlignmentSize).
    preallocated: the disk is asked for this much space at a time (journalPreAllocSizeMB).
    max_file_bytes: from this size on a file is ended, and the next one begun (journalMaxSizeMB, there 2,048). A file goes when
        all of it was flushed, so everything lies on the disk twice up to this size.
    backups: how many files that are not needed any more are kept (journalMaxBackups, there 5).
    max_memory_bytes: records of this size may wait until they are confirmed (journalMaxMemorySizeMb).
    unsynced_force_ms: how often a journal is forced that confirms records before (journalPageCacheFlushIntervalMSec).
    drop_page_cache: whether pages of what was forced leave the page cache (journalRemoveFromPageCache).
    """

    max_group_wait_ms: float = 1
    buffered_writes_threshold: int = 512 * 1024
    buffered_entries_threshold: int = 0
    flush_when_queue_empty: bool = False
    alignment: int = 4096
    preallocated: int = 16 * 1024 * 1024
    max_file_bytes: int = 64 * 1024 * 1024
    backups: int = 0
    max_memory_bytes: int = 3 * 1024 * 1024
    unsynced_force_ms: float = 1000
    drop_page_cache: bool = True

    def __post_init__(self) -> None:
        if self.alignment < MIN_ALIGNMENT or self.alignment % MIN_ALIGNMENT:
            raise ConfigError(f"the journal's alignment is a multiple of {MIN_ALIGNMENT}, not {self.alignment}")
        for name, smallest in (
            ("max_group_wait_ms", 0), ("buffered_writes_threshold", 0), ("buffered_entries_threshold", 0),
            ("preallocated", 0), ("max_file_bytes", 1), ("backups", 0), ("max_memory_bytes", 1), ("unsynced_force_ms", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if value < smallest:
                raise ConfigError(f"the journal's {name} is at least {smallest}, not {value}")
