"""Arrow columns as the Avro encoders take them: numbers, bytes and offsets in numpy, with the marks of unions beside them.

A plan says how values of an Arrow type become values of an Avro schema. Nothing here looks at a schema: the plan was checked
against it, and against the column's type, before any row came.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, BoolArray, ByteArray, Int64Array, is_valid, numbers, view_of
from spark_producer.kernel.views import BinaryColumn

NO_MARK = -1
"""The mark of a branch that a union does not have, or of a value that is in no union."""


class Shape(enum.IntEnum):
    """How a value of a plan is read from Arrow."""

    LONG = 0
    BOOLEAN = 1
    FLOAT = 2
    DOUBLE = 3
    BYTES = 4
    DECIMAL = 5
    ENUM = 6
    RECORD = 7
    ARRAY = 8
    MAP = 9
    TEXT = 10


class AvroNode(NamedTuple):
    """One value of a plan.

    Attributes:
        shape: How it is read.
        path: Its field, as messages name it: `value.legs[].carrier`.
        null_mark, value_mark: The byte that a union writes before null, and before a value; `NO_MARK` if there is none.
        children: The fields of a record, the item of an array, the key and value of a map.
        names: The field of the Arrow struct for each child of a record.
        symbols: The symbols of an enumeration.
        divisor: What a number is divided by, for times in a coarser unit than the column's.
        width: The bytes of a decimal that is fixed, or 0.
    """

    shape: Shape
    path: str
    null_mark: int = NO_MARK
    value_mark: int = NO_MARK
    children: tuple[AvroNode, ...] = ()
    names: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    divisor: int = 1
    width: int = 0


class Kind(enum.IntEnum):
    """What the encoders tell apart. A map is an array of records of key and value, and encodes to the same bytes."""

    VARINT = 0
    FIXED = 1
    BYTES = 2
    RECORD = 3
    ARRAY = 4


class Unfit(NamedTuple):
    """Values that their schema does not take: which, and why."""

    where: BoolArray
    reason: str


class AvroColumn(NamedTuple):
    """The values of one node, `length` of them.

    `valid` is None when no value is null. `longs` has the numbers of VARINT. `data` has the bytes of FIXED, `width` for each
    value, and of BYTES, to which `offsets` (length + 1) leads; the `offsets` of ARRAY lead into its one child. `unfit` says
    which values cannot be encoded; it does not regard whether the row has this value at all.
    """

    kind: Kind
    length: int
    path: str
    valid: BoolArray | None
    null_mark: int
    value_mark: int
    longs: Int64Array
    data: ByteArray
    offsets: Int64Array
    width: int
    children: tuple[AvroColumn, ...]
    unfit: tuple[Unfit, ...]


_BYTE = np.dtype(np.uint8)
_NO_BYTES: ByteArray = np.zeros(0, dtype=np.uint8)
_NO_LONGS: Int64Array = np.zeros(0, dtype=np.int64)
_WORDS = np.dtype("<u8")


def avro_column(node: AvroNode, array: ArrowArray, *, top: bool = True) -> AvroColumn:
    """Return the values of `array`, whose type is the one that `node` was planned for.

    The null of a `top` column is no value of the schema: its row has no bytes at all.
    """
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    valid = is_valid(array) if array.null_count else None
    refuses_null = valid is not None and node.null_mark == NO_MARK and not top
    unfit = (
        (Unfit(~valid, "it is null, and its schema does not take null"),) if valid is not None and refuses_null else ()
    )
    column = AvroColumn(
        Kind.VARINT,
        len(array),
        node.path,
        valid,
        node.null_mark,
        node.value_mark,
        _NO_LONGS,
        _NO_BYTES,
        _NO_LONGS,
        0,
        (),
        unfit,
    )
    return _READERS[node.shape](column, node, array)


def _longs(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    if not pa.types.is_integer(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    values = numbers(array).astype(np.int64, copy=False)
    return column._replace(longs=values if node.divisor == 1 else np.floor_divide(values, node.divisor))


def _booleans(column: AvroColumn, _: AvroNode, array: ArrowArray) -> AvroColumn:
    bits = array.buffers()[1]
    if bits is None or not len(array):
        return column._replace(kind=Kind.FIXED, width=1, data=np.zeros(len(array), dtype=np.uint8))
    flags = np.unpackbits(view_of(bits, _BYTE), count=array.offset + len(array), bitorder="little")
    return column._replace(kind=Kind.FIXED, width=1, data=flags[array.offset :])


def _floats(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    width = 4 if node.shape is Shape.FLOAT else 8
    if node.shape is Shape.DOUBLE and pa.types.is_float32(array.type):
        array = array.cast(pa.float64())
    data = array.buffers()[1]
    found = (
        view_of(data, _BYTE, width * len(array), width * array.offset) if data is not None and len(array) else _NO_BYTES
    )
    return column._replace(kind=Kind.FIXED, width=width, data=found)


def _bytes(column: AvroColumn, _: AvroNode, array: ArrowArray) -> AvroColumn:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    found = BinaryColumn(array.view(pa.large_binary() if large else pa.binary()))
    offsets = _checked(found.offsets.astype(np.int64, copy=False), len(found.data))
    return column._replace(kind=Kind.BYTES, data=found.data, offsets=offsets)


def _texts(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read strings, which Avro wants in UTF-8: Spark's may be any bytes, as a cast of binary does not look at them."""
    found = _bytes(column, node, array)
    data = found.data[found.offsets[0] : found.offsets[-1]]
    if not len(data) or data.max() < 0x80:  # nearly all are ASCII, which is seen many times faster
        return found
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        bad = np.fromiter((not _is_text(array[place]) for place in range(found.length)), np.bool_, found.length)
        more = (Unfit(bad, "it is not UTF-8"),) if bad.any() else ()
        return found._replace(unfit=found.unfit + more)
    return found


def _is_text(value: Any) -> bool:
    if value.is_valid:
        try:
            str(value.as_buffer(), "utf-8")
        except UnicodeDecodeError:
            return False
    return True


def _decimals(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read 128 bits, little-endian; write them big-endian, without the bytes that only repeat the sign, or in a fixed width."""
    data = array.buffers()[1]
    if data is None or not len(array):
        whole: ByteArray = np.zeros((len(array), 16), dtype=np.uint8)
    else:
        whole = view_of(data, _BYTE, 16 * len(array), 16 * array.offset).reshape(-1, 16)[:, ::-1]
    if column.valid is not None:
        whole = np.where(column.valid[:, None], whole, np.uint8(0))
    if node.width:
        return _fixed_decimals(column, whole, node.width)
    lengths = _decimal_lengths(whole)
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    kept = np.arange(16) >= 16 - lengths[:, None]
    return column._replace(kind=Kind.BYTES, data=whole[kept], offsets=offsets)


def _fixed_decimals(column: AvroColumn, whole: ByteArray, width: int) -> AvroColumn:
    """Give each number of 16 bytes `width` bytes. It fits if those that are left out only repeat the sign of those that stay."""
    unfit = column.unfit
    signs = np.where(whole[:, max(0, 16 - width)] >= 0x80, np.uint8(0xFF), np.uint8(0))[:, None]
    if width > 16:
        whole = np.concatenate((np.repeat(signs, width - 16, axis=1), whole), axis=1)
    else:
        wide = (whole[:, : 16 - width] != signs).any(axis=1)
        unfit += (Unfit(wide, f"the decimal does not fit into {width} bytes"),) if wide.any() else ()
    fixed = np.ascontiguousarray(whole[:, whole.shape[1] - width :]).reshape(-1)
    return column._replace(kind=Kind.FIXED, width=width, data=fixed, unfit=unfit)


def _decimal_lengths(whole: ByteArray) -> Int64Array:
    """Return the bytes that each number of 16 has, big-endian: those of its amount, and room for its sign.

    -128 so has two, like 128, as fastavro writes it; Java writes one. Readers take both.
    """
    negative = whole[:, 0] >= 0x80
    amount = np.where(negative[:, None], ~whole, whole)
    low, high = (np.ascontiguousarray(half[:, ::-1]).view(_WORDS)[:, 0] for half in (amount[:, 8:], amount[:, :8]))
    one = negative.astype(np.uint64)
    with np.errstate(over="ignore"):
        low = low + one
    high = high + (negative & (low == 0)).astype(np.uint64)
    digits = np.ones(len(whole), dtype=np.int64)
    for place in range(16):
        word, shift = (low, 8 * place + 7) if place < 8 else (high, 8 * place - 57)
        reaches = word >> np.uint64(shift) > 0
        if place < 8:
            reaches |= high > 0
        digits += reaches
    return np.minimum(digits, 16)


def _enums(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    encoded = array.dictionary_encode()
    index: dict[object, int] = {symbol.encode(errors="replace"): place for place, symbol in enumerate(node.symbols)}
    words = encoded.dictionary.cast(pa.large_binary()).to_pylist()  # a string of Spark's need not be UTF-8
    known = np.array([index.get(word, -1) for word in words] or [-1], dtype=np.int64)
    codes = known[numbers(encoded.indices, nulls=0)]
    unknown = codes < 0 if column.valid is None else (codes < 0) & column.valid
    more = (Unfit(unknown, f"it is none of the symbols {', '.join(node.symbols)}"),) if unknown.any() else ()
    return column._replace(longs=codes, unfit=column.unfit + more)


def _records(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    struct = cast("pa.StructArray", array)
    fields = [struct.field(struct.type.get_field_index(name)) for name in node.names]  # without the struct's own nulls
    children = tuple(avro_column(child, field, top=False) for child, field in zip(node.children, fields, strict=True))
    return column._replace(kind=Kind.RECORD, children=children)


def _arrays(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    offsets, first, last = _list_offsets(array)
    items = cast("Any", array).values.slice(first, last - first)
    child = avro_column(node.children[0], items, top=False)
    return column._replace(kind=Kind.ARRAY, offsets=_checked(offsets - first, child.length), children=(child,))


def _maps(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    offsets, first, last = _list_offsets(array)
    entries = cast("pa.MapArray[Any, Any]", array)
    sides = [side.slice(first, last - first) for side in (entries.keys, entries.items)]
    pair = tuple(avro_column(child, side, top=False) for child, side in zip(node.children, sides, strict=True))
    nothing = AvroColumn(
        Kind.RECORD, last - first, node.path, None, NO_MARK, NO_MARK, _NO_LONGS, _NO_BYTES, _NO_LONGS, 0, pair, ()
    )
    return column._replace(kind=Kind.ARRAY, offsets=_checked(offsets - first, nothing.length), children=(nothing,))


def _list_offsets(array: ArrowArray) -> tuple[Int64Array, int, int]:
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array) + 1, dtype=np.int64), 0, 0
    width: np.dtype[Any] = np.dtype(np.int64 if pa.types.is_large_list(array.type) else np.int32)
    found = view_of(data, width, len(array) + 1, array.offset * width.itemsize).astype(np.int64)
    return found, int(found[0]), int(found[-1])


def _checked(offsets: Int64Array, end: int) -> Int64Array:
    """Return offsets that the compiled encoder may follow."""
    if offsets[0] < 0 or offsets[-1] > end or bool((offsets[1:] < offsets[:-1]).any()):
        raise ValueError("the offsets of an Arrow array lead outside of its values")
    return np.ascontiguousarray(offsets)


_READERS = {
    Shape.LONG: _longs, Shape.BOOLEAN: _booleans, Shape.FLOAT: _floats, Shape.DOUBLE: _floats, Shape.BYTES: _bytes,
    Shape.DECIMAL: _decimals, Shape.ENUM: _enums, Shape.RECORD: _records, Shape.ARRAY: _arrays, Shape.MAP: _maps,
    Shape.TEXT: _texts,
}  # fmt: skip


class UnfitRows(NamedTuple):
    """Rows that cannot be encoded because of one field: positions in the column, ascending, each once."""

    path: str
    reason: str
    rows: npt.NDArray[np.int64]


def unfit_rows(column: AvroColumn) -> list[UnfitRows]:
    """Return the rows of a top column that cannot be encoded, by field. A value below a null counts for nothing."""
    return _unfit_below(column, column.valid, None) if _has_unfit(column) else []


def _has_unfit(column: AvroColumn) -> bool:
    return bool(column.unfit) or any(_has_unfit(child) for child in column.children)


def _unfit_below(column: AvroColumn, live: BoolArray | None, owners: Int64Array | None) -> list[UnfitRows]:
    """`live`: which values their rows have, apart from their own nulls; `owners`: the row of each; None: all, and the same."""
    found = []
    for where, reason in column.unfit:
        places = np.flatnonzero(where if live is None else where & live)
        if len(places):
            found.append(UnfitRows(column.path, reason, np.unique(places if owners is None else owners[places])))
    inner = _both(live, column.valid)
    if column.kind is Kind.ARRAY:
        counts = np.diff(column.offsets)
        owners = np.repeat(np.arange(column.length) if owners is None else owners, counts)
        inner = None if inner is None else np.repeat(inner, counts)
    return found + [each for child in column.children for each in _unfit_below(child, inner, owners)]


def _both(first: BoolArray | None, second: BoolArray | None) -> BoolArray | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second
