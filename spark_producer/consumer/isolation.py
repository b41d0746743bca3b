"""The isolation levels of readers."""

from __future__ import annotations

import enum


class Isolation(enum.IntEnum):
    """The isolation level of a reader, with its value in Fetch and ListOffsets."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
