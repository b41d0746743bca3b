"""A process that appends to a tiered engine until it is killed. Run with a directory and an index,
it prints the acknowledged offsets line by line.

The batch at offset n has n % 7 + 1 records, and a size that follows from n; so the next run knows the expected batches.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredOptions
from spark_producer.broker.storage.tiered.log import TieredLog
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import read_header
from tests.fakes.small_tiers import SmallTiers, settle
from tests.support.waiting import retry
from tests.unit.broker.batches import filler_batch

PARTITIONS = 3


class TinyTiers(SmallTiers):
    """An engine that flushes all the time."""

    options = SmallTiers.options.__class__(
        write_cache_bytes=64 * 1024, entry_log_bytes=256 * 1024, journal=SmallTiers.options.journal
    )


def batch_at(offset: int) -> memoryview:
    return filler_batch(offset % 7 + 1, size=100 + offset % 911)


class TinyRocks(SmallTiers):
    """The same with the index in RocksDB."""

    options = replace(TinyTiers.options, index_engine="rocks")


class TinyTwo(TinyTiers):
    """The same with two ledger directories, and the journal in one of its own."""

    directories = 2

    def options_in(self, data_dir: Path) -> TieredOptions:
        ledgers = tuple(data_dir / f"ledgers{number}" for number in range(self.directories))
        return replace(self.options, journal_dir=data_dir / "journal", ledger_dirs=ledgers)


class TinyThree(TinyTwo):
    """With three, of which each has one of the partitions."""

    directories = 3


TIERS: dict[str, type[SmallTiers]] = {"arrays": TinyTiers, "rocks": TinyRocks, "two": TinyTwo, "three": TinyThree}
"""Engines by the kind of their index, or by the number of their ledger directories."""


def admit(log: TieredLog, batch: memoryview) -> int:
    """Admit a batch as soon as it fits into the write cache: the flush may take a while."""
    return retry(lambda: log.admit(batch, read_header(batch)), BrokerError, "space for a batch", pause=0.001)


def append_for_ever(directory: Path, index_engine: str) -> None:
    storage = TIERS[index_engine](directory, BrokerSettings())
    topics = {"t": PARTITIONS}
    storage.recover(topics)
    logs = [storage.open("t", index, TopicSettings(), lambda header, batch: None) for index in range(PARTITIONS)]
    ends = [log.high_watermark for log in logs]
    while True:
        for index, log in enumerate(logs):
            batch = batch_at(ends[index])
            ends[index] = admit(log, batch) + ends[index] % 7 + 1
        settle(storage)
        print(*(log.high_watermark for log in logs), flush=True)


if __name__ == "__main__":
    append_for_ever(Path(sys.argv[1]), sys.argv[2])
