"""The epochs and last sequences that a partition of the broker remembers of idempotent producers (Kafka's ProducerStateManager).

By them it refuses batches that are out of order, and recognises those that were sent twice. The rules are those of Kafka's
ProducerAppendInfo and ProducerStateEntry (KIP-98, KIP-360).
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from spark_producer.codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import NO_PRODUCER_ID, BatchHeader
from spark_producer.record.sequence_numbers import add_to_sequence

REMEMBERED_BATCHES: Final = 5
"""The batches remembered of each producer (Kafka's NUM_BATCHES_TO_RETAIN): the reason why it may have five requests in flight."""

MOST_PRODUCERS: Final = 10_000
"""The most producers that one partition remembers; beyond that it forgets the one that has been silent longest. Kafka forgets a
producer after a day (`producer.id.expiration.ms`), which needs a clock and does not limit their number."""


class _Appended(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


class _Producer:
    """The newest epoch of one producer id, and the last batches of that epoch."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[_Appended] = deque(maxlen=REMEMBERED_BATCHES)


class ProducerStates:
    """The idempotent producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def check(self, header: BatchHeader) -> int | None:
        """Check whether the batch with this header may be appended.

        Return None if it may. If it repeats a batch, return the base offset of that one: the caller answers with it and appends
        nothing.

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return None
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None  # any sequence will do: the log may have been deleted while the producer lives
        if header.producer_epoch < producer.epoch:
            raise BrokerError(
                f"producer {header.producer_id} has epoch {header.producer_epoch}, the newest is {producer.epoch}",
                code=Code.INVALID_PRODUCER_EPOCH,
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                raise _out_of_order(header, "0, the first of a new epoch")
            return None
        return self._check_same_epoch(header, producer)

    @staticmethod
    def _check_same_epoch(header: BatchHeader, producer: _Producer) -> int | None:
        last = header.last_sequence
        for known in producer.batches:
            if known.first_sequence == header.base_sequence and known.last_sequence == last:
                return known.base_offset
        expected = add_to_sequence(producer.batches[-1].last_sequence, 1)
        if header.base_sequence != expected:
            raise _out_of_order(header, str(expected))
        return None

    def remember(self, header: BatchHeader) -> None:
        """Note an appended batch; `header` carries the offset that it was given. A restart replays the log through this."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        producer = self._producers.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = _Producer(header.producer_epoch)
        self._producers[header.producer_id] = producer  # now the last of the dict is the most recent one
        if len(self._producers) > MOST_PRODUCERS:
            del self._producers[next(iter(self._producers))]
        producer.batches.append(_Appended(header.base_sequence, header.last_sequence, header.base_offset))


def _out_of_order(header: BatchHeader, expected: str) -> BrokerError:
    return BrokerError(
        f"producer {header.producer_id}, epoch {header.producer_epoch}: sequence {header.base_sequence} came, "
        f"expected {expected}",
        code=Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
