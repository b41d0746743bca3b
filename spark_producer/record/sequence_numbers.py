"""Arithmetic of sequence numbers: a producer counts its records in each partition to 2^31 - 1, then from 0 (KIP-98)."""

from __future__ import annotations

MAX_SEQUENCE = 2**31 - 1
"""The sequence number after this one is 0."""


def add_to_sequence(sequence: int, records: int) -> int:
    """Return the sequence number that is `records` after `sequence`, or before it if `records` is negative."""
    return (sequence + records) & MAX_SEQUENCE


def is_later(one: int, other: int) -> bool:
    """Return whether one sequence number is later than another, also across the wrap: the shorter way round decides."""
    return 0 < (one - other) & MAX_SEQUENCE < 1 << 30
