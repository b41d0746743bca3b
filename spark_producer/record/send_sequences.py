"""Converts the sequences that `Producer.send_many` takes to RecordBatches.

Arrow converts a whole column in one call, so a record of a sequence costs a fraction of what a call for each record does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from spark_producer.errors import RecordError
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.kernel.column_views import PIECE_BYTES
from spark_producer.record.send_arguments import Field, Header, integers

FIRST_ROWS = 1024
"""Rows of the first batch. Later ones have as many as `PIECE_BYTES` hold if records stay as large."""
MAX_ROWS = 16_384
MAX_GROWTH = 8
"""How many times as many rows as the last batch the next one may have."""

_TYPES = {
    "values": ("value", pa.binary()),
    "keys": ("key", pa.binary()),
    "headers": ("headers", pa.map_(pa.string(), pa.binary())),
    "timestamps_ms": ("timestamp", pa.int64()),
    "partitions": ("partition", pa.int32()),
}
"""Argument → column and its type."""
_CONVERSION_ERRORS = (pa.ArrowException, OverflowError, ValueError, TypeError)


class Sequences(NamedTuple):
    """The arguments of `Producer.send_many`, with an entry for each record; those that are None apply to no record."""

    values: Sequence[Field]
    keys: Sequence[Field] | None
    headers: Sequence[Sequence[Header] | None] | None
    timestamps_ms: Sequence[int | None] | None
    partitions: Sequence[int | None] | None


def record_batches(given: Sequences, now_ms: int) -> Iterator[pa.RecordBatch]:
    """Return the records as batches of bounded size, each converted when it is asked for.

    Records without a timestamp get `now_ms`.

    Raises:
        RecordError: an argument is no sequence or has another length than `values`. When a batch is asked for: an entry has a
            type that its column cannot hold.
    """
    columns = {name: entries for name, entries in given._asdict().items() if entries is not None}
    for name, entries in columns.items():
        _check_sequence(name, entries)
        if len(entries) != len(given.values):
            raise RecordError(
                f"send_many failed: {name} has {len(entries)} entries, but values has {len(given.values)}. Give one entry for "
                "each record, or leave the argument out"
            )
    return _converted(columns, len(given.values), now_ms)


def _check_sequence(name: str, entries: Any) -> None:
    """Reject text and bytes too, whose entries are characters and numbers."""
    if isinstance(entries, str | bytes | bytearray) or not hasattr(entries, "__len__"):
        raise RecordError(
            f"send_many failed: {name} is of type {type(entries).__name__}. Give a list with an entry for each record; for a "
            "single record there is send"
        )


def _converted(columns: dict[str, Sequence[Any]], count: int, now_ms: int) -> Iterator[pa.RecordBatch]:
    first, rows = 0, FIRST_ROWS
    while first < count:
        batch = pa.record_batch(
            {_TYPES[name][0]: _column(name, columns[name], first, rows, now_ms) for name in columns}
        )
        yield batch
        first += batch.num_rows
        rows = max(1, min(MAX_ROWS, MAX_GROWTH * rows, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes)))


def _column(name: str, entries: Sequence[Any], first: int, rows: int, now_ms: int) -> ArrowArray:
    type_ = _TYPES[name][1]
    some = entries[first : first + rows]
    if name == "timestamps_ms":
        some = [now_ms if entry is None else entry for entry in some]
    try:
        return _array(some, type_)
    except _CONVERSION_ERRORS:
        for row, entry in enumerate(some, first):
            _check_entry(name, row, entry, type_)
        raise


def _array(entries: Sequence[Any], type_: pa.DataType) -> ArrowArray:
    return integers(entries, type_) if pa.types.is_integer(type_) else pa.array(entries, type_)


def _check_entry(name: str, row: int, entry: Any, type_: pa.DataType) -> None:
    try:
        _array([entry], type_)
    except _CONVERSION_ERRORS as error:
        raise RecordError(f"send_many failed: {name}[{row}] cannot be written: {error}") from error
