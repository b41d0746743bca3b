"""The format of a column in tasks, wire format prefix and plan, and the encoding of the column by it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pyarrow as pa

from spark_producer.kernel import encode_avro, encode_protobuf
from spark_producer.kernel.arrays import ArrowArray, BytesArray
from spark_producer.kernel.avro import binary_array
from spark_producer.kernel.avro_columns import AvroNode, SchemaMismatchRows, avro_column, mismatched_rows
from spark_producer.kernel.protobuf_columns import protobuf_column
from spark_producer.kernel.protobuf_nodes import ProtobufNode
from spark_producer.schemas.header_writing import SchemaHeader
from spark_producer.schemas.wire_format import framed


class TextPlan(Protocol):
    """How a column is encoded as texts."""

    @property
    def form(self) -> str:
        """The name of the format in messages."""

    def encode(self, column: ArrowArray) -> tuple[ArrowArray | None, list[SchemaMismatchRows]]:
        """Return the column as texts, or None and the rows that do not fit."""


class ColumnFormat(NamedTuple):
    """The format of one column: the prefix of each value, and the plan of its encoding; None if it is bytes already.

    `header` is the header of each row with a value, in place of a prefix.
    """

    prefix: bytes
    node: AvroNode | ProtobufNode | TextPlan | None = None
    header: SchemaHeader | None = None

    @property
    def name(self) -> str:
        """The name of the format in messages."""
        if self.node is None or isinstance(self.node, AvroNode):
            return "Avro"
        return "Protobuf" if isinstance(self.node, ProtobufNode) else self.node.form


class Formats(NamedTuple):
    """The formats of a write's columns; None where bytes are sent as they are."""

    value: ColumnFormat | None = None
    key: ColumnFormat | None = None

    def items(self) -> list[tuple[str, ColumnFormat]]:
        """Return (column, format) of the columns that have one."""
        return [(name, each) for name, each in (("value", self.value), ("key", self.key)) if each is not None]


class Encoded(NamedTuple):
    """A column as bytes, or None if rows are `unfit` for their schema: then leave those rows out, and encode again."""

    column: BytesArray | None
    unfit: list[SchemaMismatchRows]


def encode_column(form: ColumnFormat, column: ArrowArray) -> Encoded:
    """Return a column encoded by its format, whose plan is for its type. A null row stays null, without a prefix."""
    if pa.types.is_null(column.type):
        return Encoded(pa.nulls(len(column), pa.binary()), [])
    if form.node is None:
        return Encoded(framed(column, form.prefix), [])
    node = form.node
    if not isinstance(node, AvroNode | ProtobufNode):
        texts, unfit = node.encode(column)
        return Encoded(None if texts is None else framed(texts, form.prefix), unfit)
    values = protobuf_column(node, column) if isinstance(node, ProtobufNode) else avro_column(node, column)
    unfit = mismatched_rows(values)
    if unfit:
        return Encoded(None, unfit)
    if isinstance(node, ProtobufNode):
        return Encoded(binary_array(*encode_protobuf(node, values, form.prefix), values.valid), [])
    return Encoded(binary_array(*encode_avro(values, form.prefix), values.valid), [])
