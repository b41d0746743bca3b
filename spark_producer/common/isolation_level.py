"""The isolation levels of reads."""

from __future__ import annotations

import enum


class IsolationLevel(enum.IntEnum):
    """The records that a read sees, with the value in Fetch and ListOffsets (KIP-98, Kafka's `IsolationLevel`)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, text: str) -> IsolationLevel:
        """Return the level that `isolation.level` names, such as `read_committed`."""
        return cls[text.upper()]
