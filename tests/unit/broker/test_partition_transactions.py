"""Transactions in one partition: what opens and ends them, what readers of committed records see, what a restart knows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker.log.partition import Partition
from spark_producer.broker.log.producer_state import MAX_PRODUCERS
from spark_producer.broker.log.transaction_index import MAX_OPEN_TRANSACTIONS, AbortedTxn
from spark_producer.broker.settings import STORAGE_ENGINES, BrokerSettings, TopicSettings
from spark_producer.broker.storage.base import Recovered
from spark_producer.broker.storage.engines import open_storage
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT, BatchHeader, batches
from spark_producer.record.control import EndMarker, read_end_marker
from tests.fakes.memory_storage import MemoryLog, MemoryStorage
from tests.unit.broker.batches import make_batch


def opened(path: Path, engine: str | None = None) -> Partition:
    settings = BrokerSettings(sync_on_close=False, storage_engine=engine)
    return Partition(open_storage(path, settings), "t", 0, TopicSettings())


@pytest.fixture(params=STORAGE_ENGINES)
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Partition]:
    made = opened(tmp_path, request.param)
    yield made
    made.close()


def row(producer_id: int, sequence: int, epoch: int = 0, records: int = 1) -> memoryview:
    """A batch in a transaction."""
    return make_batch(records, producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL_BIT)


def refusal(partition: Partition, batch: memoryview) -> int:
    with pytest.raises(BrokerError) as refused:
        partition.append(batch)
    return refused.value.code


def marker_refusal(partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int = 0) -> int:
    with pytest.raises(BrokerError) as refused:
        partition.write_marker(producer_id, epoch, True, coordinator_epoch)
    return refused.value.code


def test_the_earliest_open_transaction_holds_the_last_stable_offset(partition: Partition) -> None:
    partition.append(make_batch(3))
    assert partition.last_stable_offset == 3
    partition.append(row(1, 0))
    partition.append(row(2, 0))
    partition.append(make_batch(5))
    assert partition.last_stable_offset == 3
    assert partition.write_marker(1, 0, True, 0) == 10
    assert partition.last_stable_offset == 4
    assert partition.write_marker(2, 0, False, 0) == 11
    assert partition.last_stable_offset == 12
    assert partition.aborted_transactions(0, 11) == [AbortedTxn(2, 4, 11, 12)]


def test_a_marker_is_a_control_batch_that_names_its_producer(partition: Partition) -> None:
    partition.append(row(7, 0, epoch=3))
    partition.write_marker(7, 4, False, 9, now_ms=1234)
    ((header, batch),) = batches(partition.log.read(1, 1000))
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 4, -1)
    assert header.max_timestamp == 1234
    assert read_end_marker(batch[61:]) == EndMarker(commits=False, coordinator_epoch=9)


def test_a_restart_without_a_close_knows_the_same(tmp_path: Path) -> None:
    partition = opened(tmp_path)
    for sequence in range(3):
        partition.append(row(1, sequence))
    partition.append(row(2, 0))
    partition.write_marker(1, 1, False, 5)
    partition.append(row(1, 0, epoch=1))
    known = (partition.last_stable_offset, partition.aborted_transactions(0, 100), partition.active_producers())
    again = opened(tmp_path)
    assert (again.last_stable_offset, again.aborted_transactions(0, 100), again.active_producers()) == known
    assert known[:2] == (3, [AbortedTxn(1, 0, 4, 3)])
    assert marker_refusal(again, 1, 1, coordinator_epoch=4) == Code.TRANSACTION_COORDINATOR_FENCED
    partition.close()
    again.close()


def test_a_marker_with_an_older_epoch_is_refused_and_leaves_no_trace(partition: Partition) -> None:
    partition.append(row(1, 0, epoch=2))
    assert marker_refusal(partition, 1, 1) == Code.INVALID_PRODUCER_EPOCH
    assert (partition.log.high_watermark, partition.last_stable_offset) == (1, 0)


def test_a_marker_shuts_out_the_producer_of_the_older_epoch(partition: Partition) -> None:
    partition.append(row(1, 0))
    partition.append(row(1, 1))
    partition.write_marker(1, 1, False, 0)
    assert refusal(partition, row(1, 2)) == Code.INVALID_PRODUCER_EPOCH
    assert refusal(partition, row(1, 2, epoch=1)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(row(1, 0, epoch=1)) == 3


def test_sequences_go_on_after_a_marker_of_the_same_epoch(partition: Partition) -> None:
    partition.append(row(1, 0))
    partition.write_marker(1, 0, True, 0)
    assert refusal(partition, row(1, 2)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(row(1, 1)) == 2
    assert partition.append(row(1, 0)) == 0, "and what was sent before is recognised"


def test_a_batch_outside_of_the_open_transaction_of_its_producer_is_refused(partition: Partition) -> None:
    partition.append(row(1, 0))
    assert refusal(partition, make_batch(producer_id=1, epoch=0, sequence=1)) == Code.INVALID_TXN_STATE
    partition.write_marker(1, 0, True, 0)
    assert partition.append(make_batch(producer_id=1, epoch=0, sequence=1)) == 2
    assert partition.append(row(1, 2)) == 3, "a transaction after batches in none"
    assert partition.last_stable_offset == 3


def test_a_marker_of_an_unknown_producer_is_written_and_its_epoch_begins_at_zero(partition: Partition) -> None:
    assert partition.write_marker(1, 3, True, 0) == 0
    assert partition.last_stable_offset == 1
    assert refusal(partition, row(1, 0, epoch=2)) == Code.INVALID_PRODUCER_EPOCH
    assert refusal(partition, row(1, 5, epoch=3)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(row(1, 0, epoch=3)) == 1


def test_aborted_transactions_are_returned_where_the_range_overlaps(partition: Partition) -> None:
    for producer_id in (1, 2, 3):
        partition.append(row(producer_id, 0))
        partition.write_marker(producer_id, 0, producer_id == 2, 0)
    first, last = AbortedTxn(1, 0, 1, 2), AbortedTxn(3, 4, 5, 6)
    ranges = {(0, 0): [first], (0, 3): [first], (1, 1): [first], (2, 3): [], (1, 4): [first, last], (5, 9): [last]}
    assert {each: partition.aborted_transactions(*each) for each in ranges} == ranges


def test_a_transaction_ends_for_readers_when_its_marker_is_confirmed(tmp_path: Path) -> None:
    storage = MemoryStorage(tmp_path, BrokerSettings(), confirms_at_once=False)
    partition = Partition(storage, "t", 0, TopicSettings(), is_new=True)
    partition.append(make_batch())
    partition.append(row(1, 0))
    storage.confirm_all()
    assert (partition.last_stable_offset, partition.log.high_watermark) == (1, 2)
    partition.write_marker(1, 0, True, 0)
    assert partition.last_stable_offset == 1
    storage.confirm_all()
    assert partition.last_stable_offset == 3


# State that is dropped, and state that one client may keep the broker from dropping


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_aborted_transactions_go_with_the_records_that_retention_deletes(engine: str, tmp_path: Path) -> None:
    settings = TopicSettings(segment_bytes=300, retention_bytes=600)
    partition = Partition(open_storage(tmp_path, BrokerSettings(storage_engine=engine)), "t", 0, settings)
    for producer_id in range(20):
        partition.append(row(producer_id, 0))
        partition.write_marker(producer_id, 0, False, 0)
    partition.delete_old(10**15)
    start = partition.log.start_offset
    assert start > 30
    kept = partition.aborted_transactions(0, 100)
    assert [each.last_offset for each in kept] == list(range(start + 1 - start % 2, 40, 2))
    partition.close()
    again = Partition(open_storage(tmp_path, BrokerSettings(storage_engine=engine)), "t", 0, settings)
    assert again.aborted_transactions(0, 100) == [each for each in kept if each.first_offset >= start]
    again.close()


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_an_open_transaction_whose_beginning_was_deleted_holds_reading_at_the_start_of_the_log(
    engine: str,
    tmp_path: Path,
) -> None:
    settings = TopicSettings(segment_bytes=300, retention_bytes=600)
    partition = Partition(open_storage(tmp_path, BrokerSettings(storage_engine=engine)), "t", 0, settings)
    partition.append(row(1, 0))
    for _ in range(20):
        partition.append(make_batch())
    partition.delete_old(10**15)
    assert partition.last_stable_offset == partition.log.start_offset > 0
    partition.write_marker(1, 0, True, 0)
    assert partition.last_stable_offset == 22
    partition.close()


def test_no_more_than_so_many_transactions_are_open_and_none_of_them_is_forgotten(tmp_path: Path) -> None:
    partition = Partition(MemoryStorage(tmp_path, BrokerSettings()), "t", 0, TopicSettings(), is_new=True)
    for producer_id in range(MAX_OPEN_TRANSACTIONS):
        partition.append(row(producer_id, 0))
    assert refusal(partition, row(MAX_OPEN_TRANSACTIONS, 0)) == Code.REQUEST_TIMED_OUT
    assert partition.append(row(0, 1)) == MAX_OPEN_TRANSACTIONS, "those that are open go on"
    for other in range(MAX_PRODUCERS):
        partition.append(make_batch(producer_id=10**6 + other, epoch=0, sequence=0))
    assert (partition.producer_count, partition.last_stable_offset) == (MAX_PRODUCERS, 0)
    assert refusal(partition, row(0, 7)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.write_marker(0, 0, True, 0)
    assert partition.last_stable_offset == 1
    partition.append(row(MAX_OPEN_TRANSACTIONS, 0))


def test_transactions_whose_end_is_not_confirmed_count_as_open(tmp_path: Path) -> None:
    storage = MemoryStorage(tmp_path, BrokerSettings(), confirms_at_once=False)
    partition = Partition(storage, "t", 0, TopicSettings(), is_new=True)
    for producer_id in range(MAX_OPEN_TRANSACTIONS):
        partition.append(row(producer_id, 0))
        partition.write_marker(producer_id, 0, True, 0)
    assert refusal(partition, row(10**7, 0)) == Code.REQUEST_TIMED_OUT
    storage.confirm_all()
    assert partition.append(row(10**7, 0)) == 2 * MAX_OPEN_TRANSACTIONS


@pytest.mark.slow
def test_a_partition_full_of_open_transactions_takes_a_few_megabytes(tmp_path: Path) -> None:
    """The engine's caches of each batch are not counted: the segments engine has none."""
    settings = BrokerSettings(sync_on_close=False, storage_engine="segments")
    partition = Partition(open_storage(tmp_path, settings), "t", 0, TopicSettings())
    tracemalloc.start()
    for producer_id in range(MAX_OPEN_TRANSACTIONS):
        partition.append(row(producer_id, 0))
    for producer_id in range(MAX_OPEN_TRANSACTIONS):
        partition.write_marker(producer_id, 0, False, 0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 8 << 20
    partition.close()


class ManyEnded(MemoryStorage):
    """A log with `count` committed transactions of one producer, whose batches are made when they are read."""

    ENDED = 40_000

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> MemoryLog:
        self.create(topic, partition, settings)
        (data, _), (marker, stored) = self._first_two(topic, settings)
        for number in range(self.ENDED):
            recovered(data._replace(base_offset=2 * number, base_sequence=number), b"")
            recovered(marker._replace(base_offset=2 * number + 1), stored)
        return self.logs[topic, partition]

    def _first_two(self, topic: str, settings: TopicSettings) -> list[tuple[BatchHeader, bytes]]:
        made = Partition(self, topic, 1, settings, is_new=True)
        made.append(row(1, 0))
        made.write_marker(1, 0, True, 0)
        return self.logs[topic, 1].batches


@pytest.mark.slow
def test_a_restart_needs_no_memory_for_transactions_that_have_ended(tmp_path: Path) -> None:
    """The log may hold millions of them, and what was found in it is confirmed."""
    storage = ManyEnded(tmp_path, BrokerSettings())
    tracemalloc.start()
    Partition(storage, "t", 0, TopicSettings())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20
