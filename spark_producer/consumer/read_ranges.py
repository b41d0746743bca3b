"""Reads offset ranges: fetches from the leaders of the partitions, and decodes what arrives."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.connections import ConnectionCache
from spark_producer.consumer.decoding import decode
from spark_producer.consumer.fetch_thread import FetchThread
from spark_producer.consumer.fetcher import NO_TOPIC_IDS
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.settings import ALL_COLUMNS, FetchSettings

ALL = frozenset(ALL_COLUMNS)

CONNECTIONS = ConnectionCache()
"""The connections of this process that no read is using."""


def read_ranges(
    settings: FetchSettings,
    ranges: Sequence[OffsetRange],
    columns: frozenset[str] = ALL,
    topic_ids: Mapping[str, bytes] = NO_TOPIC_IDS,
    connections: ConnectionCache = CONNECTIONS,
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield the records of `ranges` as RecordBatches, each with its topic-partition, in the order of the offsets of a partition.

    The RecordBatches have those of the columns of `RECORD_SCHEMA` that are in `columns`, in this order, and `timestamp_type`
    (int32: 0 CreateTime, 1 LogAppendTime, -1 none) if it is named. Offsets without a record, of control batches and, with
    isolation level read_committed, of aborted transactions have no row. The ranges are of different topic-partitions.

    `topic_ids` has the ids of their topics as they were planned (KIP-516): a topic with another id is data loss. A thread beside
    that of the tasks gives `connections` of its own.

    Raises:
        DataLoss: with `fail_on_data_loss`, offsets of a range are not in the log any more; else a warning is logged, and the
            rest of the range is read.
        CorruptRecord: bytes of the log are damaged; it names topic-partition and offset.
        BrokerError, KafkaTimeout, BrokersUnreachable, ConnectionFailed, AuthenticationFailed, TlsFailed: a broker refuses, or
            there was no progress for `timeout`.
    """
    wanted = [each for each in ranges if each.start < each.end]
    if not wanted:
        return
    if len({each.topic_partition for each in wanted}) < len(wanted):
        raise ValueError("two ranges are of one topic-partition. Read one after the other")
    taken = connections.take(settings.connection)
    thread = FetchThread(settings, wanted, taken, topic_ids)
    thread.start()
    try:
        while (fetched := thread.take()) is not None:
            for batch in decode(fetched, columns, check_crcs=settings.check_crcs):
                taken.metrics.records_consumed(fetched.topic_partition.topic, batch.num_rows, time.monotonic())
                yield fetched.topic_partition, batch
            thread.release(fetched)
    finally:  # also when the caller stops early, or drops this iterator
        if thread.close():
            connections.give_back(taken)
