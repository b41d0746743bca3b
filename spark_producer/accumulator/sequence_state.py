"""The state that a partition's queue keeps for the sender: its sequence numbers, and which batches may be drained."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.common.cluster import ProducerIdAndEpoch

NO_IDENTITY = ProducerIdAndEpoch(-1, -1)


class Sequences(NamedTuple):
    """The sequence numbers of a partition. The fields are those of the same names in its queue."""

    identity: ProducerIdAndEpoch
    next_sequence: int
    last_acked: int
    last_acked_offset: int


class DrainGate:
    """The batches that may be drained from a partition: all, only those with a sequence, or none until those in flight complete.

    RENUMBER: only batches older than one that has lost records, until it and all later batches have new sequences.
    """

    OPEN = 0
    SEQUENCED_ONLY = 1
    SHUT = 2
    RENUMBER = 3
