"""Random histories of several producers against a simple model: what readers of committed records see, and where reading ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.storage.base import Storage
from spark_producer.broker.storage.engines import open_storage
from spark_producer.record.batch_v2 import batches
from spark_producer.record.reading import read_records, single_records
from tests.fakes.memory_storage import MemoryStorage
from tests.support.campaigns import sample_and_campaign
from tests.unit.broker.partition_writer import PartitionWriter

STEPS = 120
SEEDS = sample_and_campaign([range(15), *(range(first, first + 100) for first in range(100, 2000, 100))])
PRODUCERS = range(1, 6)


@dataclass
class Transaction:
    """The model's state of one transaction: `marker` is None while it is open."""

    first: int
    marker: int | None = None
    commits: bool = False


@dataclass
class Model:
    """Each row with its offset and its transaction, None for rows outside of transactions."""

    rows: list[tuple[int, bytes, Transaction | None]] = field(default_factory=list)
    open: dict[int, Transaction] = field(default_factory=dict)
    all: list[Transaction] = field(default_factory=list)

    def wrote(self, producer_id: int, offset: int, values: tuple[bytes, ...], *, transactional: bool) -> None:
        transaction = None
        if transactional:
            if producer_id not in self.open:
                self.all.append(self.open.setdefault(producer_id, Transaction(offset)))
            transaction = self.open[producer_id]
        self.rows += [(offset + place, value, transaction) for place, value in enumerate(values)]

    def ended(self, producer_id: int, marker: int, *, commit: bool) -> None:
        transaction = self.open.pop(producer_id, None)
        if transaction is not None:
            transaction.marker, transaction.commits = marker, commit

    def stable(self, high_watermark: int) -> int:
        """Return the last stable offset: no record after it has a final outcome yet."""
        doubtful = (each.first for each in self.all if each.marker is None or each.marker >= high_watermark)
        return min([high_watermark, *doubtful])

    def committed(self, end: int) -> list[tuple[int, bytes | None]]:
        return [
            (offset, value)
            for offset, value, transaction in self.rows
            if offset < end and (transaction is None or transaction.commits)
        ]


def read_committed(partition: Partition, rng: random.Random) -> Iterator[tuple[int, bytes | None]]:
    """Return a consumer's records from pages of random sizes, each with the aborted transactions of that page alone."""
    offset, end = partition.log.start_offset, partition.last_stable_offset
    while offset < end:
        data = partition.log.read(offset, rng.choice([1, 300, 2000]), up_to=end)
        last = partition.log.offset_upper_bound(offset, len(data)) - 1
        aborted = [(each.producer_id, each.first_offset) for each in partition.aborted_transactions(offset, last)]
        for rows in read_records(data, aborted=aborted):
            yield from ((row.offset, row.value) for row in single_records(rows) if row.offset >= offset)
        *_, (last_batch, _) = batches(data)
        offset = last_batch.last_offset + 1


class History:
    """Takes random steps in a partition and in the model, and compares them."""

    def __init__(self, partition: Partition, rng: random.Random) -> None:
        self.writer = PartitionWriter(partition)
        self.model = Model()
        self.rng = rng
        self.sent: list[tuple[memoryview, int]] = []

    @property
    def partition(self) -> Partition:
        return self.writer.partition

    def step(self) -> None:
        rng, who = self.rng, self.rng.choice(PRODUCERS)
        kind = rng.choices(["write", "plain", "end", "repeat", "mixed"], [50, 15, 25, 5, 5])[0]
        values = tuple(b"%d" % rng.randrange(10**9) for _ in range(rng.randint(1, 3)))
        if kind == "write":
            self.write(who, values, transactional=True)
        elif kind == "plain":
            self.write(-1, values, transactional=False)
        elif kind == "mixed" and who not in self.model.open:
            self.write(who, values, transactional=False)
        elif kind == "repeat" and self.sent:
            batch, offset = self.sent[-1]
            if self.partition.append(batch) != offset:
                self.model.rows.append((offset, b"twice", None))
        elif kind == "end":
            self.end(who)

    def write(self, who: int, values: tuple[bytes, ...], *, transactional: bool) -> None:
        batch = self.writer.batch(who, *values, transactional=transactional)
        offset = self.writer.write(who, *values, transactional=transactional)
        self.sent = [(batch, offset)] if who != -1 else []
        self.model.wrote(who, offset, values, transactional=transactional)

    def end(self, who: int) -> None:
        commit = self.rng.random() < 0.5
        marker = self.writer.end(who, commit=commit, raise_epoch=self.rng.random() < 0.5)
        self.sent = []
        self.model.ended(who, marker, commit=commit)

    def seen(self) -> tuple[int, list[tuple[int, bytes | None]], dict[int, int]]:
        """Return the end of committed reading, its records, and the starts of the open transactions."""
        starts = {each.producer_id: each.transaction_start for each in self.partition.active_producers()}
        rows = list(read_committed(self.partition, self.rng))
        return self.partition.last_stable_offset, rows, {who: start for who, start in starts.items() if start >= 0}

    def expected(self) -> tuple[int, list[tuple[int, bytes | None]], dict[int, int]]:
        end = self.model.stable(self.partition.log.high_watermark)
        return end, self.model.committed(end), {who: each.first for who, each in self.model.open.items()}


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_committed_rows_are_seen_in_order_also_after_the_broker_was_killed(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        for history in lives_and_deaths(tmp_path / str(seed), random.Random(seed)):
            assert history.seen() == history.expected(), seed


def lives_and_deaths(path: Path, rng: random.Random) -> Iterator[History]:
    def opened() -> Partition:
        storage: Storage = open_storage(path, BrokerSettings(sync_on_close=False, storage_engine="segments"))
        return Partition(storage, "t", 0, TopicSettings(segment_bytes=rng.choice([500, 1 << 20])))

    path.mkdir()
    history = History(opened(), rng)
    for number in range(STEPS):
        history.step()
        if number % 10 == 0:
            yield history
        if rng.random() < 0.05:
            history.writer.partition = opened()  # the old one is not closed, as after kill -9
            yield history
    yield history


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_nothing_is_seen_before_the_journal_confirms_its_end(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        for history in confirmed_late(tmp_path, random.Random(seed)):
            assert history.seen() == history.expected(), seed


def confirmed_late(path: Path, rng: random.Random) -> Iterator[History]:
    storage = MemoryStorage(path, BrokerSettings(), confirms_at_once=False)
    history = History(Partition(storage, "t", 0, TopicSettings(), is_new=True), rng)
    for _ in range(STEPS):
        history.step()
        if rng.random() < 0.3:
            log = storage.logs["t", 0]
            log.confirmed = rng.randint(log.confirmed, len(log.batches))
            yield history
    storage.confirm_all()
    yield history
