"""Columns encoded by both kernels, and read back by fastavro.

Owns: that the kernels agree, byte for byte. Must not know: which value a test expects.
"""

from __future__ import annotations

import io
import json
import pickle
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa

from spark_producer.kernel import avro, compiled_avro
from spark_producer.kernel.avro_columns import avro_column, mismatched_rows
from spark_producer.schemas.plan import plan_of


class Encoded(NamedTuple):
    """The bytes of each row that fits, and field and reason by the row of each that does not."""

    rows: list[bytes | None]
    unfit: dict[int, tuple[str, str]]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record's schema, of fields that are pairs of name and type, or whole."""
    whole = [each if isinstance(each, dict) else {"name": each[0], "type": each[1]} for each in fields]
    return {"type": "record", "name": name, "fields": whole} | more


def structs(**columns: Any) -> Any:
    """A struct column of these columns, which are arrays."""
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def encoded(schema: Any, array: Any, *, fill: bool = False) -> Encoded:
    """Encode a column, without the rows that do not fit, by a plan that has travelled to a task."""
    node = pickle.loads(pickle.dumps(plan_of(schema, array.type, "value", fill=fill)))
    unfit = {
        row: (each.path, each.reason)
        for each in mismatched_rows(avro_column(node, array))
        for row in each.rows.tolist()
    }
    fit = array.take(pa.array([row for row in range(len(array)) if row not in unfit], pa.int64()))
    column = avro_column(node, fit)
    assert mismatched_rows(column) == []
    both = []
    for kernel in (avro, compiled_avro):
        offsets, data = kernel.encode_avro(column, b"\x07")
        found = avro.binary_array(offsets, data, column.valid)
        found.validate(full=True)
        both.append([None if row is None else row.removeprefix(b"\x07") for row in found.to_pylist()])
    assert both[0] == both[1]
    return Encoded(both[0], unfit)


def read(schema: Any, rows: list[bytes | None], *, branches: bool = False) -> list[Any]:
    """Read rows as fastavro does. With `branches`, a record or enum of a union comes with the name of its branch."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found = []
    for row in rows:
        if row is not None:
            content = io.BytesIO(row)
            found.append(fastavro.schemaless_reader(content, parsed, None, return_record_name=branches))
            assert content.read() == b""
        else:
            found.append(None)
    return found
