"""The settings of the journal, with BookKeeper's names and Pulsar's defaults (conf/bookkeeper.conf) where they exist."""

from __future__ import annotations

from dataclasses import dataclass

from spark_producer.errors import ConfigError

MIN_ALIGNMENT = 512
"""Minimum alignment in bytes: the unit in which disks write. The alignment is a multiple of it."""


@dataclass(frozen=True)
class JournalSettings:
    """Settings of group commit and of the files. Times are in milliseconds, sizes in bytes.

    max_group_wait_ms: maximum time that the oldest record waits before its group is written (journalMaxGroupWaitMSec).
    buffered_writes_threshold: a group is also written if it has more bytes than this, and more records are queued
        (journalBufferedWritesThreshold).
    buffered_entries_threshold: … or more records than this; 0 for no limit (journalBufferedEntriesThreshold).
    flush_when_queue_empty: … or if no more records are queued (journalFlushWhenQueueEmpty).
    alignment: groups begin at multiples of it (journalAlignmentSize).
    preallocated: number of bytes that are reserved on the disk at a time (journalPreAllocSizeMB).
    max_file_bytes: size at which a new file is created (journalMaxSizeMB, there 2,048). A file is removed when all of it was
        flushed, so up to this size all data is on the disk twice.
    backups: number of files that are kept although they are not needed any more (journalMaxBackups, there 5).
    max_memory_bytes: maximum size of all records that are not confirmed (journalMaxMemorySizeMb).
    unsynced_force_ms: interval of the forces of a journal that confirms records earlier (journalPageCacheFlushIntervalMSec).
    drop_page_cache: whether forced pages are dropped from the page cache (journalRemoveFromPageCache).
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
            raise ConfigError(f"the journal's alignment is {self.alignment}. Use a multiple of {MIN_ALIGNMENT}")
        for name, smallest in (
            ("max_group_wait_ms", 0), ("buffered_writes_threshold", 0), ("buffered_entries_threshold", 0),
            ("preallocated", 0), ("max_file_bytes", 1), ("backups", 0), ("max_memory_bytes", 1), ("unsynced_force_ms", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if value < smallest:
                raise ConfigError(f"the journal's {name} is {value}. Use {smallest} or more")
