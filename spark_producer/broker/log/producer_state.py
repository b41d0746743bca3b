"""The producer state of a partition: epochs, last sequence numbers and open transactions (Kafka's ProducerStateManager).

With it the partition refuses batches that are out of order, recognizes repeated ones, and knows which transactions are open. The
rules are those of Kafka's ProducerAppendInfo and ProducerStateEntry (KIP-98, KIP-360).
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from spark_producer.broker.log.transaction_index import MAX_OPEN_TRANSACTIONS, TransactionIndex
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT, BatchHeader
from spark_producer.record.control import EndMarker
from spark_producer.record.sequence_numbers import add_to_sequence

REMEMBERED_BATCHES: Final = 5
"""Number of batches that are remembered of each producer (Kafka's NUM_BATCHES_TO_RETAIN), which may have five requests in
flight."""

MAX_PRODUCERS: Final = 10_000
"""Maximum number of producers of one partition; beyond it the least recent one without an open transaction is forgotten. Kafka
forgets a producer after a day (`producer.id.expiration.ms`), which needs a clock and does not limit their number."""

NO_COORDINATOR_EPOCH: Final = -1
NO_TRANSACTION: Final = -1
"""The start offset of a producer without an open transaction (DescribeProducers)."""


class _Appended(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


class ProducerState(NamedTuple):
    """The state of a producer in DescribeProducers. `timestamp` is in milliseconds since 1970."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    timestamp: int
    coordinator_epoch: int
    transaction_start: int


class _Producer:
    """The newest epoch of one producer id, its last batches, and the coordinator epoch of its last marker."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "marker_offset", "timestamp")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[_Appended] = deque(maxlen=REMEMBERED_BATCHES)
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.timestamp = NO_TIMESTAMP
        self.marker_offset = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence number of this epoch, -1 before the first."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches.clear()


class ProducerStates:
    """The idempotent and transactional producers of one partition."""

    def __init__(self) -> None:
        self.transactions = TransactionIndex()
        self._idle: dict[int, _Producer] = {}
        """Producers without an open transaction, least recent first."""
        self._busy: dict[int, _Producer] = {}
        """Producers with an open transaction, `MAX_OPEN_TRANSACTIONS` at most, which must not be forgotten."""

    def check(self, header: BatchHeader, high_watermark: int = 0, *, new_epochs: bool = False) -> int | None:
        """Check that the batch of data with this header can be appended.

        Return None if it can. Return the base offset of the original for a repeated batch: the caller responds with it and
        appends nothing. Everything below `high_watermark` is confirmed. With `new_epochs` each transaction has an epoch of its
        own.

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE; REQUEST_TIMED_OUT if too many
                transactions are open.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return None
        producer = self._idle.get(header.producer_id) or self._busy.get(header.producer_id)
        if producer is not None:
            repeated = self._check_sequence(header, producer)
            if repeated is not None:
                return repeated
        elif new_epochs and header.attributes & TRANSACTIONAL_BIT and header.base_sequence != 0:
            raise _out_of_order(header, "0, the first of a transaction")
        # An unknown producer may start with any other sequence number: its records may have been deleted while it lives.
        if self._busy or header.attributes & TRANSACTIONAL_BIT:
            self._check_transaction(header, high_watermark)
        return None

    @staticmethod
    def _check_sequence(header: BatchHeader, producer: _Producer) -> int | None:
        if header.producer_epoch < producer.epoch:
            raise _old_epoch("batch", header.producer_id, header.producer_epoch, producer.epoch)
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                raise _out_of_order(header, "0, the first of a new epoch")
            return None
        last = header.last_sequence
        for known in producer.batches:
            if known.first_sequence == header.base_sequence and known.last_sequence == last:
                return known.base_offset
        expected = add_to_sequence(producer.last_sequence, 1)
        if header.base_sequence != expected:
            raise _out_of_order(header, str(expected))
        return None

    def _check_transaction(self, header: BatchHeader, high_watermark: int) -> None:
        is_open = header.producer_id in self._busy
        is_transactional = header.attributes & TRANSACTIONAL_BIT
        if is_open and not is_transactional:
            raise BrokerError(
                f"producer {header.producer_id} has an open transaction here, but its batch is not transactional",
                code=Code.INVALID_TXN_STATE,
            )
        if is_transactional and not is_open and self.transactions.is_full(high_watermark):
            raise BrokerError(
                f"{MAX_OPEN_TRANSACTIONS} transactions are open in this partition, the maximum. Send the batch again later",
                code=Code.REQUEST_TIMED_OUT,
            )

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Check that a marker can be appended that ends a producer's transaction, whether one is open or not.

        Its epoch may be newer than that of the batches: a coordinator raises it to fence the producer of a transaction that it
        aborts, and with KIP-890 in every transaction.

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._idle.get(producer_id) or self._busy.get(producer_id)
        if producer is None:
            return
        if producer_epoch < producer.epoch:
            raise _old_epoch("marker", producer_id, producer_epoch, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise BrokerError(
                f"producer {producer_id}: the marker has coordinator epoch {coordinator_epoch}, the newest is "
                f"{producer.coordinator_epoch}",
                code=Code.TRANSACTION_COORDINATOR_FENCED,
            )

    def remember(self, header: BatchHeader) -> None:
        """Update the state with an appended batch of data; `header` has its offset. A start of the broker replays the log through
        this."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        producer_id = header.producer_id
        producer = self._take(producer_id, header.producer_epoch)
        producer.batches.append(_Appended(header.base_sequence, header.last_sequence, header.base_offset))
        producer.timestamp = header.max_timestamp
        if producer_id in self._busy:
            return
        if header.attributes & TRANSACTIONAL_BIT:
            self.transactions.begin(producer_id, header.base_offset)
            self._busy[producer_id] = producer
        else:
            self._idle[producer_id] = producer  # the last entry of the dict is the most recent one
        self._forget_one()

    def remember_marker(self, header: BatchHeader, marker: EndMarker) -> None:
        """Update the state with an appended marker. `header` is that of its batch, and has the offset."""
        producer = self._take(header.producer_id, header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp = header.max_timestamp
        producer.marker_offset = header.base_offset
        self.transactions.end(header.producer_id, header.base_offset, commits=marker.commits)
        self._busy.pop(header.producer_id, None)
        self._idle[header.producer_id] = producer
        self._forget_one()

    def _take(self, producer_id: int, epoch: int) -> _Producer:
        """Return the producer with this epoch, a new one if it is unknown, and remove it from the idle ones."""
        producer = self._idle.pop(producer_id, None) or self._busy.get(producer_id)
        if producer is None:
            return _Producer(epoch)
        if producer.epoch != epoch:
            producer.begin_epoch(epoch)
        return producer

    def _forget_one(self) -> None:
        if len(self._idle) + len(self._busy) > MAX_PRODUCERS and self._idle:
            del self._idle[next(iter(self._idle))]

    def __len__(self) -> int:
        return len(self._idle) + len(self._busy)

    def remembered_offsets(self) -> set[int]:
        """Return the base offsets of the batches and markers from which a start rebuilds this state."""
        found: set[int] = set()
        for producers in (self._idle, self._busy):
            for producer in producers.values():
                found.update(batch.base_offset for batch in producer.batches)
                found.add(producer.marker_offset)
        return found

    def active(self) -> list[ProducerState]:
        """Return the state of all producers."""
        begins = self.transactions.first_offset
        return [
            ProducerState(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.timestamp,
                producer.coordinator_epoch,
                begins(producer_id, NO_TRANSACTION),
            )
            for producers in (self._idle, self._busy)
            for producer_id, producer in producers.items()
        ]


def _old_epoch(what: str, producer_id: int, epoch: int, newest: int) -> BrokerError:
    return BrokerError(
        f"the {what} of producer {producer_id} has epoch {epoch}, the newest is {newest}",
        code=Code.INVALID_PRODUCER_EPOCH,
    )


def _out_of_order(header: BatchHeader, expected: str) -> BrokerError:
    return BrokerError(
        f"producer {header.producer_id}, epoch {header.producer_epoch}: got sequence {header.base_sequence}, "
        f"expected {expected}",
        code=Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
