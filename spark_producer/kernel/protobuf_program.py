"""The program by which Protobuf values are decoded: the fields of each message, and the columns that they fill.

A program is made from descriptors before any row is read (`schemas/protobuf/message_types.py`). This module does not read
descriptors.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import pyarrow as pa

from spark_producer.kernel.avro_program import Storage

MAX_DEPTH = 100
"""Maximum depth of messages and groups in a value, as in Protobuf's own libraries."""

FREE_VALUES = 1_000_000
VALUES_PER_BYTE = 64
"""Maximum values of one row: `FREE_VALUES`, and this number for each of its bytes. An item of two bytes fills all columns of its
message, and two members of a oneof that take turns clear them, so that bytes of an attacker could take a thousandfold of their
memory or time."""

NO_MESSAGE = -1
"""The message of a field that has none."""


class WireType(enum.IntEnum):
    """How a field's end is found (Protobuf, Encoding)."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    START = 3
    END = 4
    FIXED32 = 5


class Form(enum.IntEnum):
    """How a field's value is written. An enum is an INT32; strings are BYTES."""

    INT32 = 0
    INT64 = 1
    UINT32 = 2
    SINT32 = 3
    SINT64 = 4
    BOOL = 5
    FIXED32 = 6
    SFIXED32 = 7
    FLOAT = 8
    FIXED64 = 9
    DOUBLE = 10
    BYTES = 11
    MESSAGE = 12
    GROUP = 13


WIRE_TYPES: dict[Form, WireType] = {
    **dict.fromkeys((Form.FIXED32, Form.SFIXED32, Form.FLOAT), WireType.FIXED32),
    **dict.fromkeys((Form.FIXED64, Form.DOUBLE), WireType.FIXED64),
    **dict.fromkeys((Form.BYTES, Form.MESSAGE), WireType.BYTES),
    Form.GROUP: WireType.START,
}
"""The wire type of each form; the others are varints."""


class Field(NamedTuple):
    """A field of a message. Fields that are not in the program are skipped.

    Attributes:
        number: Its number.
        form: How its value is written.
        column: The number of the column that it fills: that of its lists or maps if it is repeated.
        message: The number of its message, or `NO_MESSAGE`.
        repeated: Whether it is a list or a map, whose items are the children of its column.
        rivals: The columns of the other fields of its oneof, which become null.
        known: The numbers of a closed enum in ascending order; others are skipped. Empty for all other fields.
    """

    number: int
    form: Form
    column: int
    message: int = NO_MESSAGE
    repeated: bool = False
    rivals: tuple[int, ...] = ()
    known: tuple[int, ...] = ()


class Message(NamedTuple):
    """A message: its fields in ascending order of their numbers, and its column, which names it in errors."""

    fields: tuple[Field, ...]
    column: int


class Rendering(enum.Enum):
    """How the Arrow values of a column are made of what was decoded."""

    PLAIN = "plain"
    UNSIGNED = "a decimal of 64 bits without a sign"
    ENUM = "the name of a number"
    TIMESTAMP = "a time of the children seconds and nanoseconds"
    DURATION = "a duration of the children seconds and nanoseconds"
    WRAPPED = "the only child, null where the message is absent"


class ProtobufColumn(NamedTuple):
    """One column of the result.

    Attributes:
        storage: How its values are stored while rows are decoded.
        kind: Its Arrow type.
        path: The name of its field in messages.
        nullable: Whether each value has a mark of validity: the field was present.
        required: Whether a row without the field cannot be decoded.
        children: The numbers of the columns of a message's fields, of a list's items, or of a map's keys and values.
        default: The value of a field that is absent: the bytes of one of its items, or those of a string.
        rendering: How its Arrow values are made.
        names: The names of an enum by its numbers, in ascending order.
    """

    storage: Storage
    kind: pa.DataType
    path: str
    nullable: bool = False
    required: bool = False
    children: tuple[int, ...] = ()
    default: bytes = b""
    rendering: Rendering = Rendering.PLAIN
    names: tuple[tuple[int, str], ...] = ()


class ProtobufProgram(NamedTuple):
    """All messages, of which the first is a row, and all columns, of which the first is the result."""

    messages: tuple[Message, ...]
    columns: tuple[ProtobufColumn, ...]


class ProtobufReason(enum.IntEnum):
    """The reasons why the bytes of a row are no message."""

    TRUNCATED = 1
    VARINT = 2
    TAG = 3
    LENGTH = 4
    GROUP = 5
    NESTING = 6
    ITEMS = 7


PROTOBUF_REASONS: dict[ProtobufReason, str] = {
    ProtobufReason.TRUNCATED: "it ends too early",
    ProtobufReason.VARINT: "a number has more than ten bytes",
    ProtobufReason.TAG: "a field has no valid number or wire type",
    ProtobufReason.LENGTH: "a length does not fit into 31 bits",
    ProtobufReason.GROUP: "a group ends that did not begin",
    ProtobufReason.NESTING: f"it is nested too deeply: the maximum is {MAX_DEPTH} messages and groups",
    ProtobufReason.ITEMS: "its items, or the members of a oneof, have too many fields for so few bytes",
}
"""The text of each reason."""


def filled_values(columns: tuple[ProtobufColumn, ...]) -> list[int]:
    """Return, for each column, how many values an item of its list or map, or the message itself, begins with; texts of defaults
    count by eight bytes."""
    begun = [1 + (len(each.default) >> 3 if each.storage is Storage.BYTES else 0) for each in columns]
    below = [0] * len(columns)
    for number in reversed(range(len(columns))):  # children have greater numbers
        below[number] = sum(begun[child] for child in columns[number].children)
        if columns[number].storage is Storage.RECORD:
            begun[number] += below[number]
    return below
