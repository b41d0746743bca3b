"""How far a partition has come in its sequences, and what may leave it: the state that its queue keeps for the sender."""

from __future__ import annotations

from typing import NamedTuple


class Identity(NamedTuple):
    """Producer id and epoch, under which sequences count (KIP-98, KIP-360)."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)


class Sequences(NamedTuple):
    """How far a partition has come: the fields of this name in its queue."""

    identity: Identity
    next_sequence: int
    last_acked: int
    last_acked_offset: int


class Gate:
    """What may leave a partition: everything; only batches that have a sequence; nothing until its flights have ended."""

    OPEN = 0
    SEQUENCED_ONLY = 1
    SHUT = 2
