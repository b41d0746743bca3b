"""Columns of Avro decoded, with fastavro as the judge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schemas.avro_schemas import evolved, read_by_fastavro, records, schemas, written
from tests.unit.schemas.decoding import decode


@pytest.mark.covers("RD19")
@pytest.mark.slow
@settings(max_examples=500)
@given(st.data(), records() | schemas())
def test_values_are_those_of_fastavro(data: st.DataObject, case: Any) -> None:
    schema, values = case
    rows = written(schema, data.draw(st.lists(values, max_size=6)))
    found = decode(schema, list(rows))
    assert found.rows == [read_by_fastavro(schema, row, schema) for row in rows]
    assert found.bad == 0


@pytest.mark.covers("RD19")
@pytest.mark.slow
@settings(max_examples=800)
@given(st.data(), records())
def test_values_read_by_another_schema_are_those_of_fastavro(data: st.DataObject, case: Any) -> None:
    schema, values = case
    reader = data.draw(evolved(schema))
    rows = written(schema, data.draw(st.lists(values, max_size=6)))
    found = decode(schema, list(rows), reader)
    assert found.rows == [read_by_fastavro(schema, row, reader) for row in rows]
    assert found.bad == 0
