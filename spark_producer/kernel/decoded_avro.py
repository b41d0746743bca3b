"""Turns decoded Avro columns into Arrow arrays, as decimals and times too, and finds values that their types cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, BoolArray, ByteArray, Int64Array, buffer_of, from_numbers
from spark_producer.kernel.avro_program import MAX_OFFSET, TOO_MUCH, ColumnPlan, Program, RawColumn, Storage

_DAY_NS = 86_400_000_000_000
_DAY_MS = 86_400_000
_MAX_DURATION_MS = ((1 << 63) - 1) // 1000
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_HYPHENS = [8, 13, 18, 23]
_DIGITS = [index for index in range(36) if index not in _HYPHENS]
"""The positions of hyphens and digits in a UUID's text (RFC 9562, section 4)."""


class MismatchedValues(NamedTuple):
    """The rows, in ascending order, of which a column does not hold a value, the column's path, and the reason."""

    rows: Int64Array
    path: str
    reason: str


def arrow_array(program: Program, raw: list[RawColumn], length: int) -> tuple[ArrowArray, list[MismatchedValues]]:
    """Return the result of `length` decoded rows, and the values that it does not hold. If there are any, the array is not valid.

    Raises:
        OverflowError: symbols or UUIDs would make a column of more than 2 GiB.
    """
    builder = _Builder(program, raw)
    return builder.build(0, length, lambda rows: rows), builder.mismatches


RowsOf = Callable[[Int64Array], Int64Array]
"""Returns the rows of positions in a column."""


class _Builder:
    def __init__(self, program: Program, raw: list[RawColumn]) -> None:
        self.mismatches: list[MismatchedValues] = []
        self._program = program
        self._raw = raw

    def build(self, number: int, length: int, rows: RowsOf) -> ArrowArray:
        """Return a column, which is `length` values long. `rows` is for mismatches."""
        plan, raw = self._program.columns[number], self._raw[number]
        if plan.storage is Storage.NOTHING:
            return pa.nulls(length, pa.null())
        if raw.length != length:
            raise ValueError(f"an Avro column has {raw.length} values instead of {length}: the program is damaged")
        valid = None if raw.valid is None or raw.valid.all() else bits_of(raw.valid)
        if plan.storage is Storage.RECORD:
            fields = [self.build(child, length, rows) for child in plan.children]
            return pa.Array.from_buffers(plan.kind, length, [valid], children=fields)
        if plan.storage is Storage.ARRAY:
            return self._list(plan, raw, valid, rows)
        found, bad, reason = _scalars(plan, raw, valid)
        if bad is not None and bad.any():
            self.mismatches.append(MismatchedValues(np.unique(rows(np.flatnonzero(bad))), plan.path, reason))
        return found

    def _list(self, plan: ColumnPlan, raw: RawColumn, valid: pa.Buffer | None, rows: RowsOf) -> ArrowArray:
        items = int(raw.values[-1])

        def inner(positions: Int64Array) -> Int64Array:
            return rows(np.searchsorted(raw.values, positions, side="right") - 1)

        children: Any = [self.build(child, items, inner) for child in plan.children]
        if len(children) == 2:
            entry: Any = plan.kind
            kind = pa.struct([entry.key_field, entry.item_field])
            children = [pa.Array.from_buffers(kind, items, [None], children=children)]
        return pa.Array.from_buffers(plan.kind, raw.length, [valid, buffer_of(raw.values)], children=children)


_Scalars = tuple[ArrowArray, BoolArray | None, str]


def _scalars(plan: ColumnPlan, raw: RawColumn, valid: pa.Buffer | None) -> _Scalars:
    if plan.storage is Storage.BYTES:
        return _of_bytes(plan, raw, valid)
    kind, values = plan.kind, raw.values
    if plan.storage is Storage.BOOLEAN:
        return pa.Array.from_buffers(kind, raw.length, [valid, bits_of(values)]), None, ""
    if plan.symbols is not None:
        return named(plan.symbols, values, raw), None, ""
    bad = None
    if pa.types.is_time64(kind):
        bad = (values < 0) | (values >= _DAY_NS)
    elif pa.types.is_int32(kind) or pa.types.is_date32(kind):
        values = values.astype(np.int32)
    return pa.Array.from_buffers(kind, raw.length, [valid, buffer_of(values)]), bad, "it is not a time of day"


def named(symbols: ArrowArray, values: npt.NDArray[Any], raw: RawColumn) -> ArrowArray:
    """Return the texts of `values`, which are indexes into `symbols`; null where the column is.

    Raises:
        OverflowError: they have more than 2 GiB.
    """
    offsets = np.frombuffer(memoryview(symbols.buffers()[1]), np.int32).astype(np.int64)  # type: ignore[arg-type]
    sizes = np.diff(offsets)
    if raw.length and int(sizes.max()) * raw.length > MAX_OFFSET and int(sizes[values].sum()) > MAX_OFFSET:
        raise OverflowError(TOO_MUCH)
    if raw.valid is not None:  # a null index gives null
        bits = bits_of(raw.valid)
        return symbols.take(pa.Array.from_buffers(pa.int64(), raw.length, [bits, buffer_of(values)]))
    return symbols.take(from_numbers(values))


def _of_bytes(plan: ColumnPlan, raw: RawColumn, valid: pa.Buffer | None) -> _Scalars:
    kind = plan.kind
    if pa.types.is_decimal128(kind):
        return _decimals(kind, raw, valid)
    if pa.types.is_duration(kind):
        return _durations(kind, raw, valid)
    if plan.packed_uuid:
        return _uuids(raw, valid), None, ""
    found = pa.Array.from_buffers(kind, raw.length, [valid, buffer_of(raw.values), buffer_of(raw.data)])
    return found, checked_text(found, raw) if pa.types.is_string(kind) else None, "it is not UTF-8"


def checked_text(found: ArrowArray, raw: RawColumn) -> BoolArray | None:
    """Return which strings of an array are not UTF-8, or None if all are."""
    if len(raw.data) and raw.data.max() >= 0x80:  # nearly all texts are ASCII
        try:
            found.validate(full=True)
        except pa.ArrowInvalid:
            return _not_utf8(raw)
    return None


def _not_utf8(raw: RawColumn) -> BoolArray:
    content = raw.data.tobytes()
    bad = np.zeros(raw.length, dtype=np.bool_)
    for index, (start, end) in enumerate(zip(raw.values[:-1].tolist(), raw.values[1:].tolist(), strict=True)):
        try:
            content[start:end].decode()
        except UnicodeDecodeError:
            bad[index] = True
    return bad


def _decimals(kind: pa.Decimal128Type, raw: RawColumn, valid: pa.Buffer | None) -> _Scalars:
    """Return decimals of big-endian bytes of any length, of which leading bytes may only repeat the sign."""
    ends, lengths = raw.values[1:].astype(np.int64), np.diff(raw.values)
    data = raw.data if len(raw.data) else np.zeros(1, np.uint8)
    negative = (lengths > 0) & (data[np.where(lengths > 0, ends - lengths, 0)] >= 0x80)
    whole: ByteArray = np.where(negative, 0xFF, 0).astype(np.uint8).repeat(16).reshape(-1, 16)
    for index in range(16):
        here = lengths > index
        whole[here, index] = data[ends[here] - 1 - index]
    bad: BoolArray = _too_long(raw, lengths, negative, whole[:, 15] >= 0x80) | beyond(whole, kind.precision)
    found = pa.Array.from_buffers(kind, raw.length, [valid, buffer_of(whole.reshape(-1))])
    return found, bad, f"it has more than {kind.precision} digits"


def _too_long(raw: RawColumn, lengths: npt.NDArray[Any], negative: BoolArray, sign: BoolArray) -> BoolArray:
    """Return whether decimals of more than 16 bytes have digits in those before the last 16."""
    bad: BoolArray = (lengths > 16) & (sign != negative)
    if len(lengths) and lengths.max() > 16:
        wrong = np.zeros(len(raw.data) + 1, dtype=np.int64)
        np.cumsum(raw.data != np.where(negative, 0xFF, 0).repeat(lengths), out=wrong[1:])
        starts = raw.values[:-1]
        bad |= wrong[np.maximum(raw.values[1:] - 16, starts)] > wrong[starts]
    return bad


def beyond(whole: ByteArray, precision: int) -> BoolArray:
    """Return whether 128-bit little-endian numbers have more digits than `precision`."""
    parts = whole.view("<u8")
    low, high = parts[:, 0], parts[:, 1]
    negative = high >> np.uint64(63) == 1
    low, high = (
        np.where(negative, ~low, low),
        np.where(negative, ~high, high),
    )  # -n - 1, so the limit of them is one less
    limit = 10**precision - 1
    limits = [np.where(negative, np.uint64(part[0]), np.uint64(part[1])) for part in _parts(limit - 1, limit)]
    found: BoolArray = (high > limits[1]) | ((high == limits[1]) & (low > limits[0]))
    return found


def _parts(first: int, second: int) -> list[tuple[int, int]]:
    """Return the low and the high 64 bits of two numbers."""
    mask = (1 << 64) - 1
    return [(first & mask, second & mask), (first >> 64, second >> 64)]


def _durations(kind: pa.DataType, raw: RawColumn, valid: pa.Buffer | None) -> _Scalars:
    """Return durations of months, days and milliseconds, of 32 bits each, which must have no months."""
    parts = np.zeros((raw.length, 3), dtype=np.int64)
    parts[np.diff(raw.values) == 12] = raw.data.view("<u4").reshape(-1, 3)
    milliseconds = parts[:, 1] * _DAY_MS + parts[:, 2]
    bad = (parts[:, 0] != 0) | (milliseconds > _MAX_DURATION_MS)
    microseconds = np.where(bad, 0, milliseconds) * 1000
    found = pa.Array.from_buffers(kind, raw.length, [valid, buffer_of(microseconds)])
    return found, bad, "it has months, whose days vary, or is longer than an interval of days can be"


def _uuids(raw: RawColumn, valid: pa.Buffer | None) -> ArrowArray:
    """Return the texts of UUIDs of 16 bytes."""
    packed = raw.data.reshape(-1, 16)
    texts = np.full((len(packed), 36), ord("-"), dtype=np.uint8)
    texts[:, _DIGITS[0::2]], texts[:, _DIGITS[1::2]] = _HEX[packed >> 4], _HEX[packed & 0x0F]
    offsets = (raw.values.astype(np.int64) // 16 * 36).astype(np.int32)
    if int(raw.values[-1]) // 16 * 36 > MAX_OFFSET:
        raise OverflowError(TOO_MUCH)
    return pa.Array.from_buffers(pa.string(), raw.length, [valid, buffer_of(offsets), buffer_of(texts.reshape(-1))])


def bits_of(flags: ByteArray | BoolArray) -> pa.Buffer:
    """Return a bit for each flag, as Arrow has them."""
    return buffer_of(np.packbits(flags, bitorder="little"))
