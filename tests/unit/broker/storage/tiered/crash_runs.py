"""A tiered engine on a simulated disk with random operations of a seed until it crashes, and the records of the next run."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from pathlib import Path

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredOptions, TieredStorage
from spark_producer.broker.storage.tiered.journal import JournalSettings
from spark_producer.broker.storage.tiered.ledgers import RollRules
from spark_producer.broker.storage.tiered.log import TieredLog
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import batches, check_crc, read_header
from tests.fakes.small_tiers import settle
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.batches import filler_batch

DATA_DIR = Path("/data")
KIB = 1024
FAILING_CALLS = ("write", "force", "sync_directory", "rename", "unlink", "truncate", "open", "reserve")


def killed(disk: SimulatedDisk) -> SimulatedDisk:
    """The disk as the next process finds it after a `kill -9`: what was written is there, and still not forced."""
    after = SimulatedDisk()
    after.boot = disk.boot
    with disk._lock:
        after._directories = copy.deepcopy(disk._directories)
    return after


@dataclass
class Expected:
    """The expected state of one partition: every batch that was admitted, how far they were acknowledged, and where it begins.

    `doubtful` is the batch during whose admission the journal failed, after which nothing was admitted: it may be there.
    """

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    doubtful: list[tuple[int, int, bytes]] = field(default_factory=list)
    acknowledged: int = 0
    fetched: int = 0
    start: int = 0
    may_start: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0


def _stored(batch: memoryview, base: int, count: int) -> tuple[int, int, bytes]:
    """Return the base offset, the offset after the last record, and the stored bytes of a batch of `count` records."""
    stored = bytearray(batch)
    stored[:8], stored[12:16] = base.to_bytes(8, "big"), bytes(4)
    return base, base + count, bytes(stored)


def small_options(rng: random.Random, directories: int) -> TieredOptions:
    return TieredOptions(
        journal_dir=Path("/journal") if directories else None,
        ledger_dirs=tuple(Path(f"/ledgers{number}") for number in range(directories)),
        write_cache_bytes=rng.choice([8, 16, 64]) * KIB,
        read_cache_bytes=rng.choice([4, 32]) * KIB,
        tail_cache_bytes=4 * KIB,
        entry_log_bytes=rng.choice([8, 32]) * KIB,
        flush_retry_s=0.001,
        flush_interval_s=rng.choice([0.002, 60.0]),
        roll=RollRules(min_ms=0, max_entries=rng.choice([3, 1000])),
        journal=JournalSettings(
            max_group_wait_ms=0,
            alignment=512,
            preallocated=rng.choice([0, 4 * KIB]),
            max_file_bytes=rng.choice([8, 64]) * KIB,
            max_memory_bytes=64 * KIB,
            unsynced_force_ms=rng.choice([0, 1000]),
        ),
    )


class EngineRun:
    """One run of an engine, with `directories` external ledger directories. `expected` is passed from run to run."""

    def __init__(
        self,
        disk: SimulatedDisk,
        rng: random.Random,
        expected: dict[int, Expected],
        *,
        sync: bool,
        directories: int = 0,
    ) -> None:
        self.disk, self.rng, self.expected, self.sync = disk, rng, expected, sync
        settings = BrokerSettings(sync_each_append=sync, sync_on_close=rng.random() < 0.5)
        self.storage = TieredStorage(DATA_DIR, settings, options=small_options(rng, directories), files=disk)
        topics = {"t": len(expected)} if expected else {}
        self.storage.recover(topics)
        self.logs: dict[int, TieredLog] = {}
        for index in sorted(expected):
            self.logs[index] = self.storage.open("t", index, self._topic_settings(), lambda header, batch: None)

    def _topic_settings(self) -> TopicSettings:
        return TopicSettings(segment_bytes=self.rng.choice([500, 4000, 10**6]))

    def check(self) -> None:
        """Acknowledged ⊆ recovered, recovered is a prefix of what was admitted, and nothing that was readable has gone."""
        for index, log in self.logs.items():
            expected = self.expected[index]
            recovered = log.high_watermark
            assert recovered >= max(expected.acknowledged, expected.fetched), f"partition {index} has lost records"
            starts = range(expected.start, expected.may_start + 1)
            assert log.start_offset in starts, f"partition {index} begins at {log.start_offset}, not in {starts}"
            possible = expected.batches + expected.doubtful
            ends = {0, log.start_offset, *(end for _, end, _ in possible)}
            assert recovered in ends, f"partition {index} ends within a batch"
            kept = [each for each in possible if each[0] >= log.start_offset and each[1] <= recovered]
            assert self.read_all(log) == kept, f"partition {index} has other batches"
            expected.batches, expected.doubtful = kept, []
            expected.acknowledged = expected.fetched = recovered
            expected.start = expected.may_start = log.start_offset

    def read_all(self, log: TieredLog) -> list[tuple[int, int, bytes]]:
        found, offset = [], log.start_offset
        while data := log.read(offset, self.rng.choice([1, 3000, 10**6])):
            for header, batch in batches(data):
                check_crc(header, batch)
                found.append((header.base_offset, header.last_offset + 1, bytes(batch)))
                offset = header.last_offset + 1
        assert offset == log.high_watermark
        return found

    def run_until_failure(self, steps: int) -> None:
        """Do random steps; from a random call of the disk on, all calls fail."""
        for name in FAILING_CALLS:
            self.disk.script.fail(name, times=None, after=self.rng.randrange(60))
        self.run_steps(steps)

    def run_steps(self, steps: int) -> None:
        """Do random steps."""
        for _ in range(steps):
            step = self.rng.choices(
                [self._admit, self._settle, self._flush, self._fetch, self._delete_old, self._create, self._collect],
                [20, 6, 2, 5, 1, 1, 2],
            )[0]
            try:
                step()
            except BrokerError as error:
                if error.code not in (Code.KAFKA_STORAGE_ERROR, Code.NOT_ENOUGH_REPLICAS):
                    raise
            except OSError:
                continue

    def _some(self) -> tuple[TieredLog, Expected]:
        if not self.logs:
            self._create()
        index = self.rng.choice(sorted(self.logs))
        return self.logs[index], self.expected[index]

    def _create(self) -> None:
        index = len(self.expected)
        if index < 4:
            self.logs[index] = self.storage.create("t", index, self._topic_settings())
            self.expected[index] = Expected()

    def _admit(self) -> None:
        log, expected = self._some()
        batch = filler_batch(self.rng.randrange(1, 5), size=self.rng.choice([61, 100, 700, 3000]))
        header = read_header(batch)
        writes = self.storage.engine.write_path
        had_failed = writes.failure is not None
        try:
            base = log.admit(batch, header)
        except BrokerError:
            if writes.failure is not None and not had_failed:
                base = expected.end if expected.batches else log.high_watermark
                expected.doubtful = [_stored(batch, base, header.records_count)]
            raise
        assert base == expected.end or not expected.batches
        expected.batches.append(_stored(batch, base, header.records_count))

    def _settle(self) -> None:
        settle(self.storage)
        self.acknowledge()

    def acknowledge(self) -> None:
        """Take for acknowledged what the logs say is."""
        for index, log in self.logs.items():
            expected = self.expected[index]
            expected.acknowledged = max(expected.acknowledged, log.high_watermark)

    def _flush(self) -> None:
        self.storage.engine.flusher.flush_now()

    def _collect(self) -> None:
        """Flushes come between its steps, or it ends half-way."""
        engine = self.storage.engine
        ledger = engine.ledgers[self.rng.randrange(len(engine.ledgers))]
        steps = ledger.collector.steps(self.rng.choice([0.0, 0.5, 0.9]))
        done = False
        while not done and self.rng.random() < 0.95:

            def go_on() -> None:
                nonlocal done
                done = next(steps, None) is None

            engine.flusher.between_flushes(go_on)
            if self.rng.random() < 0.3:
                engine.flusher.flush_now()
        steps.close()

    def _fetch(self) -> None:
        log, expected = self._some()
        offset = self.rng.randrange(log.start_offset, log.high_watermark + 1)
        data = log.read(offset, self.rng.choice([1, 5000]))
        for header, batch in batches(data):
            assert (header.base_offset, header.last_offset + 1, bytes(batch)) in expected.batches
            expected.fetched = max(expected.fetched, header.last_offset + 1)

    def _delete_old(self) -> None:
        log, expected = self._some()
        log.settings = TopicSettings(retention_bytes=self.rng.choice([0, 2000]))
        try:
            log.delete_old(0)
            if self.storage.engine.catalog.is_stored:
                expected.start = log.start_offset
        finally:
            expected.may_start = max(expected.may_start, log.start_offset)
            log.settings = self._topic_settings()

    def expect_no_more_than_a_prefix(self) -> None:
        """A loss of power may take what was never forced, though it was acknowledged."""
        for expected in self.expected.values():
            expected.acknowledged = expected.fetched = 0

    def end(self) -> None:
        """Close, so that no thread is left; the disk may refuse."""
        self.disk.script.heal()
        for log in self.logs.values():
            log.close(discard=True)
        self.storage.close()
