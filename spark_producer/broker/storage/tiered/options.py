"""The settings of the tiered engine that are no broker's and no topic's: sizes of its tiers and times, under the article's
names."""

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
    """How a tiered engine uses memory and disk. Sizes are in bytes, times in the unit of their names.

    write_cache_bytes: of both halves together (`dbStorage_writeCacheMaxSizeMb`).
    read_cache_bytes: of the read cache (`dbStorage_readAheadCacheMaxSizeMb`).
    tail_cache_bytes: of the newest batches that readers with a group wait for (`managedLedgerCacheSizeMB`).
    tail_ttl_ms: how long a batch stays there (`managedLedgerCacheEvictionTimeThresholdMillis`).
    index_engine: what keeps the index of locations, "arrays" or "rocks" (RocksDB, as the article's bookie has it).
    index_cache_bytes: the memory of RocksDB (`dbStorage_rocksDB_blockCacheSize`).
    read_ahead_entries: how many batches are read ahead at most (`dbStorage_readAheadCacheBatchSize`).
    entry_log_bytes: an entry log is ended before it would grow larger (`logSizeLimit`).
    flush_interval_s: a half is flushed after this time, however little is in it (`flushInterval`, 60 s in Pulsar).
    flush_retry_s: the pause before a flush that failed is tried again.
    journal_timeout_s: a flush fails when the journal has not taken its batches after this time.
    flush_tries: after so many failures of the same flush the engine takes no more batches.
    gc_interval_s: how often entry logs are searched for what nobody needs (`gcWaitTime`, 15 minutes in Pulsar).
    gc_after_deletion_s, gc_spacing_s: after a topic was deleted they are searched so soon, but not before so long has passed
        since the search before. It compacts as a major one does.
    minor_threshold, minor_interval_s: an entry log with a smaller part in use is compacted, looked for so often (0.2, 1 h).
    major_threshold, major_interval_s: the same, more thorough and less often (0.5 in Pulsar, 24 h).
    compaction_rate: the bytes per second that garbage collections read and copy at most, so that flushes come between
        (`compactionRateByBytes`; there 1,000,000, if it is switched on, and for compactions alone).
    roll: when a log begins a new ledger.
    journal: the settings of the journal.
    journal_dir: where the journal is (`journalDirectories`), None for inside of the data directory. On a disk of its own it is
        not slowed down by flushes.
    ledger_dirs: where entry logs and their indexes are (`ledgerDirectories`), none for inside. The batches of a log are all in
        one of them.
    skip_damage: whether the engine starts although records of the journal are missing or damaged, and goes on without them.
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
                raise ConfigError(f"the tiered engine's {name} is {getattr(self, name)}; it must be positive")
        if not 0 <= self.minor_threshold <= self.major_threshold < 1:
            raise ConfigError(
                f"the thresholds of compaction are {self.minor_threshold} (minor) and {self.major_threshold} (major); they "
                "rise, from 0 to below 1"
            )

    @property
    def chooses_directories(self) -> bool:
        """Whether the journal or ledgers lie elsewhere than in the data directory."""
        return self.journal_dir is not None or bool(self.ledger_dirs)


def options_of(plan: MemoryPlan) -> TieredOptions:
    """Return the options of an engine that keeps to a memory plan."""
    return TieredOptions(
        write_cache_bytes=plan.write_cache,
        read_cache_bytes=plan.read_cache,
        tail_cache_bytes=plan.tail_cache,
        index_cache_bytes=plan.index_cache,
        journal=JournalSettings(max_memory_bytes=plan.journal_memory),
    )


def options_for(settings: BrokerSettings) -> TieredOptions:
    """Return the options of the engine of a broker with these settings. Directories are relative to the working directory."""
    return replace(
        options_of(settings.memory),
        index_engine=settings.index_engine,
        skip_damage=settings.skip_damage,
        journal_dir=None if settings.journal_dir is None else Path(settings.journal_dir).absolute(),
        ledger_dirs=tuple(Path(path).absolute() for path in settings.ledger_dirs),
    )
