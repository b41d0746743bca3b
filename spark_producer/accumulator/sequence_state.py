"""The state that a partition's queue keeps for the sender: how far its sequences have come, and which batches may leave it."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.common.cluster import ProducerIdAndEpoch

NO_IDENTITY = ProducerIdAndEpoch(-1, -1)


class Sequences(NamedTuple):
    """How far a partition's sequences have come. The fields are those of the same names in its queue."""

    identity: ProducerIdAndEpoch
    next_sequence: int
    last_acked: int
    last_acked_offset: int


class DrainGate:
    """Which batches may leave a partition: all, only those that have a sequence, or none until those in flight have ended.

    RENUMBER: only those that are older than a batch which has lost records, until it and all behind it get new sequences.
    """

    OPEN = 0
    SEQUENCED_ONLY = 1
    SHUT = 2
    RENUMBER = 3
