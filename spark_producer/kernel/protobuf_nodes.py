"""The plan by which a column is encoded as Protobuf: how each value is read from Arrow, and how it is written.

A plan is made from descriptors before any row is read (`schemas/protobuf/plan.py`). This module does not read descriptors.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from spark_producer.kernel.avro_nodes import AvroNode


class Source(enum.Enum):
    """What a value of a plan is read from."""

    SCALAR = "a number, text or bytes"
    UNSIGNED = "a decimal of up to 64 bits without a sign"
    ENUM = "the name or number of a symbol"
    STRUCT = "a struct"
    WRAPPED = "the value of a message with one field"
    TIMESTAMP = "a time in microseconds"
    DURATION = "a duration in microseconds"
    LIST = "an array"
    MAP = "a map"
    NOTHING = "a column of nulls"


class Wrapping(enum.IntEnum):
    """What surrounds the content of a message or of a packed list: nothing, its length, or the tags of a group."""

    NOTHING = 0
    LENGTH = 1
    GROUP = 2


class Oneof(NamedTuple):
    """A oneof: the positions of its fields among a message's, and the reason for rows with several of them."""

    members: tuple[int, ...]
    reason: str


class ProtobufNode(NamedTuple):
    """One value of a plan.

    Attributes:
        source: What it is read from.
        path: The name of its field in messages: `value.legs[].carrier`. It is escaped and truncated.
        tag: Its number and wire type; 0 for a row, for an item of a packed list, and for a list of items that have tags.
        wrapping: What surrounds it.
        scalar: How a scalar is read.
        width: The bytes of a number of fixed width; 0 for varints.
        zigzag: Whether a varint is zigzag.
        implicit: Whether a value that is the default of its type is not written.
        null_reason: Why a null cannot be written; empty if it is an absent field.
        children: The fields of a message in the order of their numbers, the item of a list, or the entry of a map.
        names: For each field of a message the column's field that it is read from.
        oneofs: The oneofs of a message that have several fields.
        symbols: The names of an enum with their numbers.
        closed: Whether the enum has no other numbers.
    """

    source: Source
    path: str
    tag: int = 0
    wrapping: Wrapping = Wrapping.NOTHING
    scalar: AvroNode | None = None
    width: int = 0
    zigzag: bool = False
    implicit: bool = False
    null_reason: str = ""
    children: tuple[ProtobufNode, ...] = ()
    names: tuple[str, ...] = ()
    oneofs: tuple[Oneof, ...] = ()
    symbols: tuple[tuple[str, int], ...] = ()
    closed: bool = False
