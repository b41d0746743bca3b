"""A data directory that is renamed or removed below a live broker takes no more batches: they would be lost."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.coordinator.offsets import CommittedOffset
from spark_producer.broker.log.compaction import CompactionTimer
from spark_producer.broker.settings import STORAGE_ENGINES, BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from tests.fakes.small_tiers import collect, settle
from tests.unit.broker.batches import make_batch, make_record, sealed


def rename(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def replace_by_another(directory: Path) -> None:
    rename(directory)
    shutil.copytree(directory.with_name("elsewhere"), directory)


@pytest.mark.parametrize("move", [rename, shutil.rmtree, replace_by_another])
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_nothing_is_acknowledged_in_a_directory_that_is_gone(
    engine: str, sync: bool, move: Callable[[Path], None], tmp_path: Path
) -> None:
    settings = BrokerSettings(storage_engine=engine, sync_each_append=sync)
    data = tmp_path / "data"
    store = TopicStore(data, settings)
    coordinator = BrokerCoordinator(store, settings)
    store.create("t", 1)
    partition = store.partition("t", 0)
    partition.append(make_batch())
    coordinator.commit_offsets("g", {TopicPartition("t", 0): CommittedOffset(1, -1, None)})
    if isinstance(store._storage, TieredStorage):
        settle(store._storage)
    move(data)
    with pytest.raises(BrokerError) as refused:
        confirmed(store)
    assert refused.value.code is Code.KAFKA_STORAGE_ERROR
    assert str(data) in str(refused.value)
    with pytest.raises(BrokerError, match="was renamed or removed while the broker ran"):
        coordinator.commit_offsets("g", {TopicPartition("t", 0): CommittedOffset(2, -1, None)})
    coordinator.close()
    store.close()


def confirmed(store: TopicStore) -> None:
    """Append a batch, and ask whether it may be acknowledged."""
    log = store.partition("t", 0).log
    offset = store.partition("t", 0).append(make_batch())
    if isinstance(store._storage, TieredStorage):
        settle(store._storage)
    assert not log.is_confirmed(offset)


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_a_directory_in_the_place_of_the_brokers_is_left_alone(engine: str, sync: bool, tmp_path: Path) -> None:
    """A broker that was forgotten must not flush, compact or delete in the directory of the next one."""
    topic = TopicSettings(segment_bytes=300, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0)
    settings = BrokerSettings(storage_engine=engine, sync_each_append=sync, topic=topic)
    data, other = tmp_path / "data", tmp_path / "other"
    for path in (data, other):
        store = TopicStore(path, settings)
        for name in ("t", "u", "v"):
            store.create(name, 1)
        fill(store)
        store.close()
    store = TopicStore(data, settings)
    coordinator = BrokerCoordinator(store, settings)
    fill(store)
    shutil.rmtree(data)
    other.rename(data)
    before = contents(data)
    for each in everything_of(store, coordinator):
        with contextlib.suppress(BrokerError, OSError):
            each()
    coordinator.close()
    store.close()
    assert contents(data) == before


def fill(store: TopicStore) -> None:
    for number in range(8):
        for name in ("t", "u", "v"):
            record = make_record(0, b"key", b"%d" % number)
            store.partition(name, 0).append(sealed(record, 1))
    if isinstance(store._storage, TieredStorage):
        settle(store._storage)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def everything_of(store: TopicStore, coordinator: BrokerCoordinator) -> Iterator[Callable[[], object]]:
    """The operations of a broker on its files, periodic ones and those of clients."""
    yield CompactionTimer(store.partitions, 60.0, 0.0).run_all
    yield lambda: store.delete_old(2**60)
    yield lambda: store.partition("t", 0).delete_before(5)
    yield lambda: store.delete("u")
    yield lambda: store.create("new", 1)
    yield lambda: store.add_partitions("v", 2)
    yield lambda: store.alter_all({"t": {"retention.ms": "1"}})
    for _ in range(1001):
        yield store.directory.new_producer_id
    yield lambda: coordinator.commit_offsets("g", {TopicPartition("t", 0): CommittedOffset(1, -1, None)})
    yield coordinator._rewrite
    storage = store._storage
    if isinstance(storage, TieredStorage):
        yield lambda: confirmed(store)
        yield storage.engine.flusher.flush_now
        yield lambda: collect(storage.engine, 0.9)
        yield storage.engine.catalog.store
