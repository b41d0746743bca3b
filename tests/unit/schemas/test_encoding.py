from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.kernel import avro as portable
from spark_producer.kernel.avro_columns import avro_column, mismatched_rows
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


@pytest.mark.covers("COM9")
@pytest.mark.slow
@given(st.data(), columns())
def test_bytes_are_those_of_fastavro(kernel: Any, data: st.DataObject, case: tuple[pa.DataType, list[Any]]) -> None:
    kind, rows = case
    schema = avro_schema(kind, "value")
    first = data.draw(st.integers(0, len(rows)))
    last = data.draw(st.integers(first, len(rows)))
    array = as_arrow(kind, rows)[first:last]
    assert encoded(kernel, schema, array) == by_fastavro(schema, rows[first:last], PREFIX)


def test_an_enum_of_bytes_that_are_no_text_is_unfit() -> None:
    node = plan_of({"type": "enum", "name": "e", "symbols": ["x"]}, pa.string(), "value")
    column = pa.array([b"x", b"\xff"]).view(pa.string())
    assert mismatched_rows(avro_column(node, column))[0].rows.tolist() == [1]


@pytest.mark.covers("COM9")
def test_bytes_that_end_with_their_buffer_and_numbers_of_all_lengths(kernel: Any) -> None:
    """Short values are copied 8 bytes at a time; the surplus bytes are overwritten by the next value, or cut off at the end."""
    numbers = [sign * (1 << bits) + step for bits in range(63) for sign in (1, -1) for step in (-1, 0)]
    numbers += [2**63 - 1, -(2**63)]
    rows = [{"n": number, "t": "x" * (place % 20)} for place, number in enumerate(numbers)]
    kind = pa.struct([pa.field("n", pa.int64(), False), pa.field("t", pa.string(), False)])
    schema = avro_schema(kind, "value")
    for count in (1, 2, 17, len(rows)):
        for prefix in (b"", b"\x00" * 5, b"\x01" * 40):
            assert encoded(kernel, schema, as_arrow(kind, rows[-count:]), prefix) == by_fastavro(
                schema, rows[-count:], prefix
            )


@pytest.mark.covers("COM9")
def test_a_column_of_nulls_holds_little_memory(kernel: Any) -> None:
    kind = pa.struct([("n", pa.int64()), ("t", pa.string())])
    array = as_arrow(kind, [{"n": None, "t": None}] * 9999 + [{"n": 2**62, "t": "x" * 100_000}])
    column = avro_column(plan_of(avro_schema(kind, "value"), kind, "value"), array)
    _, data = kernel.encode_avro(column, b"")
    owner = data if data.base is None else data.base
    assert owner.nbytes <= 2 * data.nbytes + (1 << 16) + 16
    nulls = as_arrow(kind, [{"n": None, "t": None}] * 99_999 + [{"n": 2**62, "t": None}])
    _, data = kernel.encode_avro(avro_column(plan_of(avro_schema(kind, "value"), kind, "value"), nulls), b"")
    owner = data if data.base is None else data.base
    assert owner.nbytes <= 2 * data.nbytes + (1 << 16) + 16


@pytest.mark.covers("COM9")
@pytest.mark.parametrize("rows", [[b"a", None], [None, b"a"], [b"a", None, None, b"b"], [None]])
def test_a_null_row_has_no_bytes_where_the_schema_itself_takes_null(kernel: Any, rows: list[bytes | None]) -> None:
    expected = [None if row is None else PREFIX + b"\x02\x02" + row for row in rows]
    assert encoded(kernel, ["null", "bytes"], pa.array(rows, pa.binary())) == expected
