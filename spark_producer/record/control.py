"""The records of control batches: markers that end a transaction, or name a new leader.

Their keys are those of Kafka's ControlRecordType; the values of those that end transactions are Kafka's EndTransactionMarker.
Brokers write them.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT, write_header
from spark_producer.record.record_cursor import read_key_and_value

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_RECORD = struct.Struct(">5B4sB6sB")
"""A record as lengths in varints of one byte each: length, attributes, two deltas, key, value, and the count of headers."""

_VERSION: Final = 0


class ControlType(enum.IntEnum):
    """The meaning of a marker. Kafka may add others: a reader skips those that it does not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndMarker(NamedTuple):
    """A marker that ends the open transaction of a producer. `coordinator_epoch` is the epoch of the coordinator."""

    commits: bool
    coordinator_epoch: int


def read_control_key(key: bytes | memoryview | None) -> int:
    """Return the type of a marker, which may not be in `ControlType`.

    Raises:
        CorruptRecord: There is no key, it has fewer than four bytes, or its version is negative.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord(f"the key of a control record has {len(key or b'')} bytes instead of {_KEY.size}")
    version, control_type = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecord(f"the key of a control record has version {version}")
    return int(control_type)


def read_end_marker(records: memoryview) -> EndMarker | None:
    """Return the marker in the records of a control batch; None if they end no transaction.

    Raises:
        CorruptRecord: the first record, its key or its value is malformed.
    """
    key, value = read_key_and_value(records)
    control_type = read_control_key(key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise CorruptRecord(f"the value of an end marker has {len(value or b'')} bytes instead of {_VALUE.size}")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecord(f"the value of an end marker has version {version}")
    return EndMarker(control_type == ControlType.COMMIT, coordinator_epoch)


def end_marker_batch(marker: EndMarker, *, producer_id: int, producer_epoch: int, timestamp: int) -> memoryview:
    """Return the complete control batch that ends the transaction of a producer (78 bytes, with base offset 0).

    `timestamp` is in milliseconds since 1970.
    """
    batch = memoryview(bytearray(HEADER_SIZE + _RECORD.size))
    key = _KEY.pack(_VERSION, ControlType.COMMIT if marker.commits else ControlType.ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    length = 2 * (_RECORD.size - 1)  # zigzag, as the two lengths below
    _RECORD.pack_into(batch, HEADER_SIZE, length, 0, 0, 0, 2 * len(key), key, 2 * len(value), value, 0)
    write_header(
        batch,
        records_count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
    )
    return batch.toreadonly()
