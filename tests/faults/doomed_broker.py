"""An embedded broker with tiers so small that flushes, compactions and retention never stop, until the process is killed.

Run with a directory, a port and `sync` or `unsynced`. It tells in lines: `recovered TOPIC PARTITION HIGH_WATERMARK` for each log
that it opens, before anybody can connect; `ready`; then again and again `did FLUSHES DELETED COMPACTED`, of this life.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from spark_producer.broker import BrokerSettings, LocalBroker, TopicSettings
from spark_producer.broker.storage.base import Recovered
from spark_producer.broker.storage.tiered import TieredOptions, TieredStorage
from spark_producer.broker.storage.tiered.journal import JournalSettings
from spark_producer.broker.storage.tiered.ledgers import RollRules
from spark_producer.broker.storage.tiered.log import TieredLog

KIB: Final = 1024
TIERS: Final = TieredOptions(
    write_cache_bytes=256 * KIB,
    read_cache_bytes=256 * KIB,
    tail_cache_bytes=64 * KIB,
    entry_log_bytes=256 * KIB,
    flush_interval_s=0.1,
    gc_interval_s=0.1,
    minor_interval_s=0.1,
    major_interval_s=0.2,
    minor_threshold=0.3,
    major_threshold=0.8,
    roll=RollRules(min_ms=0, max_entries=20),
    journal=JournalSettings(preallocated=64 * KIB),
)


class TellingTiers(TieredStorage):
    """Tells what each log holds when it is opened."""

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> TieredLog:
        log = super().open(topic, partition, settings, recovered)
        print("recovered", topic, partition, log.high_watermark, flush=True)
        return log


def serve_until_killed(directory: Path, port: int, sync: bool) -> None:
    """Serve, and tell now and then what was done."""
    storages: list[TellingTiers] = []

    def opened(data_dir: Path, settings: BrokerSettings) -> TellingTiers:
        storages.append(TellingTiers(data_dir, settings, options=TIERS))
        return storages[-1]

    settings = BrokerSettings(storage_engine="tiered", sync_each_append=sync, retention_check_s=0.1)
    with LocalBroker(directory, port=port, settings=settings, open_storage=opened):
        print("ready", flush=True)
        engine = storages[0].engine
        while True:
            time.sleep(0.05)
            collected = engine.ledgers[0].collector.counters
            print("did", engine.flusher.counters.count, collected.deleted, collected.compacted, flush=True)


if __name__ == "__main__":
    serve_until_killed(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "sync")
