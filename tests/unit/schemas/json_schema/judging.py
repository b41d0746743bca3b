"""Columns that are written as JSON and read back, and types and values at random.

Owns: that what is written is valid by its schema, as `jsonschema` says. Must not know: which value a test expects.
"""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from spark_producer.schemas.json_schema.column_plan import json_plan
from spark_producer.schemas.json_schema.column_reader import json_schema_reader
from spark_producer.schemas.json_schema.derived_schema import json_schema
from spark_producer.schemas.json_schema.encoding import encode_json
from spark_producer.schemas.wire_format import prefix_of

FRAME = prefix_of(7)

_DAYS = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
_MOMENTS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
_FINITE = {"allow_nan": False, "allow_infinity": False}


def _fraction(number: int) -> decimal.Decimal:
    """A decimal of 38 digits, all of them after the point."""
    return decimal.Decimal(number).scaleb(-38, decimal.Context(prec=60))


PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(1 << 7), (1 << 7) - 1)),
    (pa.int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
    (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.float32(), st.floats(width=32, **_FINITE)),
    (pa.float64(), st.floats(**_FINITE)),  # type: ignore[arg-type]
    (pa.string(), st.text()),
    (pa.binary(), st.binary()),
    (pa.date32(), _DAYS),
    (pa.timestamp("us", "UTC"), _MOMENTS.map(lambda each: each.replace(tzinfo=datetime.UTC))),
    (pa.timestamp("us"), _MOMENTS),
    (pa.decimal128(10, 2), st.decimals(-(10**7), 10**7, places=2)),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(decimal.Decimal)),
    (
        pa.decimal128(38, 38),
        st.integers(-(10**38) + 1, 10**38 - 1).map(_fraction),
    ),
]
"""Types whose values come back as they were."""


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 0) -> Any:
    """A type, and a strategy of its values."""
    if depth == 3 or (depth and draw(st.booleans())):
        return draw(st.sampled_from(PLAIN))
    form = draw(st.sampled_from(("struct", "list", "map"))) if depth else "struct"
    kind, values = draw(typed_values(depth + 1))
    nullable = draw(st.booleans())
    if form == "list":
        found = pa.list_(pa.field("element", kind, nullable))
        return found, st.lists(st.none() | values if nullable else values, max_size=3)
    if form == "map":
        field: Any = pa.field("value", kind, nullable)
        inner = st.none() | values if nullable else values
        return pa.map_(pa.string(), field), st.dictionaries(st.text(), inner, max_size=3).map(
            lambda each: list(each.items())
        )
    letters = st.characters(codec="utf-8", categories=("L", "N"))
    names = draw(
        st.lists(
            st.text(letters, min_size=1),
            min_size=1,
            max_size=4,
            unique=True,
        )
    )
    fields, parts = [], {}
    for name in names:
        kind, values = draw(typed_values(depth + 1))
        nullable = draw(st.booleans())
        fields.append(pa.field(name, kind, nullable))
        parts[name] = st.none() | values if nullable else values
    return pa.struct(fields), st.fixed_dictionaries(parts)


@st.composite
def columns(draw: st.DrawFn) -> Any:
    """A struct column."""
    kind, values = draw(typed_values())
    return pa.array(draw(st.lists(st.none() | values, max_size=80)), kind)


def written(column: Any, schema: Any = None) -> list[Any]:
    """Write a column by a schema, or by that which follows from it, and show the texts to `jsonschema`."""
    text = json.dumps(json_schema(column.type, "value", "T") if schema is None else schema)
    found: Any
    found, unfit = encode_json(json_plan(text, column.type, "value"), column)
    assert unfit == []
    judge = jsonschema.Draft7Validator(json.loads(text))
    texts: list[Any] = found.to_pylist()
    for each in texts:
        if each is not None:
            judge.validate(json.loads(each))
    return texts


def read(schema: Any, texts: list[bytes | str | None], *, validate: bool = False, headless: bool = False) -> Any:
    """Read texts in frames."""
    reader = json_schema_reader("value", json.dumps(schema), "PERMISSIVE", {}, None, validate=validate)
    contents = [each.encode() if isinstance(each, str) else each for each in texts]
    frame = b"" if headless else FRAME
    found = reader.decoder().decode(
        pa.array([None if each is None else frame + each for each in contents], pa.binary())
    )
    found.values.validate(full=True)
    assert found.values.type == reader.decoder().kind
    return found


def reasons(schema: Any, *texts: bytes | str, validate: bool = False) -> list[str | None]:
    """Why each of some texts cannot be read; None if it can be."""
    found = []
    for each in texts:
        one = read(schema, [each], validate=validate)
        assert one.bad_rows == (one.first is not None)
        found.append(one.first.reason if one.first else None)
    return found


def of(**properties: Any) -> dict[str, Any]:
    """An object's schema."""
    return {"type": "object", "properties": properties}


def values(column: Any) -> list[Any]:
    """The values of a column, floats as bits, since 0.0 equals -0.0."""
    return [_with_bits(each) for each in column.to_pylist()]


def _with_bits(value: Any) -> Any:
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, dict):
        return {name: _with_bits(each) for name, each in value.items()}
    return type(value)(map(_with_bits, value)) if isinstance(value, list | tuple) else value
