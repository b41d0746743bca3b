"""Reading a topic up to its present end, or until no record has come for some time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.record.reading import ConsumerRecord


def positions_at(
    client: BlockingClient, topic: str, offset: int, partitions: Sequence[int] | None, isolation: IsolationLevel
) -> dict[int, int]:
    """Return the offsets to begin at: `offset` in each partition, or that many before its end if it is negative.

    Partitions may have different lengths: one that ends before `offset` begins at its end. To fetch at `offset` would send the
    reader to the start of the log.

    Raises: as `offsets`.
    """
    starts = offsets(client, topic, EARLIEST, partitions, isolation_level=isolation)
    if offset >= 0:
        ends = offsets(client, topic, LATEST, partitions)  # of the log, after open transactions
        return {partition: max(min(offset, ends[partition]), start) for partition, start in starts.items()}
    ends = offsets(client, topic, LATEST, partitions, isolation_level=isolation)
    return {partition: max(ends[partition] + offset, start) for partition, start in starts.items()}


def records_until(
    reader: TopicReader,
    *,
    ends: Mapping[int, int] | None = None,
    quiet: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[list[tuple[int, ConsumerRecord]]]:
    """Yield the list of (partition, record) of each fetch, which may be empty.

    The iterator ends when the reader has reached `ends`, the offsets after the last wanted records, or after `quiet` seconds
    without a record.

    Raises: as `TopicReader.records`.
    """
    last = clock()
    while ends is None or any(reader.positions[partition] < end for partition, end in ends.items()):
        found = list(reader.records())
        if found:
            last = clock()
        yield [(at, record) for at, record in found if ends is None or record.offset < ends[at]]
        if quiet is not None and clock() - last >= quiet:
            return
