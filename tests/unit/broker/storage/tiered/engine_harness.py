"""A tiered engine on a simulated disk with one log, for tests that look at its parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredOptions, TieredStorage
from spark_producer.broker.storage.tiered.log import TieredLog
from spark_producer.record.batch_v2 import batches, read_header
from tests.fakes.small_tiers import SMALL_TIERS, settle
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.batches import filler_batch

DATA_DIR = Path("/data")
LEDGERS = DATA_DIR / "tiered" / "ledgers"
KIB = 1024
ENTRY_LOGS = "*.log"


class EngineHarness:
    """`log` is the log of partition 0 of topic `t`; further ones are in `logs`, by number."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        logs: int = 1,
        sync: bool = False,
        topic: TopicSettings = TopicSettings(),  # noqa: B008
        **options: Any,
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self._given = {name: options[name] for name in ("journal_dir", "ledger_dirs") if name in options}
        self.options: TieredOptions = replace(SMALL_TIERS, flush_interval_s=3600.0, flush_retry_s=3600.0, **options)
        settings = BrokerSettings(sync_each_append=sync, sync_on_close=False)
        self.storage = TieredStorage(DATA_DIR, settings, options=self.options, files=self.disk)
        self.engine = self.storage.engine
        self.space_notices = 0
        self._is_closed = False
        self.storage.watch(lambda topic, partition: None, self._space_freed)
        self.logs: list[TieredLog] = []
        for index in range(logs):
            known = self.engine.find("t", index)
            if known is None:
                self.logs.append(self.storage.create("t", index, topic))
            else:
                self.logs.append(self.storage.open("t", index, topic, lambda header, batch: None))

    def _space_freed(self) -> None:
        self.space_notices += 1

    @property
    def log(self) -> TieredLog:
        return self.logs[0]

    def append(self, index: int = 0, *, size: int = 100, records: int = 1, timestamp: int = 1000) -> int:
        """Admit a batch, and wait until it is confirmed."""
        base = self.admit(index, size=size, records=records, timestamp=timestamp)
        settle(self.storage)
        return base

    def admit(self, index: int = 0, *, size: int = 100, records: int = 1, timestamp: int = 1000) -> int:
        batch = filler_batch(records, size=size, timestamp=timestamp)
        return self.logs[index].admit(batch, read_header(batch))

    def flush(self) -> None:
        settle(self.storage)
        self.engine.flusher.flush_now()

    def read_all(self, index: int = 0) -> list[bytes]:
        log = self.logs[index]
        found, offset = [], log.start_offset
        while data := log.read(offset, 10_000):
            for header, batch in batches(data):
                found.append(bytes(batch))
                offset = header.last_offset + 1
        return found

    def entry_logs(self) -> list[str]:
        return [name for name in self.disk.names(LEDGERS) if name.endswith(".log")]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.disk.script.heal()
            self.storage.close()

    def again(self) -> EngineHarness:
        """The next run, after this one was closed."""
        self.close()
        return EngineHarness(self.disk, logs=len(self.logs), **self._given)
