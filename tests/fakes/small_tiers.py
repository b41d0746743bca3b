"""The tiered engine for tests: small tiers, and one that confirms each batch before it is asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered import TieredOptions, TieredStorage
from spark_producer.broker.storage.tiered.engine import Engine
from spark_producer.broker.storage.tiered.journal import JournalSettings
from spark_producer.broker.storage.tiered.log import TieredLog
from spark_producer.broker.storage.tiered.log_state import LogState
from spark_producer.record.batch_v2 import BatchHeader
from tests.support.simulated_disk import SimulatedDisk

DEADLINE = 30.0
JOURNAL_FILES = "*.txn"
KIB = 1024

SMALL_JOURNAL = JournalSettings(max_group_wait_ms=0, preallocated=64 * KIB)
SMALL_TIERS = TieredOptions(
    write_cache_bytes=4096 * KIB,
    read_cache_bytes=256 * KIB,
    tail_cache_bytes=64 * KIB,
    entry_log_bytes=256 * KIB,
    journal=SMALL_JOURNAL,
)
"""Tiers that a test fills and flushes many times."""


def settle(storage: TieredStorage) -> None:
    """Wait until all that was admitted is confirmed, or the journal has failed."""
    journal = storage.engine.journal
    ticket = journal.counters.added
    assert journal.wait_written(ticket, DEADLINE), "the journal has written nothing for a long time"
    if storage.engine.sync and journal.forced_ticket < ticket:
        assert journal.force_now(DEADLINE), "the journal has forced nothing for a long time"


def collect(engine: Engine, threshold: float = 0.0) -> None:
    """Collect the garbage of all ledger directories at once, however much is copied."""
    for ledger in engine.ledgers:
        engine.flusher.between_flushes(partial(list, ledger.collector.steps(threshold)))


class SmallTiers(TieredStorage):
    """A tiered engine as it is, in a small size."""

    options: ClassVar[TieredOptions] = SMALL_TIERS

    def __init__(self, data_dir: Path, settings: BrokerSettings, files: FileOps | None = None) -> None:
        super().__init__(data_dir, settings, options=self.options_in(data_dir), files=files)

    def options_in(self, data_dir: Path) -> TieredOptions:
        """The options for this data directory."""
        return self.options


class PromptTiers(SmallTiers):
    """Whose logs wait in `admit` until the journal has gone as far with the batch as `settle` says."""

    def settle(self) -> None:
        """Wait until it is confirmed, so that it is when its offset is known."""
        settle(self)

    def _log(self, state: LogState, settings: TopicSettings) -> TieredLog:
        log = super()._log(state, settings)
        admit = log.admit

        def admitted(batch: memoryview, header: BatchHeader) -> int:
            base_offset = admit(batch, header)
            self.settle()
            return base_offset

        log.admit = admitted  # type: ignore[method-assign]
        return log


class HeldTiers(PromptTiers):
    """An engine on a simulated disk, which forces the journal only when `confirm_all` says so. Each path is another disk."""

    lives: ClassVar[dict[Path, HeldTiers]] = {}
    """The last life of each path, whose disk the next one has."""

    def __init__(self, data_dir: Path, settings: BrokerSettings) -> None:
        earlier = self.lives.get(data_dir)
        if earlier is not None:
            earlier.let_go()
        self.disk: SimulatedDisk = SimulatedDisk() if earlier is None else earlier.disk
        self.lives[data_dir] = self
        super().__init__(data_dir, replace(settings, sync_each_append=True), self.disk)
        self.disk.script.block("force", JOURNAL_FILES)
        self._is_held = True

    def settle(self) -> None:
        """Wait until it is written: that is reported then, and the next time when it is confirmed or cannot be."""
        self.engine.journal.wait_written(self.engine.journal.counters.added, DEADLINE)

    def confirm_all(self) -> None:
        """Let the disk force the admitted batches."""
        self.disk.script.release("force", JOURNAL_FILES)
        settle(self)
        self.disk.script.block("force", JOURNAL_FILES)

    def fail(self) -> None:
        """Have the disk refuse the force for which the journal waits."""
        self.disk.script.fail("force", JOURNAL_FILES)
        self.let_go()
        for thread in self.engine.journal._threads:  # they end when each was called
            thread.join(DEADLINE)

    def _log_closed(self, discard: bool) -> None:
        """Nothing is forced before `close`."""

    def let_go(self) -> None:
        """Let the disk force every file."""
        if self._is_held:
            self._is_held = False
            self.disk.script.release("force", JOURNAL_FILES)

    def close(self) -> bool:
        self.let_go()
        return super().close()
