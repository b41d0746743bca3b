"""The program by which Avro values are decoded: what each value of the writer's schema does, and the columns that it fills.

A program is made from two schemas before any row is read (`schemas/resolution.py`). This module does not read schemas.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, ByteArray

NO_COLUMN = -1
"""The column of a value that the reader's schema does not have: it is skipped."""

NO_SYMBOL = -1
"""The index of a symbol that the reader's enum does not have."""

MAX_NESTING = 64
"""Maximum depth of records, arrays and maps in a value: the limit of schemas that refer to themselves."""

ITEMS_WITHOUT_BYTES = 1000
"""Maximum items of one row beyond the number of its bytes: nulls and empty records, which have none."""


class OpCode(enum.IntEnum):
    """What is done with the next value of a row. A map is an ARRAY whose items are a key and a value."""

    NULL = 0
    INT = 1
    LONG = 2
    FLOAT = 3
    DOUBLE = 4
    BOOLEAN = 5
    BYTES = 6
    FIXED = 7
    ENUM = 8
    RECORD = 9
    ARRAY = 10
    UNION = 11
    MEMBER = 12
    ABSENT = 13
    DEFAULT = 14
    FAIL = 15


class Op(NamedTuple):
    """One value of the writer's schema. Every op adds exactly one value to its column, if it has one.

    Attributes:
        code: What is done.
        column: The number of the column that is filled, or `NO_COLUMN`; UNION has none.
        width: Of FIXED, the number of bytes. Of MEMBER, the number of the field that is filled; the others become null.
        factor, divisor: INT and LONG are divided, rounding down, and multiplied: times in another unit.
        children: The numbers of further ops: the fields of RECORD, the item of ARRAY or the key and value of a map, the
            branches of UNION, the value of MEMBER and DEFAULT. For ENUM the reader's number of each symbol.
        constant: The bytes that the value of DEFAULT is decoded from: a field that the writer's schema lacks.
        path: The name of the field in messages.
        reason: The reason of FAIL, and of a symbol that the reader does not have.
    """

    code: OpCode
    column: int = NO_COLUMN
    width: int = 0
    factor: int = 1
    divisor: int = 1
    children: tuple[int, ...] = ()
    constant: bytes = b""
    path: str = ""
    reason: str = ""


class Storage(enum.IntEnum):
    """How the values of a column are stored while rows are decoded."""

    NOTHING = 0
    LONG = 1
    FLOAT = 2
    DOUBLE = 3
    BOOLEAN = 4
    BYTES = 5
    RECORD = 6
    ARRAY = 7


ITEM_TYPES: dict[Storage, np.dtype[Any]] = {
    Storage.NOTHING: np.dtype(np.uint8),
    Storage.LONG: np.dtype(np.int64),
    Storage.FLOAT: np.dtype("<f4"),
    Storage.DOUBLE: np.dtype("<f8"),
    Storage.BOOLEAN: np.dtype(np.uint8),
    Storage.BYTES: np.dtype(np.int32),
    Storage.RECORD: np.dtype(np.uint8),
    Storage.ARRAY: np.dtype(np.int32),
}
"""The items of `RawColumn.values`; those of BYTES and ARRAY are offsets."""


class ColumnPlan(NamedTuple):
    """One column of the result.

    Attributes:
        storage: How its values are stored.
        kind: Its Arrow type.
        path: The name of its field in messages.
        nullable: Whether each value has a mark of validity.
        children: The numbers of the columns of a struct, of a list's items, or of a map's keys and values.
        symbols: The texts of an enum's numbers.
        packed_uuid: Whether the values are the 16 bytes of UUIDs, which become text.
    """

    storage: Storage
    kind: pa.DataType
    path: str
    nullable: bool = False
    children: tuple[int, ...] = ()
    symbols: ArrowArray | None = None
    packed_uuid: bool = False


class Program(NamedTuple):
    """All ops, of which the one numbered `first` decodes a row, and all columns, of which the first is the result."""

    ops: tuple[Op, ...]
    first: int
    columns: tuple[ColumnPlan, ...]


class Reason(enum.IntEnum):
    """The reasons why a row cannot be decoded."""

    TRUNCATED = 1
    TRAILING = 2
    VARINT = 3
    NOT_INT = 4
    LENGTH = 5
    BRANCH = 6
    SYMBOL = 7
    NOT_BOOLEAN = 8
    ITEMS = 9
    NESTING = 10
    TIME = 11
    SCHEMA = 12


REASONS: dict[Reason, str] = {
    Reason.TRUNCATED: "it ends too early",
    Reason.TRAILING: "bytes follow it",
    Reason.VARINT: "a number has more than 64 bits",
    Reason.NOT_INT: "a number does not fit into 32 bits",
    Reason.LENGTH: "a length is negative",
    Reason.BRANCH: "its union has no such branch",
    Reason.SYMBOL: "its enum has no such symbol",
    Reason.NOT_BOOLEAN: "a boolean is neither 0 nor 1",
    Reason.ITEMS: "it has more items than bytes",
    Reason.NESTING: f"it is nested too deeply: the maximum is {MAX_NESTING} records, arrays and maps",
    Reason.TIME: "64 bits do not hold the time in the reader's unit",
}
"""The text of each reason; SCHEMA has that of its op."""


class Failure(NamedTuple):
    """A row that cannot be decoded: its number among the decoded rows, the reason, the byte within the row, and the op."""

    row: int
    reason: int
    position: int
    op: int


class RawColumn(NamedTuple):
    """The decoded values of a column, `length` of them.

    `valid` has 1 for each value that is not null, and is None if the column is not nullable. `values` has the items of
    `ITEM_TYPES`; offsets are length + 1 and index into `data`, or the items of a list.
    """

    length: int
    valid: ByteArray | None
    values: npt.NDArray[Any]
    data: ByteArray


class StoredColumn(Protocol):
    """What a plan says of a column while rows are decoded."""

    @property
    def storage(self) -> Storage:
        """How its values are stored."""

    @property
    def nullable(self) -> bool:
        """Whether each value has a mark of validity."""


def raw_columns(plans: Sequence[StoredColumn], memory: Sequence[bytearray], lengths: Sequence[int]) -> list[RawColumn]:
    """Return columns over the memory of the compiled decoders: three bytearrays each, for `valid`, `values` and `data`."""
    found = []
    for number, (plan, length) in enumerate(zip(plans, lengths, strict=True)):
        flags, values, data = memory[3 * number : 3 * number + 3]
        valid = np.frombuffer(flags, np.uint8) if plan.nullable else None
        items = np.frombuffer(values, ITEM_TYPES[plan.storage])
        found.append(RawColumn(length, valid, items, np.frombuffer(data, np.uint8)))
    return found


MAX_OFFSET = (1 << 31) - 1
"""Maximum bytes or items of one column, since offsets have 32 bits."""

TOO_MUCH = "the values of one batch have more than 2 GiB. Decode fewer rows at a time"
"""The message of the OverflowError that both kernels raise."""
