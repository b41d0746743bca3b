"""The settings of the tiered engine besides those of the broker and of topics: sizes of the tiers, and times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from spark_producer.broker.memory.plan import MemoryPlan
from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.storage.tiered.journal import JournalSettings
from spark_producer.broker.storage.tiered.ledgers import RollRules
from spark_producer.broker.storage.tiered.read_ahead import MAX_ENTRIES
from spark_producer.broker.storage.tiered.tail_cache import TTL_MS
from spark_producer.errors import ConfigError

MIB: Final = 1024 * 1024
_POSITIVE: Final = (
    "write_cache_bytes",
    "read_cache_bytes",
    "tail_cache_bytes",
    "index_cache_bytes",
    "tail_ttl_ms",
    "read_ahead_entries",
    "entry_log_bytes",
    "flush_tries",
    "compaction_rate",
)


@dataclass(frozen=True)
class TieredOptions:
    """Options of a tiered engine. Sizes are in bytes, times in the unit of their names.

    write_cache_bytes: size of both halves together (`dbStorage_writeCacheMaxSizeMb`).
    read_cache_bytes: size of the read cache (`dbStorage_readAheadCacheMaxSizeMb`).
    tail_cache_bytes: size of the cache of the newest batches, for readers near the end (`managedLedgerCacheSizeMB`).
    tail_ttl_ms: maximum time of a batch in the tail cache (`managedLedgerCacheEvictionTimeThresholdMillis`).
    index_engine: engine of the location index, "arrays" or "rocks" (RocksDB, as in BookKeeper).
    index_cache_bytes: memory of RocksDB (`dbStorage_rocksDB_blockCacheSize`).
    read_ahead_entries: maximum number of batches that are read ahead (`dbStorage_readAheadCacheBatchSize`).
    entry_log_bytes: maximum size of an entry log (`logSizeLimit`).
    flush_interval_s: maximum time between two flushes (`flushInterval`, 60 s in Pulsar).
    flush_retry_s: pause before a failed flush is retried.
    journal_timeout_s: maximum time that a flush waits for the journal to write its batches.
    flush_tries: number of failures of the same flush after which the engine accepts no more batches.
    gc_interval_s: interval of garbage collections (`gcWaitTime`, 15 minutes in Pulsar).
    gc_after_deletion_s: time after the deletion of a topic at which a garbage collection starts. It compacts like a major one.
    gc_spacing_s: minimum time between two garbage collections after deletions.
    minor_threshold, minor_interval_s: an entry log with a smaller fraction in use is compacted; interval of minor compactions
        (0.2, 1 h).
    major_threshold, major_interval_s: the same for major compactions (0.5 in Pulsar, 24 h).
    compaction_rate: maximum bytes per second that garbage collections read and copy, so that flushes can run in between
        (`compactionRateByBytes`; there 1,000,000, if it is enabled, and only for compactions).
    roll: when a log begins a new ledger.
    journal: settings of the journal.
    journal_dir: directory of the journal (`journalDirectories`); None for one in the data directory. On a separate disk flushes
        do not slow it down.
    ledger_dirs: directories of entry logs and their indexes (`ledgerDirectories`); empty for one in the data directory. All
        batches of a log are in one of them.
    skip_damage: whether the engine starts without the journal records that are missing or damaged.
    """

    write_cache_bytes: int = 16 * MIB
    read_cache_bytes: int = 16 * MIB
    tail_cache_bytes: int = 12 * MIB
    tail_ttl_ms: int = TTL_MS
    index_engine: str = "arrays"
    index_cache_bytes: int = 6 * MIB
    read_ahead_entries: int = MAX_ENTRIES
    entry_log_bytes: int = 1024 * MIB
    flush_interval_s: float = 60.0
    flush_retry_s: float = 1.0
    journal_timeout_s: float = 60.0
    flush_tries: int = 5
    gc_interval_s: float = 900.0
    gc_after_deletion_s: float = 5.0
    gc_spacing_s: float = 30.0
    minor_threshold: float = 0.2
    minor_interval_s: float = 3600.0
    major_threshold: float = 0.5
    major_interval_s: float = 86_400.0
    compaction_rate: int = 4 * MIB
    roll: RollRules = field(default_factory=RollRules)
    journal: JournalSettings = field(default_factory=JournalSettings)
    journal_dir: Path | None = None
    ledger_dirs: tuple[Path, ...] = ()
    skip_damage: bool = False

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise ConfigError(f"the tiered engine's {name} is {getattr(self, name)}. Use a positive number")
        if not 0 <= self.minor_threshold <= self.major_threshold < 1:
            raise ConfigError(
                f"the thresholds of compaction are {self.minor_threshold} (minor) and {self.major_threshold} (major). Use "
                "0 <= minor <= major < 1"
            )

    @property
    def chooses_directories(self) -> bool:
        """Whether the journal or ledgers are outside the data directory."""
        return self.journal_dir is not None or bool(self.ledger_dirs)


def options_of(plan: MemoryPlan) -> TieredOptions:
    """Return the options of an engine with the sizes of a memory plan."""
    return TieredOptions(
        write_cache_bytes=plan.write_cache,
        read_cache_bytes=plan.read_cache,
        tail_cache_bytes=plan.tail_cache,
        index_cache_bytes=plan.index_cache,
        journal=JournalSettings(max_memory_bytes=plan.journal_memory),
    )


def options_for(settings: BrokerSettings) -> TieredOptions:
    """Return the options for a broker with these settings. Relative directories are resolved in the working directory."""
    return replace(
        options_of(settings.memory),
        index_engine=settings.index_engine,
        skip_damage=settings.skip_damage,
        journal_dir=None if settings.journal_dir is None else Path(settings.journal_dir).absolute(),
        ledger_dirs=tuple(Path(path).absolute() for path in settings.ledger_dirs),
    )
