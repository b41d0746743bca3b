"""An embedded broker whose tiers or segments are so small that flushes, compactions and retention never stop, until it is killed.

Run with a directory, a port, `sync` or `unsynced`, and the engine. It prints lines: `recovered TOPIC PARTITION HIGH_WATERMARK`
for each log that it opens, before anybody can connect; `ready`; then, of tiers, `did FLUSHES DELETED COMPACTED` again and again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from spark_producer.broker import BrokerSettings, LocalBroker, TopicSettings
from spark_producer.broker.storage.base import Recovered, Storage
from spark_producer.broker.storage.segments import SegmentStorage
from spark_producer.broker.storage.segments.log import SegmentLog
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


SMALL_SEGMENTS: Final = TopicSettings(segment_bytes=20 * KIB)


class PrintingTiers(TieredStorage):
    """Prints what each log holds when it is opened."""

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> TieredLog:
        log = super().open(topic, partition, settings, recovered)
        print("recovered", topic, partition, log.high_watermark, flush=True)
        return log


class PrintingSegments(SegmentStorage):
    """Prints what each log holds when it is opened."""

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> SegmentLog:
        log = super().open(topic, partition, settings, recovered)
        print("recovered", topic, partition, log.high_watermark, flush=True)
        return log


def serve_until_killed(directory: Path, port: int, sync: bool, engine: str) -> None:
    """Serve, and print now and then what was done."""
    tiers: list[PrintingTiers] = []

    def opened(data_dir: Path, settings: BrokerSettings) -> Storage:
        if engine == "segments":
            return PrintingSegments(data_dir, settings)
        tiers.append(PrintingTiers(data_dir, settings, options=TIERS))
        return tiers[-1]

    topic = SMALL_SEGMENTS if engine == "segments" else TopicSettings()
    settings = BrokerSettings(storage_engine=engine, sync_each_append=sync, retention_check_s=0.1, topic=topic)
    with LocalBroker(directory, port=port, settings=settings, open_storage=opened):
        print("ready", flush=True)
        while True:
            time.sleep(0.05)  # between two reports; the test kills this process
            for each in (storage.engine for storage in tiers):
                collected = each.ledgers[0].collector.counters
                print("did", each.flusher.counters.count, collected.deleted, collected.compacted, flush=True)


if __name__ == "__main__":
    serve_until_killed(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "sync", sys.argv[4])
