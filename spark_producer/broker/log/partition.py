"""One partition: its log, its producers, and the checks before a batch is appended.

The order of the checks is Kafka's (ProduceRequest.validateRecords, then UnifiedLog.append).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from spark_producer.broker.log.producer_state import ProducerState, ProducerStates
from spark_producer.broker.log.transaction_index import AbortedTxn
from spark_producer.broker.log.validation import DecompressionBudget, check_records
from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.base import Log, Storage, UnreadableLog
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.record.batch_v2 import (
    CONTROL_BIT,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    read_header,
)
from spark_producer.record.codecs import Codec
from spark_producer.record.control import EndMarker, end_marker_batch, read_end_marker

_MAGIC_POSITION: Final = 16
_MAX_CODEC: Final = max(Codec)

logger = escaping_logger(__name__)


class Partition:
    """A partition of a topic. One thread at a time may use it.

    A partition whose log cannot be opened exists too, and responds with KAFKA_STORAGE_ERROR and advice, so that the other
    partitions can serve.
    """

    def __init__(
        self, storage: Storage, topic: str, index: int, settings: TopicSettings, *, is_new: bool = False
    ) -> None:
        """Open the partition in `storage`, or create it there if it `is_new`.

        Raises:
            OSError: the disk refused to create a new partition. An existing one that cannot be opened raises nothing here.
        """
        self.index = index
        self._settings = settings
        self._producers = ProducerStates()
        self._log: Log | None = None
        self._damage = ""
        try:
            if is_new:
                self._log = storage.create(topic, index, settings)
            else:
                self._log = storage.open(topic, index, settings, self._remember)
                self._producers.transactions.forget_before(self._log.start_offset)
        except UnreadableLog as error:
            self._damage = str(error)
            logger.error("%s", error)

    @property
    def log(self) -> Log:
        """The log of the partition.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the log cannot be opened.
        """
        if self._log is None:
            raise BrokerError(self._damage, code=Code.KAFKA_STORAGE_ERROR)
        return self._log

    @property
    def settings(self) -> TopicSettings:
        """The topic's settings. They can be replaced at any time."""
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        if self._log is not None:
            self._log.settings = settings

    def append(
        self, records: memoryview | None, decompression: DecompressionBudget | None = None, *, new_epochs: bool = False
    ) -> int:
        """Validate and append the one batch in `records`; return its base offset. `decompression` belongs to the request.

        A transactional batch opens the transaction of its producer if none is open: the caller has checked it with the
        coordinator. A repeated batch (same producer, epoch and sequence numbers) is not appended again: the base offset of the
        first one is returned. The log says whether the batch is confirmed. With `new_epochs` each transaction of its producer has
        an epoch of its own (KIP-890).

        Raises:
            BrokerError: the batch is refused, with Kafka's error code.
        """
        log = self.log
        header = checked_header(records, self._settings.max_message_bytes)
        assert records is not None
        check_records(header, records, decompression, needs_keys=self._settings.compacts)
        high_watermark = log.high_watermark if header.attributes & TRANSACTIONAL_BIT else 0
        repeated = self._producers.check(header, high_watermark, new_epochs=new_epochs)
        if repeated is not None:
            return repeated
        base_offset = log.admit(records, header)
        self._producers.remember(header._replace(base_offset=base_offset))
        return base_offset

    def write_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        *,
        now_ms: int = NO_TIMESTAMP,
    ) -> int:
        """Append the marker that ends the producer's open transaction, if there is one; return the marker's offset.

        Readers of committed records see the end of the transaction once the log confirms the marker. `now_ms` is its timestamp.

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED or KAFKA_STORAGE_ERROR; nothing was written.
        """
        log = self.log
        self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = EndMarker(commit, coordinator_epoch)
        batch = end_marker_batch(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms)
        header = read_header(batch)
        offset = log.admit(batch, header)
        self._producers.remember_marker(header._replace(base_offset=offset), marker)
        return offset

    def _remember(self, header: BatchHeader, control_batch: bytes) -> None:
        """Restore the producer state from a batch in the log; raise CorruptRecord for a malformed marker.

        Everything in an opened log is confirmed, so no ended transaction stays in the index: the log may hold millions of them.
        """
        if not control_batch:
            self._producers.remember(header)
        elif header.records_count:  # compaction leaves only the header of a removed marker
            marker = read_end_marker(memoryview(control_batch)[HEADER_SIZE:])
            if marker is not None:
                self._producers.remember_marker(header, marker)
                self._producers.transactions.settle(header.base_offset + 1)

    @property
    def last_stable_offset(self) -> int:
        """The offset at which reading ends for readers of committed records.

        Every transaction that begins before it has ended, and its marker is confirmed.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the log cannot be opened.
        """
        log = self.log
        high_watermark = log.high_watermark
        unstable = self._producers.transactions.first_unstable(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, log.start_offset)  # the beginning of an open transaction may have been deleted

    def has_aborted(self, first: int) -> bool:
        """Return whether any aborted transaction ends at offset `first` or later."""
        return self._producers.transactions.has_aborted(first)

    def aborted_transactions(self, first: int, last: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap the offsets from `first` to `last`."""
        return self._producers.transactions.aborted(first, last)

    def forget_aborted(self, markers: Collection[int]) -> None:
        """Forget aborted transactions with a marker at one of these offsets: compaction has removed it and all their records."""
        if markers:
            self._producers.transactions.forget_ended_at(markers)

    def remembered_offsets(self) -> set[int]:
        """Return the base offsets of the batches that compaction must keep because their headers have the state of producers."""
        return self._producers.remembered_offsets()

    @property
    def producer_count(self) -> int:
        """The number of producers in the producer state."""
        return len(self._producers)

    def active_producers(self) -> list[ProducerState]:
        """Return the state of each producer that wrote here."""
        return self._producers.active()

    def delete_old(self, now_ms: int) -> None:
        """Delete records beyond the retention of the topic at the time `now_ms` (milliseconds since 1970).

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if self._log is not None and self._settings.deletes:
            self._log.delete_old(now_ms)
            self._producers.transactions.forget_before(self._log.start_offset)

    def delete_before(self, offset: int) -> None:
        """Delete the records before `offset`, which is at most the high watermark.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        self.log.delete_before(offset)
        self._producers.transactions.forget_before(self.log.start_offset)

    def close(self, *, discard: bool = False) -> None:
        """Close the log. It is synced as the settings say, or not at all with `discard`.

        Raises:
            OSError: the disk refused to sync it; the log is closed all the same.
        """
        if self._log is not None:
            self._log.close(discard=discard)


def checked_header(records: memoryview | None, max_message_bytes: int) -> BatchHeader:
    """Return the header of the one batch in `records`, after every check that does not read its records.

    Raises:
        BrokerError: INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    if records is None or len(records) < HEADER_SIZE:
        raise _invalid("there must be one record batch per partition")
    if records[_MAGIC_POSITION] != MAGIC:
        raise _invalid(f"record batches have magic {MAGIC}, not {records[_MAGIC_POSITION]}")
    try:
        header = read_header(records)
        if header.size != len(records):
            raise _invalid(
                f"{len(records)} bytes for exactly one record batch, whose header has the size {header.size}"
            )
        if header.size > max_message_bytes:
            raise BrokerError(
                f"the record batch has {header.size} bytes, more than max.message.bytes ({max_message_bytes})",
                code=Code.MESSAGE_TOO_LARGE,
            )
        check_crc(header, records)
    except CorruptRecord as error:
        raise BrokerError(str(error), code=Code.CORRUPT_MESSAGE) from error
    _check_fields(header)
    return header


def _check_fields(header: BatchHeader) -> None:
    if header.records_count < 1 or header.records_count != header.last_offset_delta + 1:
        raise _invalid(
            f"the header has {header.records_count} records, but its last offset delta is {header.last_offset_delta}"
        )
    if header.attributes & CONTROL_BIT:
        raise _invalid("clients may not write control batches")
    if header.attributes & TRANSACTIONAL_BIT and header.producer_id == NO_PRODUCER_ID:
        raise _invalid("the batch is transactional, but has no producer id")
    if header.producer_id != NO_PRODUCER_ID and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(f"the batch names producer {header.producer_id}, but has no epoch or no sequence")
    if header.codec > _MAX_CODEC:
        raise BrokerError(f"unknown compression codec {header.codec}", code=Code.UNSUPPORTED_COMPRESSION_TYPE)


def _invalid(why: str) -> BrokerError:
    return BrokerError(why, code=Code.INVALID_RECORD)
