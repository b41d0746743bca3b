"""Collects rows that cannot be written, invalid or rejected by a broker, so that the caller can send them to a dead-letter topic.

The checks are those of `send_batch`. Only a batch with a bad row has the cost of its removal.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from spark_producer.accumulator import RejectionCollector
from spark_producer.common.error_codes import Code
from spark_producer.config import ProducerConfig
from spark_producer.errors import BrokerError, ConfigError
from spark_producer.partitioner.assign import Partitioner
from spark_producer.producer.metadata_wait import MetadataWaiter, invalid_topic_names, of_control_topics
from spark_producer.producer.record_size import too_large
from spark_producer.record.columns import CheckedColumns, ReadColumns
from spark_producer.record.dictionary_slices import BatchPieces
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowErrorKind, errors_at

MAX_HELD_FRACTION = 1 / 2
"""Maximum fraction of `buffer.memory` for records that brokers have rejected, in addition to the pool. The sending thread takes
them after each piece of a few MiB, so the limit fails only a write with mostly bad rows."""


class BadRowClass(enum.StrEnum):
    """The classes of bad rows (docs/dead_letters.md)."""

    ROW = "row"
    SIZE = "size"
    BROKER = "broker"
    SCHEMA = "schema"
    TOPIC = "topic"


class FoundBy(enum.StrEnum):
    """The check that has found a bad row."""

    COLUMNS = "columns"
    PARTITION = "partition"
    ENCODE = "encode"
    BROKER = "broker"


CLASS_BY_ERROR_CODE: Mapping[Code, BadRowClass] = {
    Code.MESSAGE_TOO_LARGE: BadRowClass.SIZE,
    Code.INVALID_RECORD: BadRowClass.BROKER,
    Code.INVALID_TIMESTAMP: BadRowClass.BROKER,
    Code.TOPIC_AUTHORIZATION_FAILED: BadRowClass.TOPIC,
    Code.INVALID_TOPIC_EXCEPTION: BadRowClass.TOPIC,
    Code.UNKNOWN_TOPIC_OR_PARTITION: BadRowClass.TOPIC,
}
"""The class of bad rows for each error code that is about single rows. Other errors are raised."""


class BadRowGroup(NamedTuple):
    """Rows of one class that were not queued."""

    rows: RejectedRows
    bad: BadRowClass
    stage: FoundBy
    error: BrokerError | None = None
    """the error of the topic, if that is the reason"""


class BadRowCollector:
    """The bad rows of a caller of `send_batch_collecting_bad_rows`, of the classes that it wants. One thread uses it.

    `refused` receives the records that brokers reject later, until a flush. No row may have one of the topics `closed`.
    """

    def __init__(self, wanted: Collection[BadRowClass], max_bytes: int, closed: Collection[str] = ()) -> None:
        self._wanted = frozenset(wanted)
        self._closed = frozenset(closed)
        self._bad_rows: list[BadRowGroup] = []
        self._topics: dict[str, BrokerError] = {}
        """the errors of topics that cannot be written to"""
        self._counts: dict[str, int] = {}
        """the number of partitions of topics for which a row had a partition that does not exist; kept so that only one piece
        waits"""
        self.refused = RejectionCollector(self._is_wanted, max_bytes)

    def __bool__(self) -> bool:
        return bool(self._bad_rows)

    def add_schema_mismatches(self, rows: RejectedRows) -> None:
        """Collect rows that do not match their schema, and that are not in the next batch.

        Raises:
            RecordError: the class `schema` is not wanted; it is the error of the first row.
        """
        if BadRowClass.SCHEMA not in self._wanted:
            rows.raise_first()
        self._bad_rows.append(BadRowGroup(rows, BadRowClass.SCHEMA, FoundBy.ENCODE))

    def take(self) -> list[BadRowGroup]:
        """Return the bad rows since the last call."""
        found, self._bad_rows = self._bad_rows, []
        return found

    def valid_rows(
        self, pieces: BatchPieces, topics: MetadataWaiter, partitioner: Partitioner, config: ProducerConfig
    ) -> Iterator[CheckedColumns]:
        """Yield the rows that can be written, and collect the others.

        Raises: as `Producer.send_batch`, for a class of bad rows that is not wanted.
            ConfigError: a row has a topic that is closed.
        """
        self._collect(pieces.rejected, FoundBy.COLUMNS)
        for piece in pieces:
            self._collect(piece.rejected, FoundBy.COLUMNS)
            read = piece.without(self._collect(too_large(piece.columns, config), FoundBy.COLUMNS))
            read = self._with_existing_topics(read, topics)
            if not len(read.columns.records):
                continue
            if read.columns.partitions is None:
                yield read.columns
                continue
            highest = self._highest(read.columns)
            found = topics.find(highest)
            self._counts |= {at.topic: at.partition_count for at in found if at.partition_count <= highest[at.topic]}
            read = read.without(self._collect(partitioner.reject(read.columns, found), FoundBy.PARTITION))
            if len(read.columns.records):
                yield read.columns

    def _is_wanted(self, error: BrokerError) -> bool:
        return CLASS_BY_ERROR_CODE.get(error.code) in self._wanted

    def _collect(self, rows: RejectedRows, stage: FoundBy) -> RejectedRows:
        """Collect rows of the classes `row` and `size`, or raise the error of the first one."""
        if not len(rows):
            return rows
        for part, kind in rows.by_kind():
            bad = BadRowClass.SIZE if kind is RowErrorKind.SIZE else BadRowClass.ROW
            if bad not in self._wanted:
                part.raise_first()
            self._bad_rows.append(BadRowGroup(part, bad, stage))
        return rows

    def _with_existing_topics(self, read: ReadColumns, topics: MetadataWaiter) -> ReadColumns:
        """Return the rows whose topics exist. Errors of topics are raised, unless the class `topic` is wanted."""
        if not self._closed.isdisjoint(read.columns.topics):
            closed = min(self._closed.intersection(read.columns.topics))
            raise ConfigError(
                f"rows cannot be sent to topic {closed!r}: it is the deadLetterTopic. Set another deadLetterTopic, or remove "
                "these rows"
            )
        of_control_topics(read.columns).raise_first()
        if BadRowClass.TOPIC not in self._wanted:
            return read
        bad = invalid_topic_names(read.columns)
        read = read.without(self._collect_topic_rows(bad, None))
        while len(read.columns.records):
            for name in self._topics.keys() & set(read.columns.topics):
                read = read.without(
                    self._collect_topic_rows(_of_topic(read.columns, name, self._topics[name]), self._topics[name])
                )
            errors: dict[str, BrokerError] = {}
            if not len(read.columns.records) or topics.find(self._highest(read.columns), refused=errors):
                break
            for error in errors.values():
                if not self._is_wanted(error):
                    raise error
            self._topics |= errors
        return read

    def _highest(self, columns: CheckedColumns) -> dict[str, int]:
        """Return the highest partition to wait for in each topic, -1 for none."""
        found = {name: columns.highest_partition(code) for code, name in enumerate(columns.topics)}
        return {name: min(highest, self._counts.get(name, highest + 1) - 1) for name, highest in found.items()}

    def _collect_topic_rows(self, rows: RejectedRows, error: BrokerError | None) -> RejectedRows:
        if len(rows):
            self._bad_rows.append(BadRowGroup(rows, BadRowClass.TOPIC, FoundBy.PARTITION, error))
        return rows


def new_collector(
    config: ProducerConfig, wanted: Collection[BadRowClass], closed: Collection[str] = ()
) -> BadRowCollector:
    """Return a collector with the memory limit of this configuration."""
    return BadRowCollector(wanted, int(config.buffer_memory * MAX_HELD_FRACTION), closed)


def _of_topic(columns: CheckedColumns, name: str, error: BrokerError) -> RejectedRows:
    """Return the rows of a topic as rejected with its error."""
    code = columns.topics.index(name)
    count = len(columns.records)
    rows = np.ones(count, dtype=np.bool_) if columns.topic_codes is None else columns.topic_codes == code
    if not rows.any():
        return NONE_REJECTED
    return RejectedRows.among(columns, [errors_at(rows, RowErrorKind.TOPIC, lambda _: str(error))])
