"""Columns of Protobuf encoded by both kernels.

Owns: that the kernels agree. Must not know: which bytes a test expects.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from spark_producer.kernel import compiled_protobuf, protobuf_encode
from spark_producer.schemas import column_format
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_of
from spark_producer.schemas.protobuf.plan import plan_of
from tests.unit.schemas.protobuf.judging import HEAD


def encode_by_both(node: Any, column: Any, prefix: bytes) -> Any:
    """Return the compiled kernel's result, after a comparison with the portable one."""
    offsets, data = compiled_protobuf.encode_protobuf(node, column, prefix)
    others, other_data = protobuf_encode.encode_protobuf(node, column, prefix)
    assert offsets.tolist() == others.tolist()
    assert data.tobytes() == other_data.tobytes()
    return offsets, data


def encode(message: Any, array: Any, *, fill: bool = False) -> list[bytes | None]:
    """Encode a column by both kernels, and return each row's message; every row must fit."""
    form = ColumnFormat(HEAD, plan_of(message, array.type, "value", fill=fill))
    with mock.patch.object(column_format, "encode_protobuf", encode_by_both):
        column, unfit = encode_column(form, array)
    assert not unfit
    assert column is not None
    column.validate(full=True)
    rows = column.to_pylist()
    assert all(each is None or each.startswith(HEAD) for each in rows)
    return [None if each is None else each[len(HEAD) :] for each in rows]


def reasons(message: Any, array: Any) -> list[tuple[str, str, list[int]]]:
    """Return the fields, reasons and rows that do not fit."""
    found = encode_column(ColumnFormat(HEAD, plan_of(message, array.type, "value")), array)
    return [(each.path, each.reason, each.rows.tolist()) for each in found.unfit]


def message(text: str, name: str | None = None) -> Any:
    """Return a message of the text of a schema."""
    return message_of(compiled(ProtobufSchema(text), "the schema"), name, "the schema")
