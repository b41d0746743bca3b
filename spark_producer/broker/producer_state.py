"""What one partition of the broker remembers of idempotent producers (Kafka's ProducerStateManager): epochs and the last
sequences, to refuse and to recognise. What a producer knows of itself is not here; that is the sender's.

Owns: the rules of Kafka's ProducerAppendInfo and ProducerStateEntry (KIP-98, KIP-360).
Must not know: bytes, files or requests; it sees batch headers only.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from spark_producer.codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import NO_PRODUCER_ID, BatchHeader
from spark_producer.record.sequence_numbers import add_to_sequence

REMEMBERED_BATCHES: Final = 5
"""Why a producer may have at most five requests in flight (Kafka's NUM_BATCHES_TO_RETAIN)."""

MOST_PRODUCERS: Final = 10_000
"""Remembered by one partition; then the one that has been silent longest is forgotten. Kafka forgets after a day
(`producer.id.expiration.ms`), which needs a clock and bounds nothing."""


class _Appended(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


class _Producer:
    """One producer id: its newest epoch and the last batches of that epoch."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[_Appended] = deque(maxlen=REMEMBERED_BATCHES)


class ProducerStates:
    """The idempotent producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def check(self, header: BatchHeader) -> int | None:
        """May this batch be appended?

        Returns None if so, or the base offset of the batch that it repeats (answer that, append nothing).

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return None
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None  # whatever its sequence: the log may have been deleted under a living producer
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
        """Note an appended batch; `header` carries the offset it was given. Also replays the log on restart."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        producer = self._producers.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = _Producer(header.producer_epoch)
        self._producers[header.producer_id] = producer  # now the last of the dict: the most recent one
        if len(self._producers) > MOST_PRODUCERS:
            del self._producers[next(iter(self._producers))]
        producer.batches.append(_Appended(header.base_sequence, header.last_sequence, header.base_offset))


def _out_of_order(header: BatchHeader, expected: str) -> BrokerError:
    return BrokerError(
        f"producer {header.producer_id}, epoch {header.producer_epoch}: sequence {header.base_sequence} came, "
        f"expected {expected}",
        code=Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
