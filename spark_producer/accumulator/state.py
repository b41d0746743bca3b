"""The state that the drainer and the outcomes of an accumulator share: one puts batches in flight, the other ends them."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.accumulator.compressing import Compression
from spark_producer.accumulator.in_flight_bytes import InFlightBytes
from spark_producer.accumulator.incomplete_batches import IncompleteBatches
from spark_producer.accumulator.pool import BufferPool
from spark_producer.accumulator.readiness import Readiness
from spark_producer.accumulator.topic_limits import TopicLimits


class AccumulatorState(NamedTuple):
    """The state of one accumulator. `readiness` and `flights` belong to the I/O thread; all threads use the others.

    `compression` is None for codec none.
    """

    pool: BufferPool
    incomplete: IncompleteBatches
    readiness: Readiness
    in_flight_bytes: InFlightBytes
    limits: TopicLimits
    compression: Compression | None
