"""Columns of all types are valid JSON by their schema, and come back as they were."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.schemas.json_schema import parsing
from spark_producer.schemas.json_schema.derived_schema import json_schema
from tests.unit.schemas.json_schema.judging import PLAIN, columns, of, read, values, written

pytestmark = pytest.mark.covers("JS1", "JS2")


@given(columns())
@settings(max_examples=60, deadline=None)
def test_a_column_comes_back_through_its_derived_schema(column: Any) -> None:
    schema = json_schema(column.type, "value")
    jsonschema.Draft7Validator.check_schema(schema)
    found = read(schema, written(column))
    assert found.first is None
    assert values(found.values) == values(column)
    sliced = column.slice(1)
    assert written(sliced) == written(column)[1:]


@pytest.mark.parametrize(("kind", "drawn"), PLAIN, ids=lambda each: str(each)[:20])
def test_many_values_of_one_type_come_back(kind: Any, drawn: Any) -> None:
    @given(st.lists(drawn, min_size=parsing.FEW_ROWS + 1, max_size=parsing.FEW_ROWS + 9))
    @settings(max_examples=10, deadline=None)
    def check(items: list[Any]) -> None:
        column = pa.array([{"a": each} for each in items], pa.struct([pa.field("a", kind)]))
        found = read(json_schema(column.type, "value"), written(column))
        assert (found.first, values(found.values)) == (None, values(column))

    check()


def test_nulls_are_left_out_or_written_as_the_schema_says() -> None:
    column = pa.array([{"a": None, "b": None, "c": [{"d": None}]}], pa.struct([
        ("a", pa.int64()), ("b", pa.int64()), ("c", pa.list_(pa.struct([("d", pa.string())]))),
    ]))  # fmt: skip
    assert written(column) == ['{"c":[{}]}']
    null, number = {"type": "null"}, {"type": "integer"}
    inner = of(d={"type": ["string", "null"]}) | {"required": ["d"]}
    schema = of(a={"anyOf": [number, null]}, b=number, c={"type": "array", "items": inner}) | {"required": ["a"]}
    assert written(column, schema) == ['{"a":null,"c":[{"d":null}]}']


def test_types_that_become_text_are_written() -> None:
    kind = pa.struct([("n", pa.null()), ("i", pa.duration("us")), ("t", pa.time64("ns"))])
    column = pa.array([{"n": None, "i": 1_000_000, "t": 5}], kind)
    assert written(column) == ['{"i":"INTERVAL \'0 00:00:01\' DAY TO SECOND","t":"00:00:00.000000005"}']


@given(columns(), st.data())
@settings(max_examples=40, deadline=None)
def test_damaged_texts_are_read_alike_one_by_one_and_together(column: Any, data: st.DataObject) -> None:
    """Arrow's reader and Python's agree about every text, whatever texts are beside it."""
    schema = json_schema(column.type, "value")
    texts: list[bytes | str | None] = []
    for each in written(column):
        content = b"" if each is None else each.encode()
        if content and data.draw(st.booleans()):
            at, new = data.draw(st.integers(0, len(content))), data.draw(st.sampled_from(_DAMAGES))
            content = content[:at] + new + content[at + data.draw(st.integers(0, 2)) :]
        texts.append(None if each is None else content)
    texts *= 3
    together = read(schema, texts)
    alone = [read(schema, [each]) for each in texts]
    assert values(together.values) == [values(each.values)[0] for each in alone]
    assert together.bad_rows == sum(each.bad_rows for each in alone)
    for text, one in zip(texts, alone, strict=True):
        if text is not None and not one.bad_rows:
            json.loads(text)  # what is read is JSON


_DAMAGES = [
    b"",
    b"}",
    b"{",
    b'"',
    b",",
    b"\n",
    b"\x00",
    b"\xff",
    b"1",
    b"-",
    b".",
    b"e9",
    b"NaN",
    b"null",
    b'"a":1,',
    b" ",
    b"\\",
    b"}{",
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1.5", Decimal("1.50")), ("123", None), ("10", None), ("9.99", Decimal("9.99")), ("-10", None), ("1.005", None),
        ("0.000", Decimal(0)), ("1e1", None), ("1e-2", Decimal("0.01")), ('"+1"', Decimal(1)), ('".5"', Decimal("0.5")),
        ('"5."', Decimal(5)), ('" 1"', None), ('"1e0"', Decimal(1)), ('"NaN"', None), ('""', None),
    ],
)  # fmt: skip
def test_decimals_have_the_digits_of_their_type_among_few_rows_and_many(text: str, found: Decimal | None) -> None:
    schema = json_schema(pa.struct([("a", pa.decimal128(3, 2))]), "value")
    for rows in (1, parsing.FEW_ROWS + 1):
        column = read(schema, [f'{{"a":{text}}}'] * rows)
        assert column.values.to_pylist() == [None if found is None else {"a": found}] * rows
