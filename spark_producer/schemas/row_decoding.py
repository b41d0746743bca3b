"""Decodes rows so that one that cannot be decoded does not touch others, and puts decoded rows in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.errors import RecordError
from spark_producer.kernel.arrays import ArrowArray, BoolArray, Int64Array, buffer_of, from_numbers
from spark_producer.kernel.avro_program import Failure
from spark_producer.kernel.decoded_avro import MismatchedValues


class BadRow(NamedTuple):
    """A row that cannot be decoded, and the reason."""

    row: int
    reason: str


class DecodedColumn(NamedTuple):
    """The decoded column, in which null and bad rows are null; the number of bad rows, and the first one."""

    values: ArrowArray
    bad_rows: int
    first: BadRow | None


class DecodedRows(NamedTuple):
    """Decoded values, the numbers of the rows that have them, and those that have not, with the reasons."""

    values: ArrowArray
    good: Int64Array
    bad: list[tuple[Int64Array, str]]


RowsAndFailures = tuple[ArrowArray, list[Failure], list[MismatchedValues]]
"""The values of rows, those that cannot be decoded and have no value, and those whose value a column does not hold."""


def decode_rows(
    decode: Callable[[Int64Array, Int64Array], RowsAndFailures],
    reason: Callable[[Failure], str],
    what: str,
    starts: Int64Array,
    ends: Int64Array,
) -> DecodedRows:
    """Return rows decoded by `decode`, which gets the positions of their first and last bytes.

    Rows whose values a column does not hold are left out, and the others are decoded again.

    Args:
        decode: Decodes rows.
        reason: Returns the text of a failure.
        what: The column, for messages.
        starts, ends: The positions of the rows.

    Raises:
        RecordError: the decoded values have more than 2 GiB.
    """
    try:
        values, failures, mismatches = decode(starts, ends)
    except OverflowError as error:
        raise RecordError(f"{what} cannot be decoded: {error}") from None
    good = np.delete(np.arange(len(starts)), [failure.row for failure in failures])
    bad = _by_reason(failures, reason)
    if not mismatches:
        return DecodedRows(values, good, bad)
    unfit = np.unique(np.concatenate([each.rows for each in mismatches]))
    rest = np.delete(good, unfit)
    again = decode_rows(decode, reason, what, starts[rest], ends[rest])
    bad += [(good[each.rows], f"field '{each.path}': {each.reason}") for each in mismatches]
    return DecodedRows(again.values, rest[again.good], bad)


def _by_reason(failures: list[Failure], reason: Callable[[Failure], str]) -> list[tuple[Int64Array, str]]:
    """Return the rows of each reason; its byte is that of the first row."""
    found: dict[tuple[int, int], list[int]] = {}
    first: dict[tuple[int, int], Failure] = {}
    for failure in failures:
        key = failure.reason, failure.op
        found.setdefault(key, []).append(failure.row)
        first.setdefault(key, failure)
    return [(np.array(rows, np.int64), reason(first[key])) for key, rows in found.items()]


def in_order(
    kind: pa.DataType, length: int, parts: list[Any], positions: list[Int64Array], bad: list[tuple[Int64Array, str]]
) -> DecodedColumn:
    """Return a column of `length` rows: `parts` hold the values of the rows at `positions`; the other rows are null.

    `bad` has the rows that cannot be decoded, with the reasons.
    """
    rows = [numbers for numbers, _ in bad if len(numbers)]
    first = min((BadRow(int(numbers.min()), reason) for numbers, reason in bad if len(numbers)), default=None)
    count = len(np.unique(np.concatenate(rows))) if rows else 0
    if len(parts) == 1 and len(parts[0]) == length:
        return DecodedColumn(parts[0], count, first)
    if not parts:
        return DecodedColumn(_nulls(length, kind), count, first)
    places: Int64Array = np.full(length, -1, np.int64)
    places[np.concatenate(positions)] = np.arange(sum(map(len, parts)))
    found = pa.concat_arrays(parts) if len(parts) > 1 else parts[0]
    return DecodedColumn(_taken(found, places), count, first)


def _taken(values: ArrowArray, places: Int64Array) -> ArrowArray:
    """Return the values at these places; null where they are negative."""
    valid: BoolArray = places >= 0
    bits = buffer_of(np.packbits(valid, bitorder="little"))
    numbers = from_numbers(places)
    return values.take(pa.Array.from_buffers(pa.int64(), len(places), [bits, numbers.buffers()[1]]))


def _nulls(length: int, kind: Any) -> ArrowArray:
    found: ArrowArray = pa.nulls(length, kind)
    return found
