"""Arbitrary Avro schemas with the Arrow type of each, and values for both; fastavro is the judge of their bytes."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

INSTANTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))


class Case(NamedTuple):
    """An Arrow type, and values of it as Python has them."""

    kind: pa.DataType
    values: st.SearchStrategy[Any]


def decimals(precision: int, scale: int) -> Case:
    most = 10**precision - 1
    edges = st.sampled_from(
        [e for e in (0, 127, 128, -128, -129, 32767, -32768, 2**63, -(2**63), 2**64, most, -most) if abs(e) <= most]
    )

    def exact(number: int) -> decimal.Decimal:
        return decimal.Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return Case(pa.decimal128(precision, scale), (st.integers(-most, most) | edges).map(exact))


def integers(kind: pa.DataType, bits: int) -> Case:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return Case(kind, st.integers(low, high) | st.sampled_from([low, high, 0, -1, 63, 64, -64, -65]))


PLAIN = st.sampled_from(
    [
        Case(pa.bool_(), st.booleans()),
        integers(pa.int8(), 8),
        integers(pa.int16(), 16),
        integers(pa.int32(), 32),
        integers(pa.int64(), 64),
        Case(pa.float32(), st.floats(width=32, allow_nan=False)),
        Case(pa.float64(), st.floats(allow_nan=False)),
        Case(pa.string(), st.text(max_size=9)),
        Case(pa.large_string(), st.text(max_size=9)),
        Case(pa.binary(), st.binary(max_size=200)),
        Case(pa.date32(), st.dates()),
        Case(pa.timestamp("us", "UTC"), INSTANTS.map(lambda at: at.replace(tzinfo=datetime.UTC))),
        Case(pa.timestamp("us"), INSTANTS),
        decimals(5, 2),
        decimals(18, 0),
        decimals(19, 3),
        decimals(38, 9),
    ]
)


def _maybe(case: Case, nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | case.values if nullable else case.values


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    case, nullable = draw(inner), draw(st.booleans())
    item = pa.field("element", case.kind, nullable)
    large = draw(st.booleans())
    return Case(pa.large_list(item) if large else pa.list_(item), st.lists(_maybe(case, nullable), max_size=4))


@st.composite
def maps(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    case, nullable = draw(inner), draw(st.booleans())
    value: Any = pa.field("value", case.kind, nullable)  # the stubs take a type alone
    kind = pa.map_(pa.string(), value)
    return Case(kind, st.dictionaries(st.text(max_size=4), _maybe(case, nullable), max_size=3))


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    cases = draw(st.lists(st.tuples(inner, st.booleans()), max_size=4))
    kind = pa.struct([pa.field(f"f{place}", case.kind, nullable) for place, (case, nullable) in enumerate(cases)])
    return Case(kind, st.fixed_dictionaries({f"f{place}": _maybe(*each) for place, each in enumerate(cases)}))


NESTED = st.recursive(PLAIN, lambda inner: lists(inner) | maps(inner) | structs(inner), max_leaves=5)
RECORDS = structs(NESTED)


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    """A struct type, and rows of it, some of them null."""
    case = draw(RECORDS)
    return case.kind, draw(st.lists(st.none() | case.values, max_size=8))


def as_arrow(kind: pa.DataType, rows: list[Any]) -> pa.Array[Any]:
    return pa.array([_pairs(kind, row) for row in rows], kind)


def _pairs(kind: Any, value: Any) -> Any:
    """Maps as lists of pairs, as pyarrow wants them inside of other types."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _pairs(field.type, value[field.name]) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _pairs(kind.item_type, item)) for key, item in value.items()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_pairs(kind.value_type, item) for item in value]
    return value


def by_fastavro(schema: Any, rows: list[Any], prefix: bytes = b"") -> list[bytes | None]:
    """The bytes of each row as fastavro writes them; None for null."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found: list[bytes | None] = []
    for row in rows:
        out = io.BytesIO()
        if row is not None:
            fastavro.schemaless_writer(out, parsed, row)
        found.append(None if row is None else prefix + out.getvalue())
    return found
