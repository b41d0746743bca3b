"""The rows that a caller wants back instead of an error, because they can go elsewhere: bad ones, and those that brokers refuse.

Each check of `send_batch` runs as always. Only a batch with a bad row pays for its removal.
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
from spark_producer.producer.checks import too_large
from spark_producer.producer.metadata_wait import MetadataWaiter, invalid_topic_names, of_control_topics
from spark_producer.record.columns import CheckedColumns, ReadColumns
from spark_producer.record.dictionary_slices import BatchPieces
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowErrorKind, errors_at

MAX_HELD_FRACTION = 1 / 2
"""The part of `buffer.memory` up to which records that brokers have refused are held, beside the pool. Whoever sends takes them
after each piece of a few MiB, so this ends only a write of which nearly all is bad."""


class BadRowClass(enum.StrEnum):
    """The classes of bad rows (docs/dead_letters.md)."""

    ROW = "row"
    SIZE = "size"
    BROKER = "broker"
    SCHEMA = "schema"
    TOPIC = "topic"


class FoundBy(enum.StrEnum):
    """Who has found a row to be bad."""

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
"""The codes that say something of single rows; with all others nobody gets rows back."""


class BadRowGroup(NamedTuple):
    """Rows of one class that were not queued."""

    rows: RejectedRows
    bad: BadRowClass
    stage: FoundBy
    error: BrokerError | None = None
    """why a topic may not be written to, if that is the reason"""


class BadRowCollector:
    """What a caller of `send_batch_collecting_bad_rows` wants back, and what was found. One thread uses it.

    `refused` gets what brokers refuse later, until a flush. No row may have one of the topics `closed`.
    """

    def __init__(self, wanted: Collection[BadRowClass], max_bytes: int, closed: Collection[str] = ()) -> None:
        self._wanted = frozenset(wanted)
        self._closed = frozenset(closed)
        self._found: list[BadRowGroup] = []
        self._topics: dict[str, BrokerError] = {}
        """the topics that turned out not to be usable"""
        self._counts: dict[str, int] = {}
        """how many partitions those topics have of which a row wanted more; it is not worth another wait for each piece"""
        self.refused = RejectionCollector(self._wants, max_bytes)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add_schema_mismatches(self, rows: RejectedRows) -> None:
        """Keep rows that an encoder has refused, and that are not in the batch which is sent next.

        Raises:
            RecordError: The class `schema` is not wanted; the error of the first row.
        """
        if BadRowClass.SCHEMA not in self._wanted:
            rows.raise_first()
        self._found.append(BadRowGroup(rows, BadRowClass.SCHEMA, FoundBy.ENCODE))

    def take(self) -> list[BadRowGroup]:
        """Return the rows that were found to be bad since the last call."""
        found, self._found = self._found, []
        return found

    def good(
        self, pieces: BatchPieces, topics: MetadataWaiter, partitioner: Partitioner, config: ProducerConfig
    ) -> Iterator[CheckedColumns]:
        """Yield the rows that can be written, and keep those that cannot.

        Raises: as `Producer.send_batch`, for a class of rows that is not wanted.
            ConfigError: a row has a topic that is closed.
        """
        self._keep(pieces.rejected, FoundBy.COLUMNS)
        for piece in pieces:
            self._keep(piece.rejected, FoundBy.COLUMNS)
            read = piece.without(self._keep(too_large(piece.columns, config), FoundBy.COLUMNS))
            read = self._with_topics(read, topics)
            if not len(read.columns.records):
                continue
            if read.columns.partitions is None:
                yield read.columns
                continue
            asked = self._highest(read.columns)
            found = topics.find(asked)
            self._counts |= {at.topic: at.partition_count for at in found if at.partition_count <= asked[at.topic]}
            read = read.without(self._keep(partitioner.reject(read.columns, found), FoundBy.PARTITION))
            if len(read.columns.records):
                yield read.columns

    def _wants(self, error: BrokerError) -> bool:
        return CLASS_BY_ERROR_CODE.get(error.code) in self._wanted

    def _keep(self, rows: RejectedRows, stage: FoundBy) -> RejectedRows:
        """Keep rows of the classes `row` and `size`, or raise the error of the first one."""
        if not len(rows):
            return rows
        for part, kind in rows.by_kind():
            bad = BadRowClass.SIZE if kind is RowErrorKind.SIZE else BadRowClass.ROW
            if bad not in self._wanted:
                part.raise_first()
            self._found.append(BadRowGroup(part, bad, stage))
        return rows

    def _with_topics(self, read: ReadColumns, topics: MetadataWaiter) -> ReadColumns:
        """Return the rows whose topics exist. Errors of topics are raised, unless the class `topic` is wanted."""
        if not self._closed.isdisjoint(read.columns.topics):
            closed = min(self._closed.intersection(read.columns.topics))
            raise ConfigError(
                f"rows have the topic {closed!r}, which is the deadLetterTopic: a topic is one or the other. Name another "
                "deadLetterTopic, or leave these rows out"
            )
        of_control_topics(read.columns).raise_first()
        if BadRowClass.TOPIC not in self._wanted:
            return read
        bad = invalid_topic_names(read.columns)
        read = read.without(self._keep_topics(bad, None))
        while len(read.columns.records):
            for name in self._topics.keys() & set(read.columns.topics):
                read = read.without(
                    self._keep_topics(_of_topic(read.columns, name, self._topics[name]), self._topics[name])
                )
            refused: dict[str, BrokerError] = {}
            if not len(read.columns.records) or topics.find(self._highest(read.columns), refused=refused):
                break
            for error in refused.values():
                if not self._wants(error):
                    raise error
            self._topics |= refused
        return read

    def _highest(self, columns: CheckedColumns) -> dict[str, int]:
        """Return the highest partition to wait for in each topic, -1 for none."""
        found = {name: columns.highest_partition(code) for code, name in enumerate(columns.topics)}
        return {name: min(asked, self._counts.get(name, asked + 1) - 1) for name, asked in found.items()}

    def _keep_topics(self, rows: RejectedRows, error: BrokerError | None) -> RejectedRows:
        if len(rows):
            self._found.append(BadRowGroup(rows, BadRowClass.TOPIC, FoundBy.PARTITION, error))
        return rows


def new_collector(
    config: ProducerConfig, wanted: Collection[BadRowClass], closed: Collection[str] = ()
) -> BadRowCollector:
    """Return a sieve that holds as much as a producer of this configuration may."""
    return BadRowCollector(wanted, int(config.buffer_memory * MAX_HELD_FRACTION), closed)


def _of_topic(columns: CheckedColumns, name: str, error: BrokerError) -> RejectedRows:
    """Return the rows of one topic, all of which have failed with its error."""
    code = columns.topics.index(name)
    count = len(columns.records)
    rows = np.ones(count, dtype=np.bool_) if columns.topic_codes is None else columns.topic_codes == code
    if not rows.any():
        return NONE_REJECTED
    return RejectedRows.among(columns, [errors_at(rows, RowErrorKind.TOPIC, lambda _: str(error))])
