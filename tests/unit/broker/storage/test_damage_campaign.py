"""Every file of a data directory is lost, emptied, cut and flipped, one at a time: no acknowledged record is lost silently.

Either all records and offsets are there and right, or the start is refused or the partition closed with a sentence that names
the file. Where the death of the process leaves the same as a cut does, the cut is logged, and a copy is kept.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.coordinator.offsets import CommittedOffset
from spark_producer.broker.settings import STORAGE_ENGINES, BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BrokerError, PyProducerError
from spark_producer.record.batch_v2 import batches
from tests.fakes.small_tiers import settle
from tests.support.campaigns import sample_and_campaign
from tests.unit.broker.batches import make_batch

PARTITIONS = [("a", 0), ("a", 1), ("b", 0)]
STATES = [*itertools.product((False, True), ("killed", "stopped"))]
"""Whether each batch was forced to the disk, and how the last run ended."""


class Content(NamedTuple):
    """All records of each partition, and the committed offsets of the group."""

    records: dict[tuple[str, int], bytes]
    offsets: dict[TopicPartition, CommittedOffset]


class BrokerRun:
    """A broker's store and coordinator in a directory."""

    def __init__(self, directory: Path, settings: BrokerSettings) -> None:
        self.store = TopicStore(directory, settings)
        try:
            self.coordinator = BrokerCoordinator(self.store, settings)
        except BaseException:
            self.store.close()
            raise

    def fill(self, rounds: int) -> None:
        for number, (topic, index) in itertools.product(range(rounds), PARTITIONS):
            self.store.partition(topic, index).append(make_batch(2, size=120 + number))
            self.coordinator.commit_offsets(
                "g", {TopicPartition(topic, index): CommittedOffset(number, -1, "x" * number)}
            )
        if isinstance(self.store._storage, TieredStorage):
            settle(self.store._storage)

    def content(self) -> Content:
        return Content(
            {each: self._records(*each) for each in PARTITIONS},
            dict(self.coordinator.offsets.committed.get("g", {})),
        )

    def _records(self, topic: str, index: int) -> bytes:
        log, found = self.store.partition(topic, index).log, b""
        offset = log.start_offset
        while data := log.read(offset, 10_000):
            found += data
            *_, (header, _) = batches(data)
            offset = header.last_offset + 1
        return found

    def close(self) -> None:
        self.coordinator.close()
        self.store.close()


def settings_of(engine: str, *, sync: bool) -> BrokerSettings:
    topic = TopicSettings(segment_bytes=700)
    return BrokerSettings(storage_engine=engine, sync_each_append=sync, topic=topic)


def leftovers(home: Path, settings: BrokerSettings, end: str) -> tuple[Path, Content]:
    """The disk after a life that was stopped and a second one that was killed or stopped, and the batches that must be on it."""
    data, left = home / "data", home / "left"
    first = BrokerRun(data, settings)
    first.store.create("a", 2)
    first.store.create("b", 1)
    first.fill(5)
    first.close()
    second = BrokerRun(data, settings)
    second.fill(4)
    expected = second.content()
    if end == "killed":
        shutil.copytree(data, left)
    second.close()
    if end == "stopped":
        shutil.copytree(data, left)
    return left, expected


Damage = Callable[[Path], None]


def damages(path: Path) -> Iterator[tuple[str, Damage]]:
    """Ways to damage a file."""
    yield "missing", Path.unlink
    content = path.read_bytes()
    used = len(content.rstrip(b"\0"))
    if not used:
        return
    yield "empty", partial(_write, b"")
    for size in sorted(
        {used // 2, used - 3, used * 3 // 4 + 1, 1}
    ):  # exactly between two batches the file would be whole
        yield f"cut at {size} of {used}", partial(_write, content[:size])
    for at in sorted({0, used // 5, used // 3, used // 2, used * 9 // 10, used - 2, used - 1}):
        flipped = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
        yield f"flipped at {at} of {used}", partial(_write, flipped)


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def all_bytes(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.rglob("*") if path.is_file()]


def judged(directory: Path, path: Path, settings: BrokerSettings, expected: Content, said: Callable[[], str]) -> str:
    """Start, and judge what was found in spite of damage: "right", "refused", "closed", "logged", or "silent"."""
    name, damaged = path.name, (directory / path).read_bytes() if (directory / path).exists() else None
    try:
        run = BrokerRun(directory, settings)
    except (PyProducerError, OSError) as error:
        is_kept = damaged is None or damaged in all_bytes(directory)
        return "refused" if name in str(error) and is_kept else f"refused, and not named or not kept: {error}"
    try:
        found = run.content()
    except BrokerError as error:
        return "closed" if name in str(error) or name in said() else "silent"
    finally:
        run.close()
    if found == expected:
        return "right"
    return "logged" if name in said() and "opy" in said() else "silent"


@pytest.mark.slow
@pytest.mark.parametrize("state", sample_and_campaign(STATES), ids=str)
@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_no_damage_of_any_file_loses_records_silently(
    engine: str, state: tuple[bool, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sync, end = state
    settings = settings_of(engine, sync=sync)
    left, expected = leftovers(tmp_path, settings, end)
    wrong, verdicts = list[str](), list[str]()
    for path in sorted(path for path in left.rglob("*") if path.is_file() and path.name != ".lock"):
        for what, damage in damages(path):
            case = tmp_path / "case"
            shutil.copytree(left, case)
            damage(case / path.relative_to(left))
            caplog.clear()
            verdict = judged(case, path.relative_to(left), settings, expected, lambda: caplog.text)
            verdicts.append(verdict)
            if verdict not in ("right", "refused", "closed", "logged"):
                wrong.append(f"{path.relative_to(left)} {what}: {verdict}")
            shutil.rmtree(case)
    assert not wrong
    assert {"right", "refused"} <= set(verdicts)


def gone_on(directory: Path, path: Path, settings: BrokerSettings) -> Iterator[str]:
    """Start in spite of the damage of `path`, read each partition to its end, and write to it; yield what refuses.

    Without the catalog the topics of the records are unknown, so one that cannot be read must be moved away by a person.
    """
    try:
        run = BrokerRun(directory, replace(settings, skip_damage=True))
    except PyProducerError as error:
        if "catalog" not in path.name:
            yield str(error)
        return
    for topic, index in PARTITIONS:
        try:
            run.store.partition(topic, index).append(make_batch(1))
            if isinstance(run.store._storage, TieredStorage):
                settle(run.store._storage)
            if not run._records(topic, index):
                yield f"nothing is read of {topic}-{index}"
        except BrokerError as error:
            yield str(error)
    run.close()


@pytest.mark.slow
@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_what_is_damaged_is_no_reason_not_to_start_if_that_is_asked_for(
    engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(engine, sync=False)
    left, _ = leftovers(tmp_path, settings, "killed")
    wrong = list[str]()
    for path in sorted(
        path for path in left.rglob("*") if path.is_file() and path.name not in (".lock", "broker.json")
    ):
        for what, damage in damages(path):
            case = tmp_path / "case"
            shutil.copytree(left, case)
            damage(case / path.relative_to(left))
            caplog.clear()
            wrong += [f"{path.relative_to(left)} {what}: {each}" for each in gone_on(case, path, settings)]
            shutil.rmtree(case)
    assert not wrong
