"""One partition: its log, its producers, and the checks that a batch must pass before it is appended.

The order of the checks is Kafka's (ProduceRequest.validateRecords, then UnifiedLog.append).
"""

from __future__ import annotations

import logging
from typing import Final

from spark_producer.broker.producer_state import ProducerStates
from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.base import Log, Storage, UnreadableLog
from spark_producer.broker.validation import Unpacking, check_records
from spark_producer.codes import Code
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.record.batch_v2 import (
    CONTROL_BIT,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    read_header,
)
from spark_producer.record.codecs import Codec

_MAGIC_POSITION: Final = 16
_LARGEST_CODEC: Final = max(Codec)

logger = logging.getLogger(__name__)


class Partition:
    """A partition of a topic, which one thread at a time may use.

    A partition whose log cannot be opened exists all the same, and answers KAFKA_STORAGE_ERROR with advice on what to do, so
    that the other partitions can serve.
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
                self._log = storage.open(topic, index, settings, self._producers.remember)
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
        """The topic's settings. They may be replaced, and apply from then on."""
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        if self._log is not None:
            self._log.settings = settings

    def append(self, records: memoryview | None, unpacking: Unpacking | None = None) -> int:
        """Check and admit the one batch in `records`; return its base offset. `unpacking` belongs to the request.

        A batch that was admitted before (same producer, epoch and sequences) is not admitted again: its first offset is
        returned. Ask the log whether the batch is confirmed.

        Raises:
            BrokerError: the batch is refused, with the code that Kafka answers.
        """
        log = self.log
        header = checked_header(records, self._settings.max_message_bytes)
        assert records is not None
        check_records(header, records, unpacking)
        repeated = self._producers.check(header)
        if repeated is not None:
            return repeated
        base_offset = log.admit(records, header)
        self._producers.remember(header._replace(base_offset=base_offset))
        return base_offset

    def delete_old(self, now_ms: int) -> None:
        """Delete the records that the settings do not retain at the time `now_ms` (milliseconds since 1970).

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if self._log is not None:
            self._log.delete_old(now_ms)

    def close(self, *, discard: bool = False) -> None:
        """Close the log. It is made durable as the settings say, or not at all with `discard`.

        Raises:
            OSError: the disk refused to make it durable; the log is closed all the same.
        """
        if self._log is not None:
            self._log.close(discard=discard)


def checked_header(records: memoryview | None, max_message_bytes: int) -> BatchHeader:
    """Return the header of the one batch in `records`, after every check that needs no look at single records.

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
            raise _invalid(f"{len(records)} bytes came for exactly one record batch, whose header claims {header.size}")
        if header.size > max_message_bytes:
            raise BrokerError(
                f"the record batch has {header.size} bytes, max.message.bytes is {max_message_bytes}",
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
            f"the header claims {header.records_count} records, but its last offset delta is {header.last_offset_delta}"
        )
    if header.attributes & CONTROL_BIT:
        raise _invalid("clients may not write control batches")
    if header.attributes & TRANSACTIONAL_BIT:
        raise BrokerError("the embedded broker has no transactions yet", code=Code.INVALID_TXN_STATE)
    if header.producer_id != NO_PRODUCER_ID and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(f"the batch names producer {header.producer_id}, but has no epoch or no sequence")
    if header.codec > _LARGEST_CODEC:
        raise BrokerError(f"unknown compression codec {header.codec}", code=Code.UNSUPPORTED_COMPRESSION_TYPE)


def _invalid(why: str) -> BrokerError:
    return BrokerError(why, code=Code.INVALID_RECORD)
