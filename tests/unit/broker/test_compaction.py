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
class CompactionHarness:
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
        """Settle all batches that can be settled, and compact."""
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
        """Return the committed records by offset."""
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
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CompactionHarness]:
    found = CompactionHarness(request.param, tmp_path, TOPIC)
    yield found
    found.store.close()


def test_the_last_record_of_each_key_stays_at_its_offset(harness: CompactionHarness) -> None:
    for number in range(40):
        harness.write((b"a", b"%d" % number), (b"b%d" % (number % 3), b"x%d" % number))
    harness.fill()
    before, size = harness.records(), harness.bytes_before_tail()
    harness.compact()
    found = harness.records()
    assert found.items() <= before.items(), "offsets and values are those of before"
    latest = {key: offset for offset, (key, _) in before.items()}
    settled = {key: offset for key, offset in latest.items() if key != b"filler"}
    assert [offset for offset, (key, _) in found.items() if key != b"filler"] == sorted(settled.values())
    assert harness.bytes_before_tail() < size / 3
    harness.reopen()
    assert harness.records() == found
    harness.compact()
    assert harness.records() == found


def test_a_batch_in_which_nothing_is_replaced_stays_as_it_is(harness: CompactionHarness) -> None:
    harness.write((b"once", b"1"), (b"twice", b"2"))
    harness.write((b"twice", b"3"))
    harness.fill()
    before = harness.stored()
    harness.compact()
    after = harness.stored()
    assert after[1] == before[1]
    assert (after[0][0].records_count, after[0][0].last_offset) == (1, 1)
    assert list(harness.records().items())[:2] == [(0, (b"once", b"1")), (2, (b"twice", b"3"))]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_packed_batches_are_rewritten_packed(harness: CompactionHarness, codec: Codec) -> None:
    harness.write((b"a", b"1" * 400), (b"b", b"2"), codec=codec)
    harness.write((b"a", b"3"), codec=codec)
    harness.fill()
    harness.compact()
    header, _ = harness.stored()[0]
    assert (header.codec, header.records_count, header.max_timestamp) == (codec, 1, harness.now_ms)
    assert harness.records()[1] == (b"b", b"2")


def test_tombstones_stay_for_their_time_and_then_go(harness: CompactionHarness) -> None:
    harness.write((b"a", b"1"))
    harness.write((b"a", None), (b"b", b"2"))
    harness.fill()
    harness.compact()
    assert harness.records()[1] == (b"a", None)
    assert 0 not in harness.records()
    header = harness.stored()[1][0]
    assert header.delete_horizon == harness.now_ms + DAY_MS
    assert header.max_timestamp == harness.now_ms
    for part in read_records(harness.stored()[1][1]):
        assert [each.timestamp for each in single_records(part)] == [harness.now_ms] * 2
    harness.now_ms += DAY_MS - 1
    harness.reopen()
    harness.compact()
    assert harness.records()[1] == (b"a", None)
    harness.now_ms += 1
    harness.compact()
    assert 1 not in harness.records()
    assert harness.records()[2] == (b"b", b"2")


def test_the_tail_and_open_transactions_are_left_alone(harness: CompactionHarness) -> None:
    harness.write((b"a", b"1"))
    harness.write((b"a", b"2"))
    harness.write((b"a", b"3"), producer=7)
    harness.write((b"a", b"4"))
    harness.fill()
    before = harness.stored()
    harness.compact()
    assert harness.stored()[1:] == before[1:], "the transaction is open, so its record must stay"
    assert harness.records() == {1: (b"a", b"2")}
    harness.end(7, commit=True)
    harness.fill()
    harness.compact()
    assert [value for key, value in harness.records().values() if key == b"a"] == [b"4"]


def test_aborted_records_go_and_replace_nothing(harness: CompactionHarness) -> None:
    harness.write((b"a", b"1"))
    harness.write((b"a", b"aborted"), producer=7)
    harness.end(7, commit=False)
    harness.write((b"b", b"later, of the same producer"), producer=7)
    harness.end(7, commit=True)
    harness.fill()
    harness.compact()
    wanted = {0: (b"a", b"1"), 3: (b"b", b"later, of the same producer")}
    shown = {offset: row for offset, row in harness.records().items() if row[0] != b"filler"}
    assert shown == wanted
    for days in range(4):
        harness.now_ms += DAY_MS
        if days % 2:
            harness.reopen()
        harness.fill()
        harness.compact()
        shown = {offset: row for offset, row in harness.records().items() if row[0] != b"filler"}
        assert shown == wanted, f"after {days} days"
        assert harness.partition.last_stable_offset == harness.partition.log.high_watermark
    headers = [header for header, _ in harness.stored()]
    assert sum(header.is_control for header in headers) == 1, "the marker of the transaction that has a record"


def test_producers_are_known_as_before(harness: CompactionHarness) -> None:
    for number in range(10):
        harness.write((b"k", b"%d" % number), producer=5)
        harness.end(5, commit=True)
    harness.write((b"k", b"new epoch"), producer=6, epoch=0)
    harness.end(6, commit=True, epoch=1)
    harness.fill()
    known = harness.partition.active_producers()
    for _ in range(4):
        harness.compact()
        harness.now_ms += DAY_MS
        harness.reopen()
        assert harness.partition.active_producers() == known
    with pytest.raises(BrokerError) as refused:
        harness.write((b"k", b"zombie"), producer=6, epoch=0)
    assert refused.value.code == Code.INVALID_PRODUCER_EPOCH
    harness.sequences[5] = 3
    with pytest.raises(BrokerError):  # the sixth last is out of order, the last is known
        harness.write((b"k", b"3"), producer=5)
    harness.sequences[5] = 9
    assert harness.write((b"k", b"9"), producer=5) == 18


def test_many_commits_of_one_key_become_small(harness: CompactionHarness) -> None:
    """A log like that of an exactly-once sink, or `__consumer_offsets`."""
    for number in range(300):
        harness.write((b"sink", b"%d" % number), producer=5)
        harness.end(5, commit=True)
    harness.fill()
    for _ in range(3):
        harness.compact()
        harness.now_ms += DAY_MS + 1
    assert len(harness.stored()) < 30
    assert (b"sink", b"299") in harness.records().values()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", range(4))
def test_random_histories_keep_what_readers_see(name: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    harness = CompactionHarness(name, tmp_path, replace(TOPIC, segment_bytes=rng.choice([300, 2000])))
    open_producers: set[int] = set()
    for _ in range(400):
        choice, producer = rng.random(), rng.randrange(4)
        if choice < 0.55:
            rows = [
                (b"%d" % rng.randrange(8), rng.choice([b"%d" % rng.randrange(99), None]))
                for _ in range(rng.randrange(1, 4))
            ]
            codec = rng.choice([Codec.NONE, Codec.GZIP])
            harness.write(*rows, producer=producer, codec=codec)
            open_producers.add(producer)
        elif choice < 0.7:
            harness.write((b"%d" % rng.randrange(8), b"plain"))
        elif choice < 0.85 and producer in open_producers:
            harness.end(producer, commit=rng.random() < 0.6)
            open_producers.discard(producer)
        elif choice < 0.87:
            harness.now_ms += DAY_MS // 2
        elif choice < 0.93:
            check(harness, harness.compact)
        elif choice < 0.96:
            check(harness, harness.reopen)
        elif name == "tiered" and isinstance(harness.store._storage, TieredStorage):
            collect(harness.store._storage.engine, threshold=0.9)
            check(harness, lambda: None)
    check(harness, harness.reopen)
    harness.store.close()


def check(harness: CompactionHarness, act: Callable[[], None]) -> None:
    """Readers see the same records, except for tombstones and those replaced by later ones of the same key."""
    partition = harness.partition
    before = harness.records()
    producers = sorted(each[:3] + each[5:] for each in partition.active_producers())
    ends = partition.log.high_watermark, partition.last_stable_offset
    act()
    partition = harness.partition
    after = harness.records()
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
    harness = CompactionHarness("tiered", tmp_path, TOPIC)
    for number in range(60):
        harness.write((b"a", b"%d" % number), (b"b%d" % (number % 3), b"x%d" % number))
    harness.fill()
    harness.compact()
    before = harness.stored()
    harness.store.close()
    (index,) = tmp_path.rglob("index")
    index.unlink()
    harness.open()
    assert harness.stored() == before
    harness.fill()
    harness.compact()
    assert harness.records()[118] == (b"a", b"59")
    harness.store.close()


def test_the_disk_gets_back_what_compaction_took(tmp_path: Path) -> None:
    harness = CompactionHarness("tiered", tmp_path, TOPIC)
    for number in range(2000):
        harness.write((b"a", b"%d" % number))
    harness.fill()
    harness.compact()
    storage = harness.store._storage
    assert isinstance(storage, TieredStorage)
    before = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    harness.write((b"next", b"file"))
    storage.engine.flusher.flush_now()
    collect(storage.engine, threshold=0.5)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.log")) < before / 10
    assert harness.records()[1999] == (b"a", b"1999")
    harness.reopen()
    assert harness.records()[1999] == (b"a", b"1999")
    harness.store.close()
