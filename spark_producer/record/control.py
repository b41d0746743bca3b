"""The records of control batches: markers that end a transaction, or name a new leader.

Their keys are those of Kafka's ControlRecordType. Brokers write markers; here they are only read.
"""

from __future__ import annotations

import enum
import struct

from spark_producer.errors import CorruptRecord

_KEY = struct.Struct(">hh")


class ControlType(enum.IntEnum):
    """The meaning of a marker. Kafka may add others: a reader skips those that it does not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def read_control_key(key: bytes | memoryview | None) -> int:
    """Return the type of a marker, which may be none of `ControlType`.

    Raises:
        CorruptRecord: There is no key, it has fewer than four bytes, or its version is negative.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord(f"the key of a control record has {len(key or b'')} bytes instead of {_KEY.size}")
    version, control_type = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecord(f"the key of a control record has version {version}")
    return int(control_type)
