"""The state that the drainer and the completion of batches share: the drainer puts batches in flight, and the completion takes
them out."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.accumulator.compressing import Compression
from spark_producer.accumulator.in_flight_bytes import InFlightBytes
from spark_producer.accumulator.incomplete_batches import IncompleteBatches
from spark_producer.accumulator.pool import BufferPool
from spark_producer.accumulator.readiness import Readiness
from spark_producer.accumulator.topic_limits import TopicLimits


class AccumulatorState(NamedTuple):
    """The state of one accumulator. The I/O thread owns `readiness` and `in_flight_bytes`; all threads use the others.

    `compression` is None for codec none.
    """

    pool: BufferPool
    incomplete: IncompleteBatches
    readiness: Readiness
    in_flight_bytes: InFlightBytes
    limits: TopicLimits
    compression: Compression | None
