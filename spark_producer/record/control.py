"""The records of control batches: markers that end a transaction, or name a new leader.

Their keys and values are those of Kafka's ControlRecordType, EndTransactionMarker and LeaderChangeMessage.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence

from spark_producer.errors import CorruptRecord

_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")
_LEADER = struct.Struct(">hi")
_VOTER = struct.Struct(">i")
_VERSION = 0
_NO_TAGS = b"\x00"


class ControlType(enum.IntEnum):
    """The meaning of a marker. Kafka may add others: a reader skips those that it does not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


ENDS_OF_TRANSACTION = (ControlType.ABORT, ControlType.COMMIT)


def control_key(control_type: ControlType) -> bytes:
    """Return the key of a marker, which is version 0 and the type."""
    return _KEY.pack(_VERSION, control_type)


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


def end_transaction_value(coordinator_epoch: int) -> bytes:
    """Return the value of an ABORT or COMMIT marker."""
    return _END_TRANSACTION.pack(_VERSION, coordinator_epoch)


def leader_change_value(leader: int, voters: Sequence[int], granting_voters: Sequence[int]) -> bytes:
    """Return the value of a LEADER_CHANGE marker, version 0: node ids of the leader, the voters, and those who voted for it."""
    return b"".join((_LEADER.pack(_VERSION, leader), _voters(voters), _voters(granting_voters), _NO_TAGS))


def _voters(nodes: Sequence[int]) -> bytes:
    """Return a compact array; the count fits one byte, because a quorum has a handful of voters."""
    return bytes([len(nodes) + 1]) + b"".join(_VOTER.pack(node) + _NO_TAGS for node in nodes)
