"""A data directory that is renamed or removed below a live broker takes nothing more: it is no place to acknowledge into."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_producer.broker.coordinator.coordinator import Coordinator
from spark_producer.broker.coordinator.offsets import CommittedOffset
from spark_producer.broker.settings import STORAGE_ENGINES, BrokerSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.topic_store import TopicStore
from spark_producer.codes import Code
from spark_producer.errors import BrokerError
from tests.stages.small_tiers import settle
from tests.unit.broker.batches import make_batch


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
    coordinator = Coordinator(store, settings)
    store.create("t", 1)
    partition = store.partition("t", 0)
    partition.append(make_batch())
    coordinator.commit_offsets("g", {("t", 0): CommittedOffset(1, -1, None)})
    if isinstance(store._storage, TieredStorage):
        settle(store._storage)
    move(data)
    if engine == "tiered" or move is not replace_by_another:
        with pytest.raises(BrokerError) as refused:
            confirmed(store)
        assert refused.value.code is Code.KAFKA_STORAGE_ERROR
        assert str(data) in str(refused.value)
    with pytest.raises(BrokerError, match="was renamed or removed while the broker ran"):
        coordinator.commit_offsets("g", {("t", 0): CommittedOffset(2, -1, None)})
    coordinator.close()
    store.close()


def confirmed(store: TopicStore) -> None:
    """Append a batch, and ask whether it may be acknowledged."""
    log = store.partition("t", 0).log
    offset = store.partition("t", 0).append(make_batch())
    if isinstance(store._storage, TieredStorage):
        settle(store._storage)
    assert not log.is_confirmed(offset)
