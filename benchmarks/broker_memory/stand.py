"""A tiered engine with the partitions of one topic, one writer and any number of readers, each at its rate."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered import TieredOptions, TieredStorage
from spark_producer.broker.storage.tiered.counters import TierCounters
from spark_producer.broker.storage.tiered.log import TieredLog
from spark_producer.errors import KafkaTimeout
from spark_producer.record.batch_v2 import HEADER_SIZE, batches, read_header, write_header

TOPIC: Final = "t"
TICK_S: Final = 0.01
MAX_BURST_S: Final = 0.1
"""Maximum seconds of its rate that a delayed client catches up: more would be a burst that is not part of the load."""
DEADLINE_S: Final = 60.0


class Clock(NamedTuple):
    """A clock in seconds, and how to let time pass on it; `waits` says whether it stops while no memory is free."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    waits: bool = False


REAL: Final = Clock(time.monotonic, time.sleep)


def virtual_clock() -> Clock:
    """Return a clock on which sleeps return at once."""
    moment = [0.0]

    def sleep(seconds: float) -> None:
        moment[0] += seconds

    return Clock(lambda: moment[0], sleep, waits=True)


def make_entry(size: int, records: int) -> memoryview:
    """Return a batch of `size` bytes that claims to hold `records` records, which are not read."""
    batch = memoryview(bytearray(HEADER_SIZE) + random.Random(1).randbytes(size - HEADER_SIZE))
    write_header(batch, records_count=records, base_timestamp=0, max_timestamp=0)
    return batch.toreadonly()


@dataclass
class Reader:
    """A consumer of all partitions, which begins where `positions` say.

    rate: the bytes that it reads each second at most; None for all that there is.
    lag: the entries of each partition by which it stays before the end.
    """

    positions: list[int]
    rate: float | None = None
    lag: int = 0
    entries: int = 0
    due: float = field(default=0.0, repr=False)
    turn: int = field(default=0, repr=False)


class Stand:
    """The engine. Entries are batches of one size, which are written to the partitions by turns."""

    def __init__(self, storage: TieredStorage, partitions: int, entry_bytes: int, records: int) -> None:
        self.storage = storage
        self.records = records
        self.logs: list[TieredLog] = [storage.create(TOPIC, index, TopicSettings()) for index in range(partitions)]
        self.entry = make_entry(entry_bytes, records)
        self.written = 0
        self.before_write: Callable[[int], None] = lambda _: None
        """Is called with the number of the partition before an entry is admitted."""
        self._header = read_header(self.entry)

    @property
    def counters(self) -> TierCounters:
        """The engine's counters."""
        return self.storage.engine.counters

    def set_cursors(self) -> None:
        """Let a group own all partitions."""
        for index in range(len(self.logs)):
            self.storage.cursor_changed(TOPIC, index, True)

    def reader_at_end(self, rate: float | None = None, lag: int = 0) -> Reader:
        """Return a reader that waits at the end of each partition."""
        reader = Reader([log.high_watermark for log in self.logs], rate, lag)
        for log, position in zip(self.logs, reader.positions, strict=True):
            log.available(position, 1)
        return reader

    def wait_for_free_memory(self) -> None:
        """Wait until an entry can be admitted.

        Raises:
            KafkaTimeout: the storage has no space for a long time.
        """
        give_up = time.monotonic() + DEADLINE_S
        while not self.storage.has_space(len(self.entry)):
            if time.monotonic() > give_up:
                raise KafkaTimeout(f"the storage has had no space for {DEADLINE_S:g} s")
            time.sleep(0.001)

    def write(self) -> bool:
        """Admit an entry; return whether there was space for it."""
        if not self.storage.has_space(len(self.entry)):
            return False
        index = self.written % len(self.logs)
        self.before_write(index)
        self.logs[index].admit(self.entry, self._header)
        self.written += 1
        return True

    def settle(self) -> None:
        """Wait until all that was admitted may be read.

        Raises:
            KafkaTimeout: the disk has not answered for a long time.
        """
        engine = self.storage.engine
        ticket = engine.journal.counters.added
        if not engine.journal.wait_written(ticket, DEADLINE_S):
            raise KafkaTimeout(f"the journal has written nothing for {DEADLINE_S:g} s")
        if engine.sync and engine.journal.forced_ticket < ticket and not engine.journal.force_now(DEADLINE_S):
            raise KafkaTimeout(f"the journal has forced nothing for {DEADLINE_S:g} s")

    def read(self, reader: Reader, seconds: float) -> None:
        """Let a reader read the entries of some seconds more, one of each partition by turns."""
        if reader.rate is not None:
            reader.due = min(reader.due + reader.rate * seconds, reader.rate * MAX_BURST_S)
        idle = 0
        while idle < len(self.logs) and (reader.rate is None or reader.due >= len(self.entry)):
            index = reader.turn % len(self.logs)
            reader.turn += 1
            idle = 0 if self._read_one(reader, index) else idle + 1

    def _read_one(self, reader: Reader, index: int) -> bool:
        log, position = self.logs[index], reader.positions[index]
        if position >= log.high_watermark - reader.lag * self.records:
            return False
        found = list(batches(log.read(position, len(self.entry))))
        if [header.base_offset for header, _ in found] != [position]:
            raise AssertionError(f"partition {index} gave something else at offset {position}")
        reader.positions[index] = found[0][0].last_offset + 1
        reader.entries += 1
        reader.due -= len(self.entry)
        return True

    def run(self, seconds: float, rate: float, readers: Sequence[Reader] = (), clock: Clock = REAL) -> None:
        """Write `rate` bytes a second for some time, and let the readers read meanwhile."""
        for passed in self.paced(seconds, rate, clock):
            self.settle()
            for reader in readers:
                self.read(reader, passed)

    def paced(self, seconds: float, rate: float, clock: Clock = REAL) -> Iterator[float]:
        """Write `rate` bytes a second for some time, without waiting for the journal; yield now and then the seconds passed."""
        begin = last = clock.now()
        due = 0.0
        while (now := clock.now()) - begin < seconds:
            due = min(due + rate * (now - last), rate * MAX_BURST_S)
            if clock.waits:
                self.wait_for_free_memory()
            while due >= len(self.entry) and self.write():
                due -= len(self.entry)
            yield now - last
            last = now
            clock.sleep(TICK_S)


@contextmanager
def stand(
    directory: Path,
    options: TieredOptions,
    partitions: int,
    entry_bytes: int,
    records: int,
    *,
    sync: bool,
    files: FileOps | None = None,
) -> Iterator[Stand]:
    """Open an engine in an empty directory, and close it at the end of the `with` block. `files` replace the system's."""
    settings = BrokerSettings(sync_each_append=sync, sync_on_close=False)
    storage = TieredStorage(directory, settings, options=options, files=files)
    try:
        yield Stand(storage, partitions, entry_bytes, records)
    finally:
        storage.close()
