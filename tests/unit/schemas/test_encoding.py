from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.kernel import avro as portable
from spark_producer.kernel.avro_columns import avro_column, unfit_rows
from spark_producer.schemas.plan import plan_of
from spark_producer.schemas.types import avro_schema
from tests.unit.schemas.avro_values import as_arrow, by_fastavro, columns

PREFIX = b"\x00\x00\x00\x01\x02"


def encoded(kernel: Any, schema: Any, array: pa.Array[Any], prefix: bytes = PREFIX) -> list[Any]:
    column = avro_column(plan_of(schema, array.type, "value"), array)
    offsets, data = kernel.encode_avro(column, prefix)
    found = portable.binary_array(offsets, data, column.valid)
    found.validate(full=True)
    return found.to_pylist()


@pytest.fixture(scope="module", params=["portable", "compiled"])
def kernel(request: pytest.FixtureRequest) -> Any:
    name = "avro" if request.param == "portable" else "compiled_avro"
    return importlib.import_module(f"spark_producer.kernel.{name}")


@given(st.data(), columns())
def test_com9_bytes_are_those_of_fastavro(
    kernel: Any, data: st.DataObject, case: tuple[pa.DataType, list[Any]]
) -> None:
    kind, rows = case
    schema = avro_schema(kind, "value")
    first = data.draw(st.integers(0, len(rows)))
    last = data.draw(st.integers(first, len(rows)))
    array = as_arrow(kind, rows)[first:last]
    assert encoded(kernel, schema, array) == by_fastavro(schema, rows[first:last], PREFIX)


def test_an_enum_of_bytes_that_are_no_text_is_unfit() -> None:
    node = plan_of({"type": "enum", "name": "e", "symbols": ["x"]}, pa.string(), "value")
    column = pa.array([b"x", b"\xff"]).view(pa.string())
    assert unfit_rows(avro_column(node, column))[0].rows.tolist() == [1]
