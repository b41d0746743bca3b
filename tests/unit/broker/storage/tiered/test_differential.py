"""The same random operations on the engine of segments and on the tiered one: both give the same answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.base import Log, Storage
from spark_producer.broker.storage.engines import open_storage
from spark_producer.broker.storage.tiered import TieredOptions
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import BatchHeader, read_header
from spark_producer.record.control import EndMarker, end_marker_batch
from tests.fakes.small_tiers import SMALL_TIERS, PromptTiers
from tests.unit.broker.batches import filler_batch

PARTITIONS = 3
OPERATIONS = 10_000
SETTINGS = BrokerSettings(sync_on_close=True, storage_engine="segments")
TIMES = 500


class Tiers(PromptTiers):
    """With a write cache that is full after some dozen batches."""

    options = SMALL_TIERS.__class__(
        write_cache_bytes=128 * 1024,
        read_cache_bytes=64 * 1024,
        tail_cache_bytes=16 * 1024,
        entry_log_bytes=200_000,
        journal=SMALL_TIERS.journal,
    )


class TwoDirectories(Tiers):
    """With two ledger directories, and a journal elsewhere."""

    def options_in(self, data_dir: Path) -> TieredOptions:
        return replace(self.options, journal_dir=data_dir / "j", ledger_dirs=(data_dir / "a", data_dir / "b"))


class Side:
    """One engine with its logs."""

    def __init__(self, opened: Callable[[Path, BrokerSettings], Storage], path: Path, settings: TopicSettings) -> None:
        self._opened, self._path, self._settings = opened, path, settings
        self._path.mkdir()
        self.storage = opened(path, SETTINGS)
        self.storage.recover({})
        self.logs: list[Log] = [self.storage.create("t", index, settings) for index in range(PARTITIONS)]
        self.seen: list[tuple[BatchHeader, bytes]] = []

    def ask(self, ask: Callable[[Log], object], index: int) -> object:
        """The answer, or the code of the refusal."""
        try:
            return ask(self.logs[index])
        except BrokerError as error:
            return Code(error.code)

    def admit(self, index: int, batch: memoryview) -> object:
        answer = self.ask(lambda log: log.admit(batch, read_header(batch)), index)
        if answer is Code.NOT_ENOUGH_REPLICAS and isinstance(self.storage, PromptTiers):
            self.storage.engine.flusher.flush_now()
            answer = self.ask(lambda log: log.admit(batch, read_header(batch)), index)
        return answer

    def reopen(self) -> list[tuple[BatchHeader, bytes]]:
        """Close and open everything; return what was recovered."""
        self.close()
        self.storage = self._opened(self._path, SETTINGS)
        self.storage.recover({"t": PARTITIONS})
        seen: list[tuple[BatchHeader, bytes]] = []
        self.logs = [
            self.storage.open("t", index, self._settings, lambda header, batch: seen.append((header, batch)))
            for index in range(PARTITIONS)
        ]
        return seen

    def replace(self, index: int) -> None:
        """Delete a log, and create it again."""
        self.logs[index].close(discard=True)
        self.storage.delete([("t", index)])
        self.logs[index] = self.storage.create("t", index, self._settings)

    def close(self) -> None:
        for log in self.logs:
            log.close()
        self.storage.close()


@pytest.mark.slow
@pytest.mark.parametrize("tiers", [Tiers, TwoDirectories])
def test_ten_thousand_random_operations_have_the_same_answers(tiers: type[Tiers], tmp_path: Path) -> None:
    rng = random.Random(1)
    settings = TopicSettings(segment_bytes=20_000, segment_ms=TIMES // 2)
    sides = [Side(open_storage, tmp_path / "s", settings), Side(tiers, tmp_path / "t", settings)]
    for number in range(OPERATIONS):
        step(rng, sides[0], sides[1], f"operation {number}")
    for index in range(PARTITIONS):
        same(sides, lambda log: all_bytes(log), index, "at the end")
    ends, others = ([log.high_watermark for log in side.logs] for side in sides)
    assert ends == others
    assert any(ends), "nothing was written"
    for side in sides:
        side.close()


def step(rng: random.Random, segments: Side, tiers: Side, where: str) -> None:
    index = rng.randrange(PARTITIONS)
    log = segments.logs[index]
    offset = rng.randrange(log.start_offset - 1, log.high_watermark + 2)
    limit, up_to = rng.choice([0, 1, 900, 10_000]), rng.choice([None, log.high_watermark, log.start_offset])
    sides, choice = [segments, tiers], rng.random()
    if choice < 0.35:
        batch = a_batch(rng)
        first, second = (side.admit(index, batch) for side in sides)
        assert first == second, where
    elif choice < 0.60:
        first, second = (side.ask(lambda log: log.read(offset, limit, up_to=up_to), index) for side in sides)
        same_bytes(first, second, where)
    elif choice < 0.70:
        same(
            sides,
            lambda log: log.available(offset, limit, up_to=up_to) if offset >= log.start_offset else 0,
            index,
            where,
        )
    elif choice < 0.80:
        same(sides, lambda log: checked(log, offset), index, where)
    elif choice < 0.90:
        wanted = rng.randrange(TIMES + 1)
        same(sides, lambda log: (log.offset_for_timestamp(wanted), log.latest_timestamp()), index, where)
    elif choice < 0.96:
        same(sides, lambda log: log.is_confirmed(offset), index, where)
    elif choice < 0.962 and log.start_offset <= offset <= log.high_watermark:
        same(sides, lambda log: log.delete_before(offset), index, where)
        same(sides, lambda log: (log.start_offset, log.high_watermark), index, where)
    elif choice < 0.985:
        delete_old(rng, sides, index, where)
    elif choice < 0.99 and isinstance(tiers.storage, PromptTiers):
        tiers.storage.engine.flusher.flush_now()
    elif choice < 0.995:
        for side in sides:
            side.replace(index)
    else:
        first, second = (side.reopen() for side in sides)
        assert first == second, where


def checked(log: Log, offset: int) -> tuple[int, int]:
    log.check_offset(offset)
    return log.start_offset, log.high_watermark


def a_batch(rng: random.Random) -> memoryview:
    if rng.random() < 0.05:
        return end_marker_batch(
            EndMarker(commits=True, coordinator_epoch=1), producer_id=3, producer_epoch=0, timestamp=7
        )
    return filler_batch(rng.randrange(1, 6), size=rng.choice([61, 200, 900, 6000]), timestamp=rng.randrange(TIMES))


def delete_old(rng: random.Random, sides: list[Side], index: int, where: str) -> None:
    kept: dict[str, Any] = rng.choice(
        [{"retention_bytes": rng.choice([0, 30_000])}, {"retention_ms": rng.choice([50, TIMES])}]
    )
    for side in sides:
        log = side.logs[index]
        before = log.settings
        log.settings = TopicSettings(**kept)
        log.delete_old(TIMES)
        log.settings = before
    same(sides, lambda log: (log.start_offset, log.high_watermark), index, where)


def same(sides: list[Side], ask: Callable[[Log], object], index: int, where: str) -> None:
    first, second = (side.ask(ask, index) for side in sides)
    assert first == second, where


def same_bytes(first: Any, second: Any, where: str) -> None:
    """A read of segments ends with a segment, where the other one may go on; both give something or nothing."""
    if isinstance(first, bytes) and isinstance(second, bytes):
        assert second.startswith(first), where
        assert bool(first) == bool(second), where
    else:
        assert first == second, where


def all_bytes(log: Log) -> bytes:
    parts, offset = [], log.start_offset
    while data := log.read(offset, 1):
        parts.append(data)
        offset = read_header(data).last_offset + 1
    return b"".join(parts)
