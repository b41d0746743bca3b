"""Compaction: the last record of each key stays, at its offset, and what is known of producers and transactions stays right."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.log.compaction import CompactionTimer
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.storage.engines import open_storage
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.kernel.varint import encode_varint
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT, BatchHeader, batches
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.reading import read_records, single_records
from tests.fakes.small_tiers import PromptTiers, collect
from tests.unit.broker.batches import make_record, sealed

DAY_MS = 86_400_000
ENGINES = {"segments": open_storage, "tiered": PromptTiers}
TOPIC = TopicSettings(cleanup_policy="compact", segment_bytes=600, min_cleanable_dirty_ratio=0.0)


def record(delta: int, key: bytes | None, value: bytes | None) -> bytes:
    if key is not None and value is not None:
        return make_record(delta, key, value)
    parts = [b"\0\0", encode_varint(delta)]
    for part in (key, value):
        parts.append(encode_varint(-1) if part is None else encode_varint(len(part)) + part)
    body = b"".join([*parts, b"\0"])
    return encode_varint(len(body)) + body


@dataclass
class Stage:
    """A store with one compacted topic, and the clock of its compaction."""

    engine: str
    path: Path
    topic: TopicSettings
    now_ms: int = 1_000_000_000_000
    sequences: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.open()
        if self.store.get("t") is None:
            self.store.create("t", 1)

    def open(self) -> None:
        settings = BrokerSettings(storage_engine=self.engine, topic=self.topic, sync_on_close=True)
        self.store = TopicStore(self.path, settings, ENGINES[self.engine])
        self.store.watch(lambda _topic, _index: None, lambda: None)
        self.clock = 0.0
        self.timer = CompactionTimer(
            self.store.partitions, 10.0, 0.0, clock=lambda: self.clock, time_of_day=lambda: self.now_ms / 1000
        )

    def reopen(self) -> None:
        self.store.close()
        self.open()

    @property
    def partition(self) -> Partition:
        return self.store.partition("t", 0)

    def write(
        self, *rows: tuple[bytes | None, bytes | None], producer: int = -1, epoch: int = 0, codec: Codec = Codec.NONE
    ) -> int:
        content = b"".join(record(delta, *row) for delta, row in enumerate(rows))
        packed = Compressor(codec).compress(content) if codec else content
        transactional = TRANSACTIONAL_BIT if producer >= 0 else 0
        sequence = self.sequences.setdefault(producer, 0) if producer >= 0 else -1
        batch = sealed(
            packed,
            len(rows),
            timestamp=self.now_ms,
            producer_id=producer,
            epoch=epoch if producer >= 0 else -1,
            sequence=sequence,
            attributes=int(codec) | transactional,
        )
        offset = self.partition.append(batch)
        self.sequences[producer] = sequence + len(rows)
        return offset

    def end(self, producer: int, *, commit: bool, epoch: int = 0) -> int:
        return self.partition.write_marker(producer, epoch, commit, 0, now_ms=self.now_ms)

    def compact(self) -> None:
        """Have everything be settled that can be, and compact."""
        storage = self.store._storage
        if isinstance(storage, TieredStorage):
            storage.engine.flusher.flush_now()
        self.timer.run_all()

    def fill(self) -> None:
        """Write so much that all before is in closed segments."""
        for _ in range(3):
            self.write((b"filler", bytes(500)))

    def stored(self) -> list[tuple[BatchHeader, bytes]]:
        """All batches; they have no gaps."""
        log = self.partition.log
        found: list[tuple[BatchHeader, bytes]] = []
        offset = log.start_offset
        while data := log.read(offset, 1000):
            for header, batch in batches(data):
                assert header.base_offset == offset or not found
                offset = header.last_offset + 1
                found.append((header, bytes(batch)))
        assert offset == log.high_watermark
        return found

    def records(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        """What readers of committed records see, by offset."""
        log, partition = self.partition.log, self.partition
        data = b"".join(batch for header, batch in self.stored() if header.last_offset < partition.last_stable_offset)
        aborted = partition.aborted_transactions(log.start_offset, log.high_watermark)
        found = {}
        for part in read_records(data, aborted=[(each.producer_id, each.first_offset) for each in aborted]):
            for each in single_records(part):
                found[each.offset] = (each.key, each.value)
        return found

    def bytes_before_tail(self) -> int:
        return self.partition.log.available(0, 2**60)


@pytest.fixture(params=ENGINES)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    found = Stage(request.param, tmp_path, TOPIC)
    yield found
    found.store.close()


def test_the_last_record_of_each_key_stays_at_its_offset(stage: Stage) -> None:
    for number in range(40):
        stage.write((b"a", b"%d" % number), (b"b%d" % (number % 3), b"x%d" % number))
    stage.fill()
    before, size = stage.records(), stage.bytes_before_tail()
    stage.compact()
    found = stage.records()
    assert found.items() <= before.items(), "offsets and values are those of before"
    latest = {key: offset for offset, (key, _) in before.items()}
    settled = {key: offset for key, offset in latest.items() if key != b"filler"}
    assert [offset for offset, (key, _) in found.items() if key != b"filler"] == sorted(settled.values())
    assert stage.bytes_before_tail() < size / 3
    stage.reopen()
    assert stage.records() == found
    stage.compact()
    assert stage.records() == found


def test_a_batch_in_which_nothing_is_replaced_stays_as_it_is(stage: Stage) -> None:
    stage.write((b"once", b"1"), (b"twice", b"2"))
    stage.write((b"twice", b"3"))
    stage.fill()
    before = stage.stored()
    stage.compact()
    after = stage.stored()
    assert after[1] == before[1]
    assert (after[0][0].records_count, after[0][0].last_offset) == (1, 1)
    assert list(stage.records().items())[:2] == [(0, (b"once", b"1")), (2, (b"twice", b"3"))]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_packed_batches_are_rewritten_packed(stage: Stage, codec: Codec) -> None:
    stage.write((b"a", b"1" * 400), (b"b", b"2"), codec=codec)
    stage.write((b"a", b"3"), codec=codec)
    stage.fill()
    stage.compact()
    header, _ = stage.stored()[0]
    assert (header.codec, header.records_count, header.max_timestamp) == (codec, 1, stage.now_ms)
    assert stage.records()[1] == (b"b", b"2")


def test_tombstones_stay_for_their_time_and_then_go(stage: Stage) -> None:
    stage.write((b"a", b"1"))
    stage.write((b"a", None), (b"b", b"2"))
    stage.fill()
    stage.compact()
    assert stage.records()[1] == (b"a", None)
    assert 0 not in stage.records()
    header = stage.stored()[1][0]
    assert header.delete_horizon == stage.now_ms + DAY_MS
    assert header.max_timestamp == stage.now_ms
    for part in read_records(stage.stored()[1][1]):
        assert [each.timestamp for each in single_records(part)] == [stage.now_ms] * 2
    stage.now_ms += DAY_MS - 1
    stage.reopen()
    stage.compact()
    assert stage.records()[1] == (b"a", None)
    stage.now_ms += 1
    stage.compact()
    assert 1 not in stage.records()
    assert stage.records()[2] == (b"b", b"2")


def test_the_tail_and_open_transactions_are_left_alone(stage: Stage) -> None:
    stage.write((b"a", b"1"))
    stage.write((b"a", b"2"))
    stage.write((b"a", b"3"), producer=7)
    stage.write((b"a", b"4"))
    stage.fill()
    before = stage.stored()
    stage.compact()
    assert stage.stored()[1:] == before[1:], "the transaction is open, so its record must stay"
    assert stage.records() == {1: (b"a", b"2")}
    stage.end(7, commit=True)
    stage.fill()
    stage.compact()
    assert [value for key, value in stage.records().values() if key == b"a"] == [b"4"]


def test_aborted_records_go_and_replace_nothing(stage: Stage) -> None:
    stage.write((b"a", b"1"))
    stage.write((b"a", b"aborted"), producer=7)
    stage.end(7, commit=False)
    stage.write((b"b", b"later, of the same producer"), producer=7)
    stage.end(7, commit=True)
    stage.fill()
    stage.compact()
    wanted = {0: (b"a", b"1"), 3: (b"b", b"later, of the same producer")}
    shown = {offset: row for offset, row in stage.records().items() if row[0] != b"filler"}
    assert shown == wanted
    for days in range(4):
        stage.now_ms += DAY_MS
        if days % 2:
            stage.reopen()
        stage.fill()
        stage.compact()
        shown = {offset: row for offset, row in stage.records().items() if row[0] != b"filler"}
        assert shown == wanted, f"after {days} days"
        assert stage.partition.last_stable_offset == stage.partition.log.high_watermark
    headers = [header for header, _ in stage.stored()]
    assert sum(header.is_control for header in headers) == 1, "the marker of the transaction that has a record"


def test_producers_are_known_as_before(stage: Stage) -> None:
    for number in range(10):
        stage.write((b"k", b"%d" % number), producer=5)
        stage.end(5, commit=True)
    stage.write((b"k", b"new epoch"), producer=6, epoch=0)
    stage.end(6, commit=True, epoch=1)
    stage.fill()
    known = stage.partition.active_producers()
    for _ in range(4):
        stage.compact()
        stage.now_ms += DAY_MS
        stage.reopen()
        assert stage.partition.active_producers() == known
    with pytest.raises(BrokerError) as refused:
        stage.write((b"k", b"zombie"), producer=6, epoch=0)
    assert refused.value.code == Code.INVALID_PRODUCER_EPOCH
    stage.sequences[5] = 3
    with pytest.raises(BrokerError):  # the sixth last is out of order, the last is known
        stage.write((b"k", b"3"), producer=5)
    stage.sequences[5] = 9
    assert stage.write((b"k", b"9"), producer=5) == 18


def test_many_commits_of_one_key_become_small(stage: Stage) -> None:
    """What the log of an exactly-once sink, or `__consumer_offsets`, is."""
    for number in range(300):
        stage.write((b"sink", b"%d" % number), producer=5)
        stage.end(5, commit=True)
    stage.fill()
    for _ in range(3):
        stage.compact()
        stage.now_ms += DAY_MS + 1
    assert len(stage.stored()) < 30
    assert (b"sink", b"299") in stage.records().values()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", range(4))
def test_random_histories_keep_what_readers_see(name: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    stage = Stage(name, tmp_path, replace(TOPIC, segment_bytes=rng.choice([300, 2000])))
    open_producers: set[int] = set()
    for _ in range(400):
        choice, producer = rng.random(), rng.randrange(4)
        if choice < 0.55:
            rows = [
                (b"%d" % rng.randrange(8), rng.choice([b"%d" % rng.randrange(99), None]))
                for _ in range(rng.randrange(1, 4))
            ]
            codec = rng.choice([Codec.NONE, Codec.GZIP])
            stage.write(*rows, producer=producer, codec=codec)
            open_producers.add(producer)
        elif choice < 0.7:
            stage.write((b"%d" % rng.randrange(8), b"plain"))
        elif choice < 0.85 and producer in open_producers:
            stage.end(producer, commit=rng.random() < 0.6)
            open_producers.discard(producer)
        elif choice < 0.87:
            stage.now_ms += DAY_MS // 2
        elif choice < 0.93:
            check(stage, stage.compact)
        elif choice < 0.96:
            check(stage, stage.reopen)
        elif name == "tiered" and isinstance(stage.store._storage, TieredStorage):
            collect(stage.store._storage.engine, threshold=0.9)
            check(stage, lambda: None)
    check(stage, stage.reopen)
    stage.store.close()


def check(stage: Stage, act: Callable[[], None]) -> None:
    """What readers see is what they saw, but for records that later ones of the same key have replaced, and tombstones."""
    partition = stage.partition
    before = stage.records()
    producers = sorted(each[:3] + each[5:] for each in partition.active_producers())
    ends = partition.log.high_watermark, partition.last_stable_offset
    act()
    partition = stage.partition
    after = stage.records()
    assert (partition.log.high_watermark, partition.last_stable_offset) == ends
    assert sorted(each[:3] + each[5:] for each in partition.active_producers()) == producers
    assert after.items() <= before.items()
    latest = {key: offset for offset, (key, _) in before.items()}
    for key, offset in latest.items():
        assert offset in after or before[offset][1] is None, (key, offset)
    valued = {(key, value) for key, value in dict(before.values()).items() if value is not None}
    assert valued <= set(dict(after.values()).items()), "of each key the last value is the last one still"


def test_a_lost_index_is_rebuilt_with_the_rewritten_batches(tmp_path: Path) -> None:
    """The entry logs still have the old batches."""
    stage = Stage("tiered", tmp_path, TOPIC)
    for number in range(60):
        stage.write((b"a", b"%d" % number), (b"b%d" % (number % 3), b"x%d" % number))
    stage.fill()
    stage.compact()
    before = stage.stored()
    stage.store.close()
    (index,) = tmp_path.rglob("index")
    index.unlink()
    stage.open()
    assert stage.stored() == before
    stage.fill()
    stage.compact()
    assert stage.records()[118] == (b"a", b"59")
    stage.store.close()


def test_the_disk_gets_back_what_compaction_took(tmp_path: Path) -> None:
    stage = Stage("tiered", tmp_path, TOPIC)
    for number in range(2000):
        stage.write((b"a", b"%d" % number))
    stage.fill()
    stage.compact()
    storage = stage.store._storage
    assert isinstance(storage, TieredStorage)
    before = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    stage.write((b"next", b"file"))
    storage.engine.flusher.flush_now()
    collect(storage.engine, threshold=0.5)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.log")) < before / 10
    assert stage.records()[1999] == (b"a", b"1999")
    stage.reopen()
    assert stage.records()[1999] == (b"a", b"1999")
    stage.store.close()
