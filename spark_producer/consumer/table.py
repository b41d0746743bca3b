"""Reads a topic into an Arrow table, for programs without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_producer.admin import BlockingClient
from spark_producer.admin.missing_topics import suggest_topic_on_not_found
from spark_producer.admin.offsets import offsets
from spark_producer.admin.partition_offsets import find_topics
from spark_producer.admin.topic_leaders import missing_partition
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.common.wait_warning import WaitWarning
from spark_producer.config.consumer_options import ConsumerConfig
from spark_producer.config.source_parsing import consumer_config, redacted_for_reads
from spark_producer.consumer.connections import ConnectionCache
from spark_producer.consumer.lost_offsets import report_loss
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.errors import ConfigError
from spark_producer.kernel.arrays import buffer_of, numbers
from spark_producer.record.decoded_columns import RECORD_SCHEMA

MAX_BYTES = 1 << 30
"""Maximum bytes of a table, unless the caller gives another number."""

TIMEOUT_OPTION = "default.api.timeout.ms"

_FIELDS: list[pa.Field[Any]] = [
    RECORD_SCHEMA.field("key"),
    RECORD_SCHEMA.field("value"),
    pa.field("partition", pa.int32(), nullable=False),
    RECORD_SCHEMA.field("offset"),
    pa.field("timestamp", pa.timestamp("ms", "UTC")),
    RECORD_SCHEMA.field("headers"),
]
_BY_NAME = {field.name: field for field in _FIELDS}

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
"""The columns of a table, unless the caller names others: headers take most of the time of records that have some."""


def read_table(
    topic: str,
    config: Mapping[str, object],
    *,
    columns: Sequence[str] = COLUMNS,
    starting_offsets: Mapping[int, int] | None = None,
    starting_timestamp_ms: int | None = None,
    ending_offsets: Mapping[int, int] | None = None,
    max_bytes: int = MAX_BYTES,
    fail_on_data_loss: bool = True,
) -> pa.Table:
    """Return the records of a topic, from its first to its last one at the time of the call, sorted by partition and offset.

    `config` has Kafka's names of a consumer's options, as `bootstrap.servers` and `isolation.level`. `columns` are some of `key`
    and `value` (binary), `partition`, `offset`, `timestamp` (milliseconds in UTC, null if a record has none) and `headers` (lists
    of structs of key and value).

    `starting_offsets` has the first offset to read by partition, `ending_offsets` the one after the last; a partition that they
    do not name is read from its first record, or from `starting_timestamp_ms` on, and to its last one. The largest offset in a
    table plus one is where the next read continues. `max_bytes` bounds the table. Threads may call it at the same time.

    Raises:
        ConfigError: an option or a column is wrong, or the table would be larger than `max_bytes`.
        TopicNotFound: there is no such topic or partition.
        DataLoss: with `fail_on_data_loss`, offsets are not in the log any more. And as `read_ranges`.
    """
    config = redacted_for_reads(config)  # otherwise a traceback with local variables would show passwords
    schema = _schema(columns)
    parsed = consumer_config(config)
    settings = FetchSettings.from_config(parsed, fail_on_data_loss=fail_on_data_loss, loss_option="fail_on_data_loss")
    ids, ranges = _ranges(parsed, settings, topic, starting_offsets or {}, starting_timestamp_ms, ending_offsets or {})
    found = _bounded(_read(settings, ranges, ids, schema), topic, max_bytes)
    return pa.Table.from_batches([batch for _, batch in sorted(found, key=lambda each: each[0])], schema=schema)


def _schema(columns: Sequence[str]) -> pa.Schema:
    unknown = [name for name in columns if name not in _BY_NAME]
    if unknown or not columns:
        wrong = f"there is no column {unknown[0]!r}" if unknown else "no column is named"
        raise ConfigError(f"reading into a table failed: {wrong}. Name some of {', '.join(_BY_NAME)}")
    return pa.schema([_BY_NAME[name] for name in dict.fromkeys(columns)])


def _ranges(
    config: ConsumerConfig,
    settings: FetchSettings,
    topic: str,
    first: Mapping[int, int],
    timestamp_ms: int | None,
    last: Mapping[int, int],
) -> tuple[Mapping[str, bytes], list[OffsetRange]]:
    """Return the id of the topic, as far as it has one, and the offsets to read of each partition."""
    limit = settings.timeout
    client = BlockingClient(
        settings.connection,
        timeout=limit,
        timeout_option=TIMEOUT_OPTION,
        on_wait=WaitWarning(limit, TIMEOUT_OPTION),
    )
    level = IsolationLevel.of(config.isolation_level)
    with client, suggest_topic_on_not_found(client, topic):
        ids = find_topics(client, [topic]).topic_ids  # before its offsets, which those of a later topic do not continue
        start = EARLIEST if timestamp_ms is None else timestamp_ms
        starts = offsets(client, topic, start, isolation_level=level)
        ends = offsets(client, topic, LATEST, list(starts), isolation_level=level)
    for partition in first.keys() | last.keys():
        if partition not in ends:
            raise missing_partition("topic", topic, partition, len(ends))
    for partition, offset in first.items():
        if offset > ends[partition]:
            report_loss(
                f"topic {topic!r}, partition {partition} ends at offset {ends[partition]}, before the starting offset {offset}",
                "correct the starting offset",
                fail=settings.fail_on_data_loss,
                option=settings.loss_option,
            )
    return ids, [
        OffsetRange(TopicPartition(topic, each), first.get(each, begin), min(last.get(each, ends[each]), ends[each]))
        for each, begin in starts.items()
    ]


def _read(
    settings: FetchSettings, ranges: Sequence[OffsetRange], ids: Mapping[str, bytes], schema: pa.Schema
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of the ranges with the columns of `schema`, each RecordBatch with its partition."""
    needed = frozenset(name for name in schema.names if name != "partition") or frozenset({"offset"})
    connections = ConnectionCache()
    try:
        for (_, partition), batch in read_ranges(settings, ranges, needed, ids, connections):
            arrays = [_column(batch, name, partition) for name in schema.names]
            yield partition, pa.RecordBatch.from_arrays(arrays, schema=schema)
    finally:
        connections.clear()


def _column(batch: pa.RecordBatch, name: str, partition: int) -> Any:
    if name == "partition":
        values = np.full(batch.num_rows, partition, np.int32)
        return pa.Array.from_buffers(pa.int32(), len(values), [None, buffer_of(values)])
    if name == "timestamp":
        milliseconds = numbers(batch.column(name))
        return pa.array(milliseconds, _BY_NAME[name].type, mask=milliseconds < 0)
    return batch.column(name)


def _bounded(
    found: Iterator[tuple[int, pa.RecordBatch]], topic: str, max_bytes: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield what `found` has.

    Raises:
        ConfigError: it has more than `max_bytes`.
    """
    size = 0
    for partition, batch in found:
        size += batch.nbytes
        if size > max_bytes:
            raise ConfigError(
                f"reading {topic!r} into a table failed: its records take more than max_bytes ({max_bytes:,}). Read fewer "
                "columns or offsets, or raise max_bytes"
            )
        yield partition, batch
