"""Sequence numbers: given once, kept through retries, wrapped at 2^31. Ids: spec §6, SN14, SN30, TM7, RB4, RB18."""

from __future__ import annotations

import pytest

from spark_producer.accumulator import ProducerBatch, TopicPartition
from spark_producer.record.batch_v2 import check_crc, read_header
from spark_producer.sender.idempotence import ProducerState
from tests.unit.accumulator.workbench import rows_of

PLACE = TopicPartition("t", 0)


def batch_of(records: int, place: TopicPartition = PLACE) -> ProducerBatch:
    batch = ProducerBatch(place, memoryview(bytearray(4096)), 0, 0.0, 0)
    batch.append(rows_of([b"v"] * records), 0, records)
    return batch


def state() -> ProducerState:
    made = ProducerState(enabled=True)
    made.producer_id, made.producer_epoch = 4711, 2
    return made


def test_an_id_is_needed_only_by_an_idempotent_producer_that_has_none() -> None:
    assert ProducerState(enabled=True).needs_id
    assert not state().needs_id
    assert not ProducerState(enabled=False).needs_id


def test_tm7_every_partition_counts_from_zero() -> None:
    made = state()
    batches = [batch_of(3), batch_of(2, TopicPartition("t", 1)), batch_of(4), batch_of(1, TopicPartition("u", 0))]
    for batch in batches:
        made.stamp(batch)
    assert [batch.base_sequence for batch in batches] == [0, 0, 3, 0]


@pytest.mark.parametrize(
    ("start", "records", "following"), [(2**31 - 1, 1, 0), (2**31 - 6, 10, 4), (2**31 - 2, 1, 2**31 - 1)]
)
def test_tm7_rb4_rb18_sequences_wrap_to_zero(start: int, records: int, following: int) -> None:
    made = state()
    made._next[PLACE] = start
    first, second = batch_of(records), batch_of(1)
    made.stamp(first)
    made.stamp(second)
    assert (first.base_sequence, second.base_sequence) == (start, following)
    assert read_header(first.data).base_sequence == start


def test_a_stamped_batch_keeps_its_sequence_and_is_sealed_again() -> None:
    made = state()
    batch = batch_of(2)
    made.stamp(batch)
    sealed = bytes(batch.data)
    made.stamp(batch_of(5))
    made.stamp(batch)
    assert bytes(batch.data) == sealed
    header = read_header(batch.data)
    assert header[9:13] == (4711, 2, 0, 2)
    check_crc(header, batch.data)


def test_without_idempotence_nothing_is_stamped() -> None:
    made = ProducerState(enabled=False)
    batch = batch_of(2)
    made.stamp(batch)
    header = read_header(batch.data)
    assert header[9:13] == (-1, -1, -1, 2)
    check_crc(header, batch.data)
