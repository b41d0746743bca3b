"""An Arrow RecordBatch → checked columns: key, value, headers, timestamps for the kernel; topic and partition for routing.

Owns: which Arrow types a column may have, and the checks that need the rows themselves.
Must not know: how many partitions a topic has, or how records are encoded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.errors import RecordError, SchemaError
from spark_producer.kernel import MOST_HEADERS, BinaryColumn, RecordColumns, encode_headers
from spark_producer.kernel.arrays import Int64Array, is_valid, numbers
from spark_producer.record.slices import first_that_is_no_text

COLUMN_NAMES = ("value", "key", "topic", "partition", "headers", "timestamp")

LAST_SECOND = (2**63 - 1) // 1000

_PER_MILLISECOND = {"s": None, "ms": 1, "us": 1000, "ns": 1_000_000}


class Columns(NamedTuple):
    """One RecordBatch ready to route and encode. All arrays have one entry per row.

    `topics`: the distinct topics; `topic_codes`: which of them each row has (None: all the first one).
    `partitions`: explicit partitions, -1 where the row leaves the choice; None when no row makes one.
    `first_row`: number of the batch's first row within the task, for messages.
    """

    records: RecordColumns
    topics: tuple[str, ...]
    topic_codes: npt.NDArray[np.int32] | None
    partitions: npt.NDArray[np.int32] | None
    first_row: int

    def highest_partition(self, topic_code: int) -> int:
        """The highest explicit partition among the rows of a topic, -1 if there is none."""
        if self.partitions is None:
            return -1
        chosen = self.partitions if self.topic_codes is None else self.partitions[self.topic_codes == topic_code]
        return int(chosen.max(initial=-1))

    def topic_of(self, row: int) -> str:
        """Topic of a row of this batch."""
        return self.topics[0 if self.topic_codes is None else int(self.topic_codes[row])]

    def place(self, row: int) -> str:
        """How messages name a row; rows of archives have no topic, which is empty."""
        topic, number = self.topic_of(row), self.first_row + row
        return f"topic {topic!r}, row {number} of the task" if topic else f"row {number} of the table"


def read_columns(
    batch: pa.RecordBatch, *, topic: str | None, now_ms: int, first_row: int = 0, with_headers: bool = True
) -> Columns:
    """Check and view the columns of `batch`; payload bytes are not copied.

    `topic` is that of every row and overrides the column; rows without a timestamp column get `now_ms`.

    Raises:
        SchemaError: a column is missing, unknown or of a wrong type.
        RecordError: a null topic, a negative partition, a header key that is null or not UTF-8, more than `MOST_HEADERS`
            headers, a null timestamp or one before 1970.
    """
    given: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    if len(given) < batch.num_columns:
        raise SchemaError(f"two columns have the same name among {', '.join(batch.schema.names)}; drop one of them")
    unknown = sorted(set(given) - set(COLUMN_NAMES))
    if unknown:
        raise SchemaError(f"unknown column {unknown[0]!r}: the columns are {', '.join(COLUMN_NAMES)}")
    if "value" not in given:
        raise SchemaError("column 'value' is missing: it holds the record's value, string or binary")
    topics, codes = _topics(given.get("topic"), topic, first_row)
    place = Columns(RecordColumns(binary_column("value", given["value"])), topics, codes, None, first_row)
    headers = given.get("headers") if with_headers else None
    records = RecordColumns(
        place.records.value,
        _key(given.get("key")),
        None if headers is None else _headers(headers, place),
        _timestamps(given.get("timestamp"), place, now_ms),
    )
    return place._replace(records=records, partitions=_partitions(given.get("partition"), place))


def binary_column(name: str, array: Any) -> BinaryColumn:
    """A string or binary column, small or large, as bytes without a copy; a dictionary is decoded, which copies.

    `BatchPieces` keeps that copy small: it cuts batches before they come here.

    Raises:
        SchemaError: any other type.
    """
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_null(kind):
        return BinaryColumn(pa.nulls(len(array), pa.binary()))
    if not is_bytes(kind):
        raise SchemaError(f"column {name!r} is string or binary, not {kind}; cast it")
    if kind is not array.type:
        array = array.dictionary_decode()
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return BinaryColumn(array.view(pa.large_binary() if large else pa.binary()))


def _key(column: Any) -> BinaryColumn | None:
    if column is None:
        return None
    key = binary_column("key", column)
    return None if column.null_count == len(column) else key


def is_bytes(kind: Any) -> bool:
    """Whether an Arrow type is string or binary, small or large."""
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )


def _topics(column: Any, topic: str | None, first_row: int) -> tuple[tuple[str, ...], npt.NDArray[np.int32] | None]:
    if topic is not None:
        return (topic,), None
    if column is None:
        raise SchemaError("no topic: set the option 'topic', or add a column 'topic'")
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise SchemaError(f"column 'topic' is a string, or a dictionary of strings, not {column.type}; cast it")
    encoded = _used_only(column) if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if encoded.null_count:
        row = int(np.flatnonzero(~is_valid(encoded.indices))[0])
        raise RecordError(f"row {first_row + row} of the task has a null topic; fill it, or set the option 'topic'")
    try:
        topics = tuple(encoded.dictionary.to_pylist())
    except UnicodeDecodeError:
        last = first_row + len(column) - 1
        raise RecordError(
            f"a topic name in rows {first_row} to {last} of the task is not UTF-8; correct the column"
        ) from None
    return topics, numbers(encoded.indices) if len(topics) > 1 else None


def _used_only(column: Any) -> Any:
    """A dictionary column whose dictionary has the values of its rows and no others, each once, in the order of their first row.

    Others may have any: categories that no row is left of, the same value twice, null.
    """
    used = column.indices.dictionary_encode()
    distinct = column.dictionary.take(used.dictionary).dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(used.indices), distinct.dictionary)


def _partitions(column: Any, place: Columns) -> npt.NDArray[np.int32] | None:
    if column is None or pa.types.is_null(column.type):
        return None
    if not (pa.types.is_int32(column.type) or pa.types.is_int16(column.type) or pa.types.is_int8(column.type)):
        raise SchemaError(f"column 'partition' is an int, not {column.type}; cast it")
    if column.null_count == len(column):
        return None
    partitions: npt.NDArray[np.int32] = numbers(column.cast(pa.int32()), nulls=-1)
    negative = partitions < 0
    if column.null_count:
        negative &= is_valid(column)
    if negative.any():
        row = int(negative.argmax())
        raise RecordError(
            f"partition {partitions[row]} is negative ({place.place(row)}); null leaves the choice to the producer"
        )
    return partitions


def _timestamps(column: Any, place: Columns, now_ms: int) -> Int64Array | int:
    if column is None:
        return now_ms
    if column.null_count:
        row = int(np.flatnonzero(~is_valid(column))[0])
        raise RecordError(
            f"the timestamp is null ({place.place(row)}); fill it, or drop the column for the time of writing"
        )
    kind = column.type
    if pa.types.is_int64(kind):
        times: Int64Array = numbers(column)
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        per = _PER_MILLISECOND[kind.unit]
        raw = numbers(column.view(pa.int64()))
        if per is None and len(raw) and max(int(raw.max()), -int(raw.min())) > LAST_SECOND:
            row = int(raw.argmax() if raw.max() > LAST_SECOND else raw.argmin())
            raise RecordError(f"the timestamp is {raw[row]} s, beyond what milliseconds can say ({place.place(row)})")
        times = raw * 1000 if per is None else np.floor_divide(raw, per)
    else:
        raise SchemaError(
            f"column 'timestamp' is a timestamp with a time zone, or a long of milliseconds since 1970, not {kind}; cast it"
        )
    if len(times) and int(times.min()) < 0:
        row = int((times < 0).argmax())
        raise RecordError(f"the timestamp is {times[row]} ms, before 1970 ({place.place(row)}); Kafka has no such time")
    if len(times) and bool((times == times[0]).all()):
        return int(times[0])
    return times


def header_entries(column: Any) -> tuple[Int64Array, Any] | None:
    """How many headers each row has, and the structs of all of them in order; None when no row has any.

    Raises:
        SchemaError: the column is neither an array of struct<key, value> nor a map.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_map(kind):  # the same layout under another name; Arrow flattens lists only
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise SchemaError(
            f"column 'headers' is an array of struct<key: string, value: binary>, or a map, not {kind}; cast it"
        )
    entry = column.type.value_type
    if not pa.types.is_struct(entry) or sorted(field.name for field in entry) != ["key", "value"]:
        raise SchemaError(f"an entry of column 'headers' is a struct<key: string, value: binary>, not {entry}; cast it")
    counts: Int64Array = numbers(column.value_lengths(), nulls=0).astype(np.int64)
    return (counts, column.flatten()) if counts.any() else None


def entry_field(entries: Any, name: str) -> Any:
    """A field of the structs of `header_entries`; null where the struct is."""
    return entries.flatten()[entries.type.get_field_index(name)]


def _headers(column: Any, place: Columns) -> BinaryColumn | None:
    """Header blocks of array<struct<key, value>> or map<key, value>; None when no row has any."""
    counted = header_entries(column)
    if counted is None:
        return None
    counts, entries = counted
    if counts[row := int(counts.argmax())] > MOST_HEADERS:
        raise RecordError(f"a row has {counts[row]} headers ({place.place(row)}); a record may have {MOST_HEADERS}")
    keys = binary_column("headers.key", entry_field(entries, "key"))
    values = binary_column("headers.value", entry_field(entries, "value"))
    if keys.valid is not None:
        row = _row_of(int(np.flatnonzero(~keys.valid)[0]), counts)
        raise RecordError(f"a header key is null ({place.place(row)}); Kafka's header keys are never null")
    try:
        keys.array.cast(pa.large_string() if pa.types.is_large_binary(keys.array.type) else pa.string())
    except pa.ArrowInvalid:
        row = _row_of(first_that_is_no_text(keys.array), counts)
        raise RecordError(
            f"a header key is not UTF-8 ({place.place(row)}); consumers stumble over it: correct it"
        ) from None
    return encode_headers(counts, keys, values)


def _row_of(entry: int, counts: Int64Array) -> int:
    """The row that a header entry belongs to."""
    return int(np.searchsorted(np.cumsum(counts), entry, side="right"))
