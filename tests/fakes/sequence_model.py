"""A partition as brokers keep it: records, and the rules by which sequences and epochs are taken or refused.

Owns: the rules of Kafka's ProducerAppendInfo (KIP-98, KIP-360), written a second time, for
tests. Must not know: the producer under test.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_producer.protocol.messages import ProducePartitionResponse
from spark_producer.record.batch_v2 import read_header
from tests.fakes.simulated_cluster import numbers_in

TOO_LARGE, OUT_OF_ORDER, DUPLICATE, STALE_EPOCH, UNKNOWN_PRODUCER_ID = 10, 45, 46, 47, 59
SPACE = 1 << 31
"""sequences count modulo this"""


class Habits(NamedTuple):
    """Differences between versions of brokers: `strict` ones refuse a producer that they do not know any more, unless it
    begins at 0; `names_duplicates`: they answer error 46 to one, and not the first offset; `tells_log_start`: they say
    where the log begins."""

    strict: bool
    names_duplicates: bool
    has_log_start: bool


@dataclass
class Known:
    """A producer as the partition remembers it."""

    epoch: int
    expected: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """base sequence, records and base offset of the last five"""


@dataclass
class ModelPartition:
    """The replicated log: it outlives its leaders.

    As Kafka does, it takes any first sequence of a producer that it never saw. In one thing it is more careful than Kafka,
    which takes any of one that it has forgotten, too: there the second batch can overtake a first one that was refused, and
    the order is lost. Here the first one has to be due, or to have been there before.
    """

    index: int
    largest: int
    """bytes of a batch that the topic takes"""
    habits: Habits
    leader: int = 1
    leader_epoch: int = 0
    log_start: int = 0
    records: list[int] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    producers: dict[int, Known] = field(default_factory=dict)
    forgotten: dict[int, Known] = field(default_factory=dict)
    """producers whose batches retention has deleted, as they were known"""

    def at(self, offset: int) -> int | None:
        """The record there; None if it was deleted."""
        return self.records[offset - self.log_start] if offset >= self.log_start else None

    def take(self, data: memoryview) -> ProducePartitionResponse:
        """Append a batch, or say why not."""
        header = read_header(data)
        if len(data) > self.largest:
            return self._answer(TOO_LARGE)
        producer, epoch, first, count = (
            header.producer_id, header.producer_epoch, header.base_sequence, header.records_count
        )  # fmt: skip
        known = self.producers.get(producer)
        if known is None:
            if first and self.habits.strict:
                return self._answer(UNKNOWN_PRODUCER_ID)
            if first and not self._may_begin(producer, epoch, first):
                return self._answer(OUT_OF_ORDER)
            known = self.producers[producer] = Known(epoch, first)
        elif epoch < known.epoch:
            return self._answer(STALE_EPOCH)
        elif epoch > known.epoch:
            if first:
                return self._answer(OUT_OF_ORDER)
            known = self.producers[producer] = Known(epoch, 0)
        for sequence, records, offset in known.batches:
            if (sequence, records) == (first, count):
                return self._answer(DUPLICATE) if self.habits.names_duplicates else self._answer(0, offset)
        if first != known.expected:
            return self._answer(OUT_OF_ORDER)
        known.expected = (first + count) % SPACE
        offset = self.log_start + len(self.records)
        known.batches.append((first, count, offset))
        self.records += numbers_in(data, header)
        return self._answer(0, offset)

    def retain(self) -> None:
        """Retention deletes the whole log, and with it what it knows of producers."""
        self.log_start += len(self.records)
        self.deleted.update(self.records)
        self.records.clear()
        self.forgotten.update(self.producers)
        self.producers.clear()

    def _may_begin(self, producer: int, epoch: int, first: int) -> bool:
        known = self.forgotten.get(producer)
        if known is None:
            return True
        if epoch != known.epoch:
            return False
        return first == known.expected or first in [batch[0] for batch in known.batches]

    def _answer(self, code: int, offset: int = -1) -> ProducePartitionResponse:
        log_start = self.log_start if self.habits.has_log_start else -1
        return ProducePartitionResponse(self.index, code, offset, log_start_offset=log_start)
