"""The behaviour of every storage engine: the Protocols of `storage/base.py`, sentence by sentence.

A new engine is one more entry of ENGINES. What only some can do is a field of theirs, and those tests run for them alone.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.storage.base import LEADER_EPOCH, Log, Storage, TimestampOffset
from spark_producer.broker.storage.engines import OpenStorage, open_storage
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT, BatchHeader, batches, check_crc, read_header
from spark_producer.record.control import EndMarker, end_marker_batch
from tests.fakes.memory_storage import MemoryStorage
from tests.fakes.small_tiers import HeldTiers, PromptTiers
from tests.support.sampling import Sample
from tests.unit.broker.batches import filler_batch as make_batch
from tests.unit.test_layout import PACKAGE, ROOT

MIB = 1024 * 1024
SETTINGS = BrokerSettings(sync_on_close=False, storage_engine="segments")


@dataclass(frozen=True)
class Engine:
    """One engine and how to start it.

    confirm: does what makes its admitted batches confirmed, if they are not at once.
    fail: has it fail before that.
    survives: its records are there when it is opened again.
    """

    open: OpenStorage
    confirm: Callable[[Any], None] = lambda storage: None
    fail: Callable[[Any], None] | None = None
    survives: bool = True


def flush(storage: TieredStorage) -> None:
    storage.engine.flusher.flush_now()


ENGINES = {
    "segments": Engine(open_storage),
    "tiered": Engine(PromptTiers),
    "tiered, flushed at once": Engine(PromptTiers, confirm=flush),
    "tiered, confirmed later": Engine(HeldTiers, confirm=HeldTiers.confirm_all, fail=HeldTiers.fail),
    "memory": Engine(MemoryStorage, survives=False),
    "memory, confirmed later": Engine(
        partial(MemoryStorage, confirms_at_once=False),
        confirm=MemoryStorage.confirm_all,
        fail=MemoryStorage.fail,
        survives=False,
    ),
}
SURVIVING = [name for name, engine in ENGINES.items() if engine.survives]
CONFIRMING_LATER = [name for name, engine in ENGINES.items() if engine.fail is not None]


class StorageHarness:
    """A storage with an engine of that name, with one log of a topic `t`."""

    def __init__(self, name: str, path: Path, settings: TopicSettings) -> None:
        self.engine = ENGINES[name]
        self.storage: Storage = self.engine.open(path, SETTINGS)
        self.storage.recover({})
        self.reported: list[tuple[str, int]] = []
        self.storage.watch(lambda topic, index: self.reported.append((topic, index)), lambda: None)
        self.log: Log = self.storage.create("t", 0, settings)

    def append(self, batch: memoryview) -> int:
        """Admit and confirm."""
        base_offset = self.log.admit(batch, read_header(batch))
        self.engine.confirm(self.storage)
        assert self.log.is_confirmed(base_offset)
        return base_offset

    def read_all(self, max_bytes: int = MIB) -> list[BatchHeader]:
        """Every batch, as a consumer gets them: whole, in order, CRC intact."""
        found, offset = [], self.log.start_offset
        while data := self.log.read(offset, max_bytes):
            read = list(batches(data))
            assert sum(header.size for header, _ in read) == len(data), "only whole batches"
            for header, batch in read:
                check_crc(header, batch)
                assert header.base_offset == offset, "no gap"
                offset = header.last_offset + 1
            found += [header for header, _ in read]
        assert offset == self.log.high_watermark
        return found


@contextmanager
def opened(name: str, path: Path, **settings: Any) -> Iterator[StorageHarness]:
    harness = StorageHarness(name, path, TopicSettings(**settings))
    yield harness
    harness.log.close()
    harness.storage.close()


def test_every_engine_is_in_the_import_contract() -> None:
    """Otherwise every module could import it unnoticed."""
    storage = PACKAGE / "broker" / "storage"
    folders = {f"spark_producer.broker.storage.{path.parent.name}" for path in storage.glob("*/__init__.py")}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (protected,) = [contract["protected_modules"] for contract in contracts if contract["type"] == "protected"]
    assert folders == set(protected), "protected_modules in pyproject.toml"


def test_an_engine_has_a_name_and_its_readings_are_legal(harness: StorageHarness) -> None:
    assert harness.storage.name.isidentifier()
    readings = list(harness.storage.readings())
    names = [each.name for each in readings]
    assert len(names) == len(set(names))
    for each in readings:
        assert each.name.startswith("pyproducer_broker_")
        assert each.value >= 0


def test_cursors_do_not_change_what_is_read(harness: StorageHarness) -> None:
    reported = [True, False, True, True]
    for number, exists in enumerate(reported):
        harness.storage.cursor_changed("t", 0, exists)
        harness.log.available(number, 1)
        harness.append(make_batch())
        assert [header.base_offset for header in harness.read_all()] == list(range(number + 1))
    harness.storage.cursor_changed("unknown", 7, True)


@pytest.fixture(params=ENGINES)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageHarness]:
    with opened(request.param, tmp_path) as harness:
        yield harness


def refusal(ask: Callable[[], object]) -> int:
    with pytest.raises(BrokerError) as refused:
        ask()
    return refused.value.code


def test_a_new_log_is_empty(harness: StorageHarness) -> None:
    assert (harness.log.start_offset, harness.log.high_watermark) == (0, 0)
    assert harness.log.read(0, MIB) == b""
    assert harness.log.available(0, MIB) == 0
    assert harness.log.latest_timestamp() is None
    assert harness.log.offset_for_timestamp(0) is None


def test_offsets_are_assigned_without_gaps(harness: StorageHarness) -> None:
    assert [harness.append(make_batch(count)) for count in (3, 1, 5)] == [0, 3, 4]
    assert (harness.log.start_offset, harness.log.high_watermark) == (0, 9)
    assert [(header.base_offset, header.partition_leader_epoch) for header in harness.read_all()] == [
        (0, LEADER_EPOCH),
        (3, LEADER_EPOCH),
        (4, LEADER_EPOCH),
    ]


def test_a_batch_is_kept_as_it_came_and_not_needed_after_it_was_admitted(harness: StorageHarness) -> None:
    harness.append(make_batch(7))
    batch = bytearray(make_batch(2))
    before = bytes(batch)
    base_offset = harness.log.admit(memoryview(batch), read_header(batch))
    assert bytes(batch) == before
    batch[:] = bytes(len(batch))
    harness.engine.confirm(harness.storage)
    assert harness.log.read(base_offset, MIB)[16:] == before[16:]


def test_every_offset_of_a_batch_finds_the_whole_batch(harness: StorageHarness) -> None:
    for _ in range(2):
        harness.append(make_batch(10))
    assert read_header(harness.log.read(13, MIB)).base_offset == 10
    assert harness.log.available(13, MIB) == 100
    assert harness.log.read(20, MIB) == b""


@pytest.mark.parametrize("offset", [-1, 21])
def test_an_offset_outside_is_out_of_range(harness: StorageHarness, offset: int) -> None:
    harness.append(make_batch(20))
    for ask in (lambda: harness.log.read(offset, MIB), lambda: harness.log.check_offset(offset)):
        assert refusal(ask) == Code.OFFSET_OUT_OF_RANGE
    for fine in (0, 20):
        harness.log.check_offset(fine)


def test_max_bytes_is_kept_but_the_first_batch_always_comes_unless_it_need_not(harness: StorageHarness) -> None:
    for size in (1000, 200, 300):
        harness.append(make_batch(size=size))
    for limit in (0, 999, 1000, 1199, 1200, 1500):
        assert len(harness.log.read(0, limit)) in range(1000, max(limit, 1000) + 1)
    assert harness.log.read(0, 999, at_least_one=False) == b""
    assert len(harness.log.read(0, 1000, at_least_one=False)) == 1000


def test_available_stops_where_asked(harness: StorageHarness) -> None:
    for _ in range(3):
        harness.append(make_batch(size=100))
    assert [harness.log.available(offset, MIB) for offset in range(4)] == [300, 200, 100, 0]
    assert [harness.log.available(0, at_most) for at_most in (0, 150)] == [0, 150]


@pytest.mark.parametrize("settings", [{}, {"segment_bytes": 250}], ids=["one segment", "segments of two batches"])
@pytest.mark.parametrize("name", ENGINES)
def test_reading_ends_where_asked(name: str, settings: dict[str, int], tmp_path: Path) -> None:
    with opened(name, tmp_path, **settings) as harness:
        for _ in range(5):
            harness.append(make_batch(2, size=100))
        for end in range(0, 11, 2):
            for offset in range(11):
                left = max(end - offset // 2 * 2, 0) * 50
                data = harness.log.read(offset, MIB, up_to=end)
                assert (len(data) > 0) == (left > 0), (offset, end)
                assert len(data) <= left, (offset, end)
                assert harness.log.available(offset, MIB, up_to=end) == left, (offset, end)
        assert harness.log.read(0, MIB, up_to=100) == harness.log.read(0, MIB)
        assert harness.log.available(0, MIB, up_to=100) == 500


@pytest.mark.parametrize("seed", range(3))
def test_the_offset_upper_bound_is_after_the_bytes_read(harness: StorageHarness, seed: int, sample: Sample) -> None:
    rng = random.Random(seed)
    ends = []
    for _ in sample(range(300)):
        count = rng.randrange(1, 9)
        ends.append(harness.append(make_batch(count, size=rng.choice([61, 300, 5000]))) + count)
    for _ in range(100):
        offset = rng.randrange(ends[-1])
        data = harness.log.read(offset, rng.choice([1, 1000, 20_000]))
        *_, (last, _) = batches(data)
        assert last.last_offset < harness.log.offset_upper_bound(offset, len(data)) <= ends[-1]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_every_offset_is_found_whatever_the_sizes(name: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    owner: list[int] = []
    with opened(name, tmp_path, segment_bytes=60_000) as harness:
        for _ in range(100):
            count, size = rng.randrange(1, 9), rng.choice([61, 90, 500, 4000, 4096, 5000, 20_000])
            owner += [harness.append(make_batch(count, size=size))] * count
        for offset, base in enumerate(owner):
            limit = rng.choice([1, 100, 3000, 50_000])
            data = harness.log.read(offset, limit)
            assert read_header(data).base_offset == base
            assert len(data) <= max(limit, read_header(data).size)
            assert harness.log.available(offset, 10**9) >= len(data)
        assert [header.base_offset for header in harness.read_all(max_bytes=7000)] == sorted(set(owner))


def test_timestamps_find_the_first_batch_that_reaches_them(harness: StorageHarness) -> None:
    stamps = [random.Random(7).randrange(1000) for _ in range(5)] + [500, 100, 990, 3, 990]
    for stamp in stamps:
        harness.append(make_batch(2, timestamp=stamp))
    for wanted in (0, 1, 500, 990):
        first = next(number for number, stamp in enumerate(stamps) if stamp >= wanted)
        assert harness.log.offset_for_timestamp(wanted) == TimestampOffset(stamps[first], 2 * first)
    assert harness.log.offset_for_timestamp(max(stamps) + 1) is None
    newest = stamps.index(max(stamps))
    assert harness.log.latest_timestamp() == TimestampOffset(max(stamps), 2 * newest + 1)


# Confirming


def test_unconfirmed_batches_are_neither_read_nor_reported(harness: StorageHarness) -> None:
    harness.append(make_batch(2, timestamp=5))
    batch = make_batch(3, timestamp=9)
    base_offset = harness.log.admit(batch, read_header(batch))
    assert base_offset == 2
    unconfirmed = not harness.log.is_confirmed(base_offset)
    if unconfirmed:
        assert harness.log.high_watermark == 2
        assert (harness.log.read(2, MIB), harness.log.available(0, MIB)) == (b"", 100)
        harness.log.check_offset(4)
        assert (harness.log.offset_for_timestamp(9), harness.log.latest_timestamp()) == (None, TimestampOffset(5, 1))
    reported = len(harness.reported)
    harness.engine.confirm(harness.storage)
    assert [harness.log.is_confirmed(offset) for offset in range(6)] == [True] * 5 + [False]
    assert [harness.log.is_written(offset) for offset in range(6)] == [True] * 5 + [False], (
        "what is confirmed is written"
    )
    assert (harness.log.high_watermark, len(harness.read_all())) == (5, 2)
    assert (("t", 0) in harness.reported[reported:]) == unconfirmed, "the waiting producer is notified"


def test_an_idle_engine_has_space_for_a_request(harness: StorageHarness) -> None:
    assert harness.storage.has_space(1000)
    harness.append(make_batch())
    assert harness.storage.has_space(1000)


@pytest.mark.parametrize("name", CONFIRMING_LATER)
def test_batches_are_admitted_in_order_before_the_first_is_confirmed(name: str, tmp_path: Path) -> None:
    with opened(name, tmp_path) as harness:
        admitted = [harness.log.admit(batch, read_header(batch)) for batch in (make_batch(2), make_batch(3))]
        assert (admitted, harness.log.high_watermark) == ([0, 2], 0)
        harness.engine.confirm(harness.storage)
        assert harness.log.high_watermark == 5


@pytest.mark.parametrize("name", CONFIRMING_LATER)
def test_after_a_failure_the_log_is_read_only_up_to_what_was_confirmed(name: str, tmp_path: Path) -> None:
    with opened(name, tmp_path) as harness:
        harness.append(make_batch(2))
        batch = make_batch(3)
        base_offset = harness.log.admit(batch, read_header(batch))
        assert harness.engine.fail is not None
        harness.reported.clear()
        harness.engine.fail(harness.storage)
        assert harness.reported == [("t", 0)]
        assert len(harness.read_all()) == 1
        for ask in (
            lambda: harness.log.is_confirmed(base_offset),
            lambda: harness.log.admit(batch, read_header(batch)),
            lambda: harness.log.check_offset(4),
        ):
            assert refusal(ask) == Code.KAFKA_STORAGE_ERROR
        assert harness.log.is_confirmed(1)


# Deleting


def test_nothing_is_deleted_unless_it_is_asked_for(harness: StorageHarness) -> None:
    harness.append(make_batch(timestamp=0))
    harness.log.delete_old(10**15)
    assert (harness.log.start_offset, len(harness.read_all())) == (0, 1)


@pytest.mark.parametrize("setting", [{"retention_ms": 1000}, {"retention_bytes": 0}])
def test_what_the_settings_do_not_retain_goes_and_offsets_go_on(
    harness: StorageHarness, setting: dict[str, Any]
) -> None:
    for _ in range(3):
        harness.append(make_batch(2, timestamp=100))
    harness.log.settings = TopicSettings(**setting)
    harness.log.delete_old(1101)
    assert (harness.log.start_offset, harness.log.high_watermark) == (6, 6)
    assert refusal(lambda: harness.log.read(5, MIB)) == Code.OFFSET_OUT_OF_RANGE
    assert harness.append(make_batch(2, timestamp=2000)) == 6
    assert len(harness.read_all()) == 1


def test_what_is_young_or_fits_stays(harness: StorageHarness) -> None:
    for _ in range(3):
        harness.append(make_batch(2, size=100, timestamp=100))
    harness.log.settings = TopicSettings(retention_ms=1000, retention_bytes=300)
    harness.log.delete_old(1100)
    assert (harness.log.start_offset, len(harness.read_all())) == (0, 3)


def test_a_deleted_log_comes_back_empty_and_others_stay(harness: StorageHarness) -> None:
    other = harness.storage.create("t", 1, TopicSettings())
    batch = make_batch(4)
    other.admit(batch, read_header(batch))
    harness.engine.confirm(harness.storage)
    harness.append(make_batch(5))
    harness.log.close(discard=True)
    harness.storage.delete([("t", 0)])
    harness.log = harness.storage.create("t", 0, TopicSettings())
    assert (harness.log.high_watermark, harness.read_all()) == (0, [])
    assert other.high_watermark == 4
    assert harness.storage.orphaned({"t": 2}) == []
    other.close()


def test_records_of_no_topic_are_named(harness: StorageHarness) -> None:
    harness.append(make_batch())
    assert harness.storage.orphaned({"t": 1}) == []
    (name,) = harness.storage.orphaned({"other": 3})
    assert "t" in name


# Opening again


@pytest.mark.parametrize("name", SURVIVING)
@pytest.mark.parametrize("cleanly", [True, False], ids=["closed", "killed"])
def test_everything_is_there_when_it_is_opened_again(name: str, tmp_path: Path, cleanly: bool) -> None:
    harness = StorageHarness(name, tmp_path, TopicSettings(segment_bytes=2000))
    for count in range(1, 50):
        harness.append(make_batch(count, producer_id=7, epoch=0, sequence=count))
    before, earlier = harness.read_all(), harness.storage
    if cleanly:
        harness.log.close()
        harness.storage.close()
    harness.storage = harness.engine.open(tmp_path, SETTINGS)
    harness.storage.recover({"t": 1})
    seen: list[BatchHeader] = []
    harness.log = harness.storage.open("t", 0, TopicSettings(), lambda header, _: seen.append(header))
    assert harness.log.high_watermark == sum(range(1, 50))
    assert seen == before == harness.read_all()
    assert harness.append(make_batch()) == sum(range(1, 50))
    harness.log.close()
    harness.storage.close()
    if not cleanly:
        earlier.close()  # only now: its threads would live on


@pytest.mark.parametrize("name", SURVIVING)
def test_control_batches_are_recovered_with_their_bytes_and_others_without(name: str, tmp_path: Path) -> None:
    harness = StorageHarness(name, tmp_path, TopicSettings())
    marker = end_marker_batch(
        EndMarker(commits=True, coordinator_epoch=3), producer_id=7, producer_epoch=0, timestamp=5
    )
    for batch in (make_batch(2), marker, make_batch(attributes=TRANSACTIONAL_BIT)):
        harness.append(batch)
    harness.log.close()
    seen: list[bytes] = []
    harness.log = harness.storage.open("t", 0, TopicSettings(), lambda _, batch: seen.append(batch))
    assert seen == [b"", bytes(harness.log.read(2, 1)), b""]
    assert seen[1][16:] == marker[16:]
    harness.log.close()
    harness.storage.close()


@pytest.mark.parametrize("name", SURVIVING)
def test_the_start_of_the_log_is_the_same_when_it_is_opened_again(name: str, tmp_path: Path) -> None:
    harness = StorageHarness(name, tmp_path, TopicSettings(retention_bytes=0))
    for _ in range(3):
        harness.append(make_batch(2))
    harness.log.delete_old(0)
    harness.log.close()
    log = harness.storage.open("t", 0, TopicSettings(), lambda _, __: None)
    assert (log.start_offset, log.high_watermark) == (6, 6)
    log.close()
    harness.storage.close()


@pytest.mark.parametrize("name", SURVIVING)
def test_a_new_log_is_empty_whatever_is_in_its_place(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = StorageHarness(name, tmp_path, TopicSettings())
    harness.append(make_batch(5))
    harness.log.close()
    harness.storage.close()
    harness.storage = harness.engine.open(tmp_path, SETTINGS)
    harness.storage.recover({})
    assert "hold records of no topic" in caplog.text
    harness.log = harness.storage.create("t", 0, TopicSettings())
    assert (harness.log.high_watermark, harness.append(make_batch(2))) == (0, 0)
    assert "had records of no topic" in caplog.text
    harness.log.close()
    harness.storage.close()
