"""A column for the Avro encoders: its plan, made before any row is read, and its values in numpy.

A plan describes how values of an Arrow type become values of an Avro schema. This module does not read schemas: the plan was
checked against the schema and the column's type.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from spark_producer.kernel.arrays import BoolArray, ByteArray, Int64Array

NO_MARK = -1
"""The mark of a branch that a union does not have, or of a value outside a union."""


class ArrowLayout(enum.IntEnum):
    """The Arrow layout that a value of a plan is read from."""

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
    RAW = 11
    UUID_TEXT = 12
    UUID_BYTES = 13
    BIG_DECIMAL = 14
    DURATION = 15
    CONSTANT = 16
    UNION = 17


class AvroNode(NamedTuple):
    """One value of a plan.

    Attributes:
        shape: How the value is read.
        path: The name of its field in messages: `value.legs[].carrier`. It is escaped and truncated.
        null_mark, value_mark: The byte that a union writes before null, and before a value; `NO_MARK` if there is none.
        children: The fields of a record, the item of an array, the key and value of a map, or the branches of a union,
            nearest type first; each value gets one of them.
        names: The field of the Arrow struct for each child of a record; None for a constant, which the struct does not have.
        symbols: The symbols of an enumeration.
        divisor, low, high, factor: A number is divided by `divisor`, must be between `low` and `high`, and is multiplied by
            `factor`: for times in another unit than the column's, and for the range of a logical type.
        width: The bytes of a fixed decimal or value, or 0.
        scale: The scale of a big decimal.
        constant: The bytes of every value; the column is not read.
        reason: The reason why values do not match the schema, if the shape alone does not give it. A constant with a reason never
            matches.
    """

    shape: ArrowLayout
    path: str
    null_mark: int = NO_MARK
    value_mark: int = NO_MARK
    children: tuple[AvroNode, ...] = ()
    names: tuple[str | None, ...] = ()
    symbols: tuple[str, ...] = ()
    divisor: int = 1
    low: int | None = None
    high: int | None = None
    factor: int = 1
    width: int = 0
    scale: int = 0
    constant: bytes = b""
    reason: str = ""


class NodeKind(enum.IntEnum):
    """The kinds of columns of the encoders. A map is an array of records of key and value, and encodes to the same bytes."""

    VARINT = 0
    FIXED = 1
    BYTES = 2
    RAW = 3
    CONSTANT = 4
    RECORD = 5
    ARRAY = 6
    UNION = 7


class SchemaMismatch(NamedTuple):
    """Values that do not match their schema, and the reason."""

    mask: BoolArray
    reason: str


class AvroColumn(NamedTuple):
    """The values of one node, `length` of them.

    `valid` is None when no value is null. `longs` has the numbers of VARINT, and for each value of UNION its child. `data` has
    the bytes of FIXED, `width` for each value; of BYTES and RAW, which are encoded with and without their length, at `offsets`
    (length + 1); and of CONSTANT, the same for every value. The `offsets` of ARRAY index its only child. The children of RECORD
    and UNION have its length. `mismatches` are the values that cannot be encoded; some may be below a null.
    """

    kind: NodeKind
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
    mismatches: tuple[SchemaMismatch, ...]

    def refusing(self, bad: BoolArray, reason: str) -> AvroColumn:
        """Return the column with the non-null values in `bad` marked as mismatched."""
        if self.valid is not None:
            bad = bad & self.valid
        return self._replace(mismatches=(*self.mismatches, SchemaMismatch(bad, reason))) if bad.any() else self


NO_BYTES: ByteArray = np.zeros(0, dtype=np.uint8)
NO_LONGS: Int64Array = np.zeros(0, dtype=np.int64)


def empty_column(
    kind: NodeKind, length: int, path: str, valid: BoolArray | None = None, node: AvroNode | None = None
) -> AvroColumn:
    """Return a column without values yet, with the marks of `node`, if given."""
    marks = (NO_MARK, NO_MARK) if node is None else (node.null_mark, node.value_mark)
    return AvroColumn(kind, length, path, valid, *marks, NO_LONGS, NO_BYTES, NO_LONGS, 0, (), ())
