"""A column for the Avro encoders: its plan, made before any row is read, and its values in numpy.

A plan says how values of an Arrow type become values of an Avro schema. Nothing here looks at a schema: the plan was checked
against it, and against the column's type.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from spark_producer.kernel.arrays import BoolArray, ByteArray, Int64Array

NO_MARK = -1
"""The mark of a branch that a union lacks, or of a value outside a union."""


class ArrowLayout(enum.IntEnum):
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
        shape: How it is read.
        path: Its field, as messages name it: `value.legs[].carrier`. It is escaped and cut.
        null_mark, value_mark: The byte that a union writes before null, and before a value; `NO_MARK` if there is none.
        children: The fields of a record, the item of an array, the key and value of a map, the branches of a union among which
            each value chooses, the nearest first.
        names: The field of the Arrow struct for each child of a record; None for a constant, which the struct does not have.
        symbols: The symbols of an enumeration.
        divisor, low, high, factor: A number is divided by the first, must lie between the next two, and is multiplied by the
            last: times in another unit than the column's, and what a logical type allows.
        width: The bytes of a decimal or value that is fixed, or 0.
        scale: The scale of a big decimal.
        constant: The bytes of every value, whatever the column has.
        reason: Why values of a column that are no values of the schema are unfit, where the shape alone does not say it. A
            constant with a reason is always unfit.
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
    """Values that do not fit their schema, and the reason."""

    where: BoolArray
    reason: str


class AvroColumn(NamedTuple):
    """The values of one node, `length` of them.

    `valid` is None when no value is null. `longs` has the numbers of VARINT, and for each value of UNION its child. `data` has
    the bytes of FIXED, `width` for each value; of BYTES and RAW, to which `offsets` (length + 1) leads, with and without the
    length before them; and of CONSTANT, which are those of every value. The `offsets` of ARRAY lead into its one child. The
    children of RECORD and UNION are as long as it is. `unfit` says which values cannot be encoded; it does not regard whether
    the row has this value at all.
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
    unfit: tuple[SchemaMismatch, ...]

    def refusing(self, bad: BoolArray, reason: str) -> AvroColumn:
        """Return the column with the non-null values in `bad` marked as unfit."""
        if self.valid is not None:
            bad = bad & self.valid
        return self._replace(unfit=(*self.unfit, SchemaMismatch(bad, reason))) if bad.any() else self


NO_BYTES: ByteArray = np.zeros(0, dtype=np.uint8)
NO_LONGS: Int64Array = np.zeros(0, dtype=np.int64)


def empty_column(
    kind: NodeKind, length: int, path: str, valid: BoolArray | None = None, node: AvroNode | None = None
) -> AvroColumn:
    """Return a column without values yet; its marks are those of `node`, if there is one."""
    marks = (NO_MARK, NO_MARK) if node is None else (node.null_mark, node.value_mark)
    return AvroColumn(kind, length, path, valid, *marks, NO_LONGS, NO_BYTES, NO_LONGS, 0, (), ())
