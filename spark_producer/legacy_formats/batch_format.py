"""The properties of a batch besides its records: its format and its producer.

The classes also reject features that the older formats do not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spark_producer.errors import RecordBatchError
from spark_producer.kernel import RecordColumns
from spark_producer.kernel.arrays import Int64Array
from spark_producer.legacy_formats import message_set
from spark_producer.record.batch_v2 import (
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
    batch_attributes,
)
from spark_producer.record.codecs import ONLY_IN_V2, Codec
from spark_producer.record.sequence_numbers import MAX_SEQUENCE

MAX_TIMESTAMP = 2**63 - 1
"""The largest timestamp in milliseconds since 1970, and the largest distance from the first record's: both have 64 bits."""
MAX_EPOCH, MAX_LEADER_EPOCH = 2**15 - 1, 2**31 - 1
"""The largest epochs of a producer and of a leader."""


class BatchProducer(NamedTuple):
    """The producer of a batch, and the sequence number of its first record."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchFormat:
    """Everything about a batch except its records, its producer and its codec.

    `timestamp_type` is NONE for V0, which has no timestamps, and only there. `log_append_time` is the time of all records if
    the type says so. `delete_horizon` is -1 if there is none.

    Raises:
        RecordBatchError: There is no such format, offset or time, or an older format does not have what is asked for.
    """

    magic: int = MAGIC
    base_offset: int = 0
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    log_append_time: int = NO_TIMESTAMP
    leader_epoch: int = NO_LEADER_EPOCH
    delete_horizon: int = NO_TIMESTAMP

    def __post_init__(self) -> None:
        if not 0 <= self.magic <= MAGIC:
            raise RecordBatchError(f"there is no message format {self.magic}: 0, 1 and 2 are known")
        if self.base_offset < 0:
            raise RecordBatchError(f"a batch cannot start at offset {self.base_offset}: the first of a log is 0")
        for what, time in (("log append time", self.log_append_time), ("delete horizon", self.delete_horizon)):
            if not NO_TIMESTAMP <= time <= MAX_TIMESTAMP:
                raise RecordBatchError(
                    f"a {what} is from 0 to {MAX_TIMESTAMP} ms since 1970, or -1 for none, not {time}"
                )
        if self.magic > 0 and self.timestamp_type is TimestampType.NONE:
            raise RecordBatchError(f"message format V{self.magic} needs a type of timestamp")
        if self.magic == 0 and self.timestamp_type is not TimestampType.NONE:
            raise RecordBatchError("message format V0 does not have timestamps, so their type is NONE; V1 and V2 do")
        if not NO_LEADER_EPOCH <= self.leader_epoch <= MAX_LEADER_EPOCH:
            raise RecordBatchError(
                f"a leader epoch is from 0 to {MAX_LEADER_EPOCH}, or -1 for none, not {self.leader_epoch}"
            )
        requested = {
            "a delete horizon": self.delete_horizon != NO_TIMESTAMP,
            "a leader epoch": self.leader_epoch != NO_LEADER_EPOCH,
        }
        missing = next((what for what, wanted in requested.items() if wanted), "")
        if missing and self.magic < MAGIC:
            raise RecordBatchError(f"message format V{self.magic} does not have {missing}; V2 does")

    @property
    def by_broker(self) -> bool:
        """Whether all records have the log append time."""
        return self.timestamp_type is TimestampType.LOG_APPEND_TIME

    def header_size(self, codec: Codec) -> int:
        """Return the bytes before the records: a V2 header, the wrapper of a compressed message set, or none."""
        if self.magic == MAGIC:
            return HEADER_SIZE
        return 0 if codec is Codec.NONE else message_set.wrapper_size(self.magic)

    def attributes(self, codec: Codec, *, transactional: bool) -> int:
        """Return the attributes of a V2 batch."""
        return batch_attributes(
            codec=codec,
            timestamp_type=self.timestamp_type,
            transactional=transactional,
            delete_horizon=self.delete_horizon != NO_TIMESTAMP,
        )

    def check_codec(self, codec: Codec) -> None:
        """Check that the format knows the codec.

        Raises:
            RecordBatchError: The format is one of the older ones, which lack the codec.
        """
        if self.magic < MAGIC and codec in ONLY_IN_V2:
            name = codec.name.lower()
            raise RecordBatchError(f"message format V{self.magic} does not have {name}. Use gzip, snappy or lz4")

    def check_records(self, columns: RecordColumns, rows: Int64Array, base_timestamp: int | None) -> None:
        """Check that a batch takes `rows` of the columns; its first record has `base_timestamp`, None if it has no record yet.

        Raises:
            RecordBatchError: There are headers in an older format, or a timestamp that does not fit into 64 bits or is too far
                from that of the first record.
        """
        if self.magic < MAGIC and columns.headers is not None and columns.headers.lengths.max(initial=0) > 1:
            raise RecordBatchError(f"message format V{self.magic} does not have record headers; V2 does")
        earliest, latest = columns.timestamp_range
        if earliest < NO_TIMESTAMP or latest > MAX_TIMESTAMP:
            raise RecordBatchError(
                f"a record has timestamp {earliest if earliest < NO_TIMESTAMP else latest}; it is from 0 to "
                f"{MAX_TIMESTAMP} ms since 1970, or -1 for none"
            )
        if self.magic == MAGIC and latest - min(earliest, base_timestamp or 0) > MAX_TIMESTAMP and len(rows):
            _check_distances(columns, rows, base_timestamp)

    def check_producer(self, producer: BatchProducer) -> None:
        """Check that this producer can write such a batch.

        Raises:
            RecordBatchError: There is a transaction without an id or in an older format, an id without epoch or sequence or in
                an older format, or one of them is outside of its range.
        """
        for what, number, largest in (
            ("producer id", producer.producer_id, MAX_TIMESTAMP),
            ("producer epoch", producer.producer_epoch, MAX_EPOCH),
            ("base sequence", producer.base_sequence, MAX_SEQUENCE),
        ):
            if not -1 <= number <= largest:
                raise RecordBatchError(f"a {what} is from 0 to {largest}, or -1 for none, not {number}")
        if producer.transactional and self.magic < MAGIC:
            raise RecordBatchError(f"message format V{self.magic} does not have transactions; V2 does")
        if producer.producer_id == NO_PRODUCER_ID:
            if producer.transactional:
                raise RecordBatchError("a transactional batch needs the id of its producer")
        elif self.magic < MAGIC:
            raise RecordBatchError(f"message format V{self.magic} does not have producer ids; V2 does")
        elif producer.producer_epoch < 0:
            raise RecordBatchError(f"producer id {producer.producer_id} comes with epoch {producer.producer_epoch}")
        elif producer.base_sequence < 0:
            raise RecordBatchError(f"producer id {producer.producer_id} comes with sequence {producer.base_sequence}")


def _check_distances(columns: RecordColumns, rows: Int64Array, base_timestamp: int | None) -> None:
    """Check that each record's distance from the first timestamp, which a record stores, also fits into 64 bits."""
    base = columns.timestamp_at(int(rows[0])) if base_timestamp is None else base_timestamp
    latest = int(np.max(np.broadcast_to(columns.timestamps, len(columns))[rows]))
    if latest - base > MAX_TIMESTAMP:
        raise RecordBatchError(
            f"timestamps {base} and {latest} are too far apart for one batch. Put the records into two"
        )
