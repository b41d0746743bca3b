"""The metrics of the tiered engine: a dataclass for each tier, with the BookKeeper or Pulsar metric for the same value.

Invariant of the read path: the number of fetched entries is the sum of the hits of all tiers. `ReadPathCounters.fetched` = tail
hits + write cache hits of both halves + read cache hits + entry log reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from spark_producer.broker.counters import MetricReading, counter, gauge, readings
from spark_producer.broker.storage.tiered.journal import JournalCounters


@dataclass
class TailCounters:
    """Counters of the tail cache, Pulsar's managed ledger cache. Entries are record batches."""

    hit: int = counter("entries read from the tail cache", "pulsar_ml_cache_hits_rate")
    hit_bytes: int = counter("bytes read from the tail cache", "pulsar_ml_cache_hits_throughput")
    miss: int = counter("entries fetched that the tail cache lacked", "pulsar_ml_cache_misses_rate")
    miss_bytes: int = counter("bytes fetched that the tail cache lacked", "pulsar_ml_cache_misses_throughput")
    insert: int = counter("entries put into the tail cache", "pulsar_ml_cache_inserted_entries_total")
    evict_size: int = counter("entries dropped as the tail cache was full", "pulsar_ml_cache_evictions")
    evict_ttl: int = counter("entries dropped as too old", "pulsar_ml_cache_evicted_entries_total")
    evict_cursor: int = counter("entries dropped as read by every active cursor")
    invalidated: int = counter("entries dropped after an error, or with their log")
    bytes: int = gauge("bytes of the entries in the tail cache", "pulsar_ml_cache_used_size")
    entries: int = gauge("entries in the tail cache", "pulsar_ml_cache_entries")


@dataclass
class CursorCounters:
    """Counters of the partitions with a durable cursor: those whose readers are near the end, and the others."""

    active: int = gauge("partitions with a durable cursor near the end")
    inactive: int = gauge("partitions with a durable cursor far from the end")


@dataclass
class WriteCacheCounters:
    """Counters of the write cache."""

    hit_active: int = counter("entries read from the half being written", "bookie_write_cache_hits")
    hit_flushing: int = counter("entries read from the half being flushed", "bookie_write_cache_hits")
    miss: int = counter("entries that both halves lacked", "bookie_write_cache_misses")
    bytes: int = gauge("bytes in both halves", "bookie_write_cache_size")
    entries: int = gauge("entries in both halves", "bookie_write_cache_count")
    swaps: int = counter("swaps of the halves")
    throttled: int = counter("waits of requests for space", "bookie_throttled_write")
    rejected: int = counter("batches refused for lack of space", "bookie_rejected_write_requests")


@dataclass
class FlushCounters:
    """Counters of the flushes of a half to the entry log and the index."""

    count: int = counter("completed flushes", "bookie_flush")
    bytes: int = counter("bytes flushed", "bookie_flush_size")
    us: int = counter("microseconds in completed flushes", "bookie_flush")
    entrylog_us: int = counter("microseconds writing and forcing entry logs", "bookie_flush_entrylog")
    index_us: int = counter("microseconds adding to the index", "bookie_flush_locations_index")
    failed: int = counter("failed flushes, which are repeated")


@dataclass
class ReadCacheCounters:
    """Counters of the read cache, which read-ahead fills."""

    hit: int = counter("entries read from the read cache", "bookie_read_cache_hits")
    miss: int = counter("entries that the read cache lacked", "bookie_read_cache_misses")
    insert: int = counter("entries put into the read cache")
    evict: int = counter("entries dropped as their segment was reused")
    too_large: int = counter("entries too large to be cached")
    entries: int = gauge("entries in the read cache", "bookie_read_cache_count")
    bytes: int = gauge("bytes of the entries in the read cache", "bookie_read_cache_size")


@dataclass
class ReadAheadCounters:
    """Counters of read-ahead: entries that are read because those before them were requested."""

    batches: int = counter("read-aheads", "bookie_readahead_batch_count")
    entries: int = counter("entries read ahead", "bookie_readahead_batch_count")
    bytes: int = counter("bytes read ahead", "bookie_readahead_batch_size")
    us: int = counter("microseconds reading ahead", "bookie_readahead_time")
    stop_count: int = counter("read-aheads that ended at the maximum of entries")
    stop_bytes: int = counter("read-aheads that ended at the maximum of bytes")
    stop_other_log: int = counter("read-aheads that ended at another partition")
    stop_gap: int = counter("read-aheads that ended at a gap")
    stop_end: int = counter("read-aheads that ended at damage or the end of a file")


@dataclass
class IndexCounters:
    """Counters of the location index."""

    lookup: int = counter("lookups of a location", "bookie_read_locations_index_time")
    us: int = counter("microseconds in lookups", "bookie_read_locations_index_time")
    rows: int = gauge("locations in the index", "bookie_entries_count")
    block_cache_bytes: int = gauge("bytes of the index in memory")


@dataclass
class EntryLogCounters:
    """Counters of requested entries that were read from entry logs, without those that were read ahead."""

    read: int = counter("requested entries read from entry logs", "bookie_read_entrylog_time")
    read_bytes: int = counter("bytes of requested entries read from entry logs")
    read_page_cache: int = counter("requested entries in the page cache")
    read_disk: int = counter("requested entries read from the disk")
    read_us: int = counter("microseconds reading requested entries", "bookie_read_entrylog_time")


@dataclass
class ReadPathCounters:
    """Counters of all reads."""

    fetched: int = counter("entries returned to readers", "bookkeeper_server_READ_ENTRY_REQUEST")
    fetched_bytes: int = counter("bytes returned to readers", "bookie_READ_BYTES")
    catchup_bytes: int = counter("bytes returned from the read cache and entry logs")


@dataclass
class TierCounters:
    """The counters of all tiers of an engine."""

    tail: TailCounters = field(default_factory=TailCounters)
    cursor: CursorCounters = field(default_factory=CursorCounters)
    write_cache: WriteCacheCounters = field(default_factory=WriteCacheCounters)
    flush: FlushCounters = field(default_factory=FlushCounters)
    read_cache: ReadCacheCounters = field(default_factory=ReadCacheCounters)
    readahead: ReadAheadCounters = field(default_factory=ReadAheadCounters)
    index: IndexCounters = field(default_factory=IndexCounters)
    entrylog: EntryLogCounters = field(default_factory=EntryLogCounters)
    journal: JournalCounters = field(default_factory=JournalCounters)
    read: ReadPathCounters = field(default_factory=ReadPathCounters)

    @property
    def served(self) -> int:
        """The sum of the hits of all tiers. By the invariant of the read path it equals `read.fetched`."""
        in_memory = self.tail.hit + self.write_cache.hit_active + self.write_cache.hit_flushing + self.read_cache.hit
        return in_memory + self.entrylog.read

    def readings(self) -> Iterator[MetricReading]:
        """Yield all counters of all tiers."""
        for tier in fields(self):
            yield from readings(tier.name, getattr(self, tier.name))
