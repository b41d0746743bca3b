"""What tasks know of a column's format: the frame and the plan; and the step that turns the column into bytes."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from spark_producer.kernel import encode_avro
from spark_producer.kernel.arrays import ArrowArray, BytesArray
from spark_producer.kernel.avro import binary_array
from spark_producer.kernel.avro_columns import AvroNode, SchemaMismatchRows, avro_column, mismatched_rows
from spark_producer.schemas.wire_format import framed


class ColumnFormat(NamedTuple):
    """The format of one column: what stands before each value, and how it is encoded; `node` None: it is bytes already."""

    prefix: bytes
    node: AvroNode | None = None


class Formats(NamedTuple):
    """The formats of a write's columns; None where bytes go out as they are."""

    value: ColumnFormat | None = None
    key: ColumnFormat | None = None

    def items(self) -> list[tuple[str, ColumnFormat]]:
        """Return (column, format) of the columns that have one."""
        return [(name, each) for name, each in (("value", self.value), ("key", self.key)) if each is not None]


class Encoded(NamedTuple):
    """A column as bytes. If rows are `unfit` for their schema, there are no bytes: leave those rows out, and encode again."""

    column: BytesArray | None
    unfit: list[SchemaMismatchRows]


def encode_column(form: ColumnFormat, column: ArrowArray) -> Encoded:
    """Encode a column whose type is the one that its plan was made for. A null row stays null, without a frame."""
    if pa.types.is_null(column.type):
        return Encoded(pa.nulls(len(column), pa.binary()), [])
    if form.node is None:
        return Encoded(framed(column, form.prefix), [])
    values = avro_column(form.node, column)
    unfit = mismatched_rows(values)
    if unfit:
        return Encoded(None, unfit)
    return Encoded(binary_array(*encode_avro(values, form.prefix), values.valid), [])
