"""Converts an Arrow RecordBatch to checked columns.

Key, value, headers and timestamps are for the kernel; topic and partition are for routing. Whether a partition exists is
not checked here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.kernel import BinaryColumn, RecordColumns, largest_record
from spark_producer.kernel.arrays import ArrowArray, Int32Array, Int64Array, from_numbers, is_valid, numbers
from spark_producer.record.byte_columns import binary_column, has_views, take_column, value_type
from spark_producer.record.decoded_columns import invalid_utf8
from spark_producer.record.header_column import header_blocks
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowContext, RowErrorKind, RowErrors, errors_at

COLUMN_NAMES = ("value", "key", "topic", "partition", "headers", "timestamp")
"""The columns of rows to write. `datasource.write.driver.schema` has their Spark types. A new column that goes into the record
also concerns the kernel's `RecordColumns`, `dictionary_slices`, and `send_arguments` for single records."""

NO_TOPIC = -1
"""The topic code of rows that are rejected because they have no topic."""

LAST_SECOND = (2**63 - 1) // 1000

_PER_MILLISECOND = {"s": None, "ms": 1, "us": 1000, "ns": 1_000_000}


class CheckedColumns(NamedTuple):
    """Rows that are ready to route and encode. All arrays have one entry per row.

    `topics` holds the distinct topics, and `topic_codes` says which of them each row has (None: all have the first one).
    `partitions` holds explicit partitions, with -1 where the producer chooses; it is None when no row names one.
    """

    records: RecordColumns
    topics: tuple[str, ...]
    topic_codes: Int32Array | None = None
    partitions: Int32Array | None = None

    @property
    def first_row(self) -> int:
        """The number of the first row within the task."""
        return self.row_number(0)

    def highest_partition(self, topic_code: int) -> int:
        """Return the highest explicit partition among the rows of a topic, or -1 if there is none."""
        if self.partitions is None:
            return -1
        chosen = self.partitions if self.topic_codes is None else self.partitions[self.topic_codes == topic_code]
        return int(chosen.max(initial=-1))

    def topic_of(self, row: int) -> str | None:
        """Return the topic of a row, which is None only if the row was rejected because it has none."""
        code = 0 if self.topic_codes is None else int(self.topic_codes[row])
        return None if code == NO_TOPIC else self.topics[code]

    def row_number(self, row: int) -> int:
        """Return the number of a row within the task, for messages."""
        return self.records.number_of(row)

    def location(self, row: int) -> str:
        """Return the name of a row in messages; rows of archives have an empty topic, which is left out."""
        topic, number = self.topic_of(row), self.row_number(row)
        return f"topic {topic!r}, row {number} of the task" if topic else f"row {number} of the table"


class ReadColumns:
    """The result of `read_columns`: the rows that can be written, and those that cannot, for the caller to handle.

    `rejected` holds the rows that are not in `columns`.
    """

    def __init__(
        self,
        found: CheckedColumns,
        rejected: RejectedRows,
        valid: Int64Array | None,
        read: Callable[[Int64Array], ReadColumns],
    ) -> None:
        """`found` has all rows; those at the positions `valid` are valid (None: all); `read` reads some of them again."""
        self.rejected = rejected
        self._found = found
        self._valid = valid
        self._read = read

    @functools.cached_property
    def columns(self) -> CheckedColumns:
        """The valid rows, which keep their numbers. They are copied only if a row was rejected."""
        return self._found if self._valid is None else self._read(self._valid).or_raise()

    def or_raise(self) -> CheckedColumns:
        """Return the columns of all rows, for callers that need either all rows or none.

        Raises:
            RecordError: A row was rejected; the first one says why.
        """
        if self._valid is None:
            return self._found
        self.rejected.raise_first()
        return self.columns

    def without(self, rejected: RejectedRows) -> ReadColumns:
        """Return this result after another check has rejected some rows of `columns`: they move to `rejected`."""
        if not len(rejected):
            return self
        valid = np.arange(len(self._found.records)) if self._valid is None else self._valid
        return ReadColumns(self._found, self.rejected + rejected, np.delete(valid, rejected.positions), self._read)


def read_columns(
    batch: pa.RecordBatch,
    *,
    topic: str | None,
    now_ms: int,
    first_row: int | Int64Array = 0,
    with_headers: bool = True,
) -> ReadColumns:
    """Check and view the columns of `batch`; payload bytes are not copied, unless a row is rejected.

    `topic`, if given, is the topic of every row and overrides the column. If there is no timestamp column, rows get `now_ms`.
    Messages number the rows from `first_row` on; it may also be an array with the number of each row.

    A row is rejected if it has no topic or one that is not UTF-8, more than `MAX_HEADERS` headers, a header key that is null
    or not UTF-8, a timestamp that is null, before 1970 or beyond what milliseconds can say, or a negative partition.

    Raises:
        SchemaError: A column is missing, unknown or of a wrong type, which is wrong for all rows.
    """
    given, faults = _by_name(batch), list[RowErrors]()
    topics, codes = _topics(given.get("topic"), topic, first_row, faults)
    records = RecordColumns(
        binary_column("value", given["value"]),
        _key(given.get("key")),
        header_blocks(given["headers"], faults) if with_headers and "headers" in given else None,
        _timestamps(given.get("timestamp"), now_ms, faults),
        numbers=first_row,
    )
    columns = CheckedColumns(records, topics, codes, _partitions(given.get("partition"), faults))

    def read_again(rows: Int64Array) -> ReadColumns:
        return read_columns(
            take_rows(batch, rows),
            topic=topic,
            now_ms=now_ms,
            with_headers=with_headers,
            first_row=records.numbers_of(rows),
        )

    if faults:
        rejected = RejectedRows.among(columns, faults)
        return ReadColumns(columns, rejected, np.delete(np.arange(batch.num_rows), rejected.positions), read_again)
    records.largest = largest_record(records)[1]
    return ReadColumns(columns, NONE_REJECTED, None, read_again)


def row_locations_only(batch: pa.RecordBatch, topic: str | None, first_row: int | Int64Array) -> CheckedColumns:
    """Return only topics and row numbers, for messages about rows that cannot be read.

    Raises: The same errors as `read_columns`.
    """
    records = RecordColumns(BinaryColumn(pa.nulls(batch.num_rows, pa.binary())), numbers=first_row)
    return CheckedColumns(records, *_topics(_by_name(batch).get("topic"), topic, first_row, []))


def usable_timestamps(batch: pa.RecordBatch, now_ms: int) -> list[int]:
    """Return the timestamp of each row in milliseconds; `now_ms` for rows without a valid one."""
    times = np.full(batch.num_rows, now_ms, dtype=np.int64)
    if "timestamp" in batch.schema.names:
        faults = list[RowErrors]()
        times[:] = _timestamps(batch.column("timestamp"), now_ms, faults)
        for fault in faults:
            times[fault.rows] = now_ms
    found: list[int] = times.tolist()
    return found


def take_rows(batch: pa.RecordBatch, rows: Int64Array) -> pa.RecordBatch:
    """Return a copy of some rows of a batch, chosen by position."""
    if not len(rows) and "timestamp" in batch.schema.names and pa.types.is_null(batch.schema.field("timestamp").type):
        batch = batch.drop_columns(["timestamp"])  # its rows were rejected, and an empty column would have a wrong type
    if not any(map(has_views, batch.schema.types)):
        return batch.take(from_numbers(rows))
    return pa.RecordBatch.from_arrays([take_column(column, rows) for column in batch.columns], batch.schema.names)


def _by_name(batch: pa.RecordBatch) -> dict[str, ArrowArray]:
    given: dict[str, ArrowArray] = dict(zip(batch.schema.names, batch.columns, strict=True))
    if len(given) < batch.num_columns:
        raise SchemaError(f"two columns have the same name among {', '.join(batch.schema.names)}. Drop one of them")
    unknown = sorted(set(given) - set(COLUMN_NAMES))
    if unknown:
        raise SchemaError(f"unknown column {unknown[0]!r}: the columns are {', '.join(COLUMN_NAMES)}")
    if "value" not in given:
        raise SchemaError("column 'value' is missing: it holds the record's value, string or binary")
    return given


def _key(column: ArrowArray | None) -> BinaryColumn | None:
    if column is None:
        return None
    key = binary_column("key", column)
    return None if column.null_count == len(column) else key


def _topics(
    column: ArrowArray | None, topic: str | None, row_numbers: Int64Array | int, faults: list[RowErrors]
) -> tuple[tuple[str, ...], Int32Array | None]:
    if topic is not None:
        return (topic,), None
    if column is None:
        raise SchemaError("no topic is given. Set the option 'topic', or add a column 'topic'")
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    kind = value_type(column)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise SchemaError(f"column 'topic' must be a string, or a dictionary of strings, not {column.type}. Cast it")
    encoded = _used_only(column) if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    topics: tuple[str, ...] | None
    try:
        topics = tuple(cast("list[str]", encoded.dictionary.to_pylist()))
    except UnicodeDecodeError:
        topics = None
    if topics and len(topics) == 1 and not encoded.null_count:
        return topics, None
    codes: Int32Array = numbers(encoded.indices, nulls=NO_TOPIC)
    if encoded.null_count:
        faults.append(errors_at(codes == NO_TOPIC, RowErrorKind.TOPIC, _null_topic_message))
    if topics is None:
        return _readable_topics(encoded.dictionary, codes, row_numbers, faults)
    return topics, codes


def _null_topic_message(at: RowContext) -> str:
    return f"row {at.row} of the task has a null topic. Fill it, or set the option 'topic'"


def _readable_topics(
    distinct: ArrowArray, codes: Int32Array, row_numbers: Int64Array | int, faults: list[RowErrors]
) -> tuple[tuple[str, ...], Int32Array]:
    """Return topics and codes where some topics are not UTF-8; rows with one of these get no topic."""
    names = binary_column("topic", distinct).array
    bad = np.append(invalid_utf8(names), False)[codes]  # the code `NO_TOPIC` picks the last entry
    first, last = (
        row_numbers[[0, -1]].tolist()
        if isinstance(row_numbers, np.ndarray)
        else (row_numbers, row_numbers + len(codes) - 1)
    )
    faults.append(
        errors_at(
            bad,
            RowErrorKind.TOPIC,
            lambda _: f"a topic name in rows {first} to {last} of the task is not UTF-8. Correct the column",
        )
    )
    topics = tuple(name.decode(errors="replace") for name in cast("list[bytes]", names.to_pylist()))
    return topics, np.where(bad, np.int32(NO_TOPIC), codes)


def _used_only(column: pa.DictionaryArray[Any, Any]) -> pa.DictionaryArray[Any, Any]:
    """Return a column whose dictionary has only the values of its rows, each once, in the order of their first rows.

    Other dictionaries may also hold values that no row uses, the same value twice, or null.
    """
    used = column.indices.dictionary_encode()
    distinct = column.dictionary.take(used.dictionary).dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(used.indices), distinct.dictionary)


def _partitions(column: ArrowArray | None, faults: list[RowErrors]) -> Int32Array | None:
    if column is None or pa.types.is_null(column.type):
        return None
    if not (pa.types.is_int32(column.type) or pa.types.is_int16(column.type) or pa.types.is_int8(column.type)):
        raise SchemaError(f"column 'partition' must be an int, not {column.type}. Cast it")
    if column.null_count == len(column):
        return None
    partitions: Int32Array = numbers(column.cast(pa.int32()), nulls=-1)
    negative = partitions < 0
    if column.null_count:
        negative &= is_valid(column)
    if negative.any():
        faults.append(
            errors_at(
                negative,
                RowErrorKind.PARTITION,
                lambda at: f"partition {at.found} is negative ({at.location}). Null leaves the choice to the producer",
                partitions,
            )
        )
    return partitions


def _timestamps(column: ArrowArray | None, now_ms: int, faults: list[RowErrors]) -> Int64Array | int:
    if column is None:
        return now_ms
    if column.null_count:
        faults.append(
            errors_at(
                ~is_valid(column),
                RowErrorKind.TIMESTAMP,
                lambda at: (
                    f"the timestamp is null ({at.location}). Fill it, or drop the column for the time of writing"
                ),
            )
        )
        if pa.types.is_null(column.type):
            return now_ms
    times = _milliseconds(column, faults)
    if len(times) and int(times.min()) < 0:
        faults.append(
            errors_at(
                times < 0,
                RowErrorKind.TIMESTAMP,
                lambda at: f"the timestamp is {at.found} ms, before 1970 ({at.location}). Kafka has no such time",
                times,
            )
        )
    if len(times) and bool((times == times[0]).all()):
        return int(times[0])
    return times


def _milliseconds(column: ArrowArray, faults: list[RowErrors]) -> Int64Array:
    """Return milliseconds since 1970; the entries of rows at fault may hold anything."""
    kind = column.type
    if pa.types.is_int64(kind):
        return numbers(column, nulls=0)
    if not (pa.types.is_timestamp(kind) and kind.tz is not None):
        raise SchemaError(
            f"column 'timestamp' must be a timestamp with a time zone, or a long of milliseconds since 1970, not {kind}. Cast it"
        )
    per = _PER_MILLISECOND[kind.unit]
    raw: Int64Array = numbers(column.view(pa.int64()), nulls=0)
    if per is not None:
        return np.floor_divide(raw, per)
    if len(raw) and max(int(raw.max()), -int(raw.min())) > LAST_SECOND:
        beyond = (raw > LAST_SECOND) | (raw < -LAST_SECOND)
        faults.append(
            errors_at(
                beyond,
                RowErrorKind.TIMESTAMP,
                lambda at: f"the timestamp is {at.found} s, more than fits into milliseconds ({at.location})",
                raw,
                first=int(raw.argmax() if raw.max() > LAST_SECOND else raw.argmin()),
            )
        )
    return raw * 1000
