"""Arbitrary Avro schemas with values, and readers' schemas that have evolved from them; fastavro writes and reads as the judge.

Owns: what fastavro makes of bytes, in the form of Spark's types. Must not know: how columns are decoded.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import io
import itertools
import json
import uuid
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
from hypothesis import strategies as st

EPOCH = datetime.datetime(1970, 1, 1)
MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
INTS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, -1, 63, 64, -64, -65])
LONGS = st.integers(-(2**63), 2**63 - 1) | INTS

Named = tuple[Any, st.SearchStrategy[Any]]
"""A schema, and values that fastavro writes by it."""


def _millis(at: datetime.datetime) -> datetime.datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


PLAIN: list[Named] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", INTS),
    ("long", LONGS),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=9)),
    ("bytes", st.binary(max_size=200)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        MOMENTS.map(lambda at: _millis(at).replace(tzinfo=datetime.UTC)),
    ),
    ({"type": "long", "logicalType": "timestamp-micros"}, MOMENTS.map(lambda at: at.replace(tzinfo=datetime.UTC))),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, MOMENTS.map(_millis)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, MOMENTS),
    ({"type": "int", "logicalType": "time-millis"}, MOMENTS.map(lambda at: _millis(at).time())),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, st.decimals(-999, 999, places=2)),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
        st.integers(-(10**38) + 1, 10**38 - 1).map(decimal.Decimal),
    ),
]


def _named(count: Iterator[int]) -> st.SearchStrategy[Named]:
    number = next(count)
    enum = st.integers(1, 4).map(
        lambda size: (
            {"type": "enum", "name": f"E{number}", "symbols": [f"S{each}" for each in range(size)], "default": "S0"},
            st.sampled_from([f"S{each}" for each in range(size)]),
        )
    )
    fixed = st.integers(0, 20).map(
        lambda size: ({"type": "fixed", "name": f"F{number}", "size": size}, st.binary(min_size=size, max_size=size))
    )
    packed = {"type": "fixed", "name": f"D{number}", "size": 7, "logicalType": "decimal", "precision": 9, "scale": 3}
    return enum | fixed | st.just((packed, st.decimals(-999, 999, places=3)))


UNION = [
    ("boolean", st.booleans()),
    ("long", LONGS),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=3)),
]
"""Branches with distinct Python types."""


@st.composite
def schemas(draw: st.DrawFn, count: Iterator[int] | None = None, depth: int = 0) -> Named:
    count = itertools.count() if count is None else count
    form = draw(
        st.sampled_from(["plain"] * 4 + ["named"] + ["optional", "union", "array", "map", "record"] * (depth < 3))
    )
    if form == "plain":
        return draw(st.sampled_from(PLAIN))
    if form == "named":
        return draw(_named(count))
    if form == "record":
        return draw(records(count, depth))
    if form == "union":
        branches = draw(st.lists(st.sampled_from(UNION), min_size=1, max_size=4, unique_by=lambda each: each[0]))
        branches = branches + [("null", st.none())] * draw(st.booleans())
        return [schema for schema, _ in branches], st.one_of([values for _, values in branches])
    inner, values = draw(schemas(count, depth + 1))
    if form == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if form == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=4), values, max_size=3)
    if isinstance(inner, list) or inner == "null":
        return inner, values
    return draw(st.permutations(["null", inner])), st.none() | values


@st.composite
def records(draw: st.DrawFn, count: Iterator[int] | None = None, depth: int = 0) -> Named:
    count = itertools.count() if count is None else count
    name = f"R{next(count)}"
    fields = draw(st.lists(schemas(count, depth + 1), max_size=4))
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{place}", "type": each} for place, (each, _) in enumerate(fields)],
    }
    return schema, st.fixed_dictionaries({f"f{place}": values for place, (_, values) in enumerate(fields)})


PROMOTED = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"]}

ADDED = [
    ("long", 17),
    ("string", "é"),
    ("bytes", "\u00ff"),
    (["null", "int"], None),
    ({"type": "array", "items": "double"}, [1.5, 2]),
    ({"type": "map", "values": "boolean"}, {"a": True}),
    ({"type": "record", "name": "Added", "fields": [{"name": "x", "type": "int", "default": 3}]}, {}),
    ({"type": "enum", "name": "AddedEnum", "symbols": ["P", "Q"]}, "Q"),
]


@st.composite
def evolved(draw: st.DrawFn, schema: Any) -> Any:
    """A reader's schema: fields reordered, left out, added with defaults and renamed, types promoted, branches added."""
    return _evolve(draw, copy.deepcopy(schema), itertools.count())


def _evolve(draw: st.DrawFn, schema: Any, count: Iterator[int]) -> Any:
    if isinstance(schema, str):
        if schema in PROMOTED and draw(st.booleans()):
            return draw(st.sampled_from(PROMOTED[schema]))
        return ["null", schema] if schema != "null" and draw(st.integers(0, 4)) == 0 else schema
    if isinstance(schema, list):
        branches = draw(st.permutations(schema))
        # Of a long fastavro takes the first branch that takes it, as the specification says; we take its own, as Java does.
        return sorted(branches, key=lambda branch: branch == "double")
    form = schema["type"]
    if form == "record":
        return _evolve_record(draw, schema, count)
    if form == "enum":
        kept = draw(st.permutations(schema["symbols"]))[: draw(st.integers(1, 4))]
        schema["symbols"] = [*kept, "New"]
        schema["default"] = schema["symbols"][0]
    elif form == "array":
        schema["items"] = _evolve(draw, schema["items"], count)
    elif form == "map":
        schema["values"] = _evolve(draw, schema["values"], count)
    return schema


def _evolve_record(draw: st.DrawFn, schema: Any, count: Iterator[int]) -> Any:
    fields = [
        field | {"type": _evolve(draw, field["type"], count)} for field in schema["fields"] if draw(st.integers(0, 3))
    ]
    for field in fields:
        if draw(st.integers(0, 3)) == 0:
            field |= {"name": f"new_{field['name']}", "aliases": [field["name"]]}
    if draw(st.booleans()):
        kind, default = copy.deepcopy(draw(st.sampled_from(ADDED)))
        number = next(count)
        if isinstance(kind, dict) and "name" in kind:
            kind["name"] += str(number)
        fields.append({"name": f"added{number}", "type": kind, "default": default})
    return schema | {"fields": draw(st.permutations(fields))}


def written(schema: Any, rows: list[Any]) -> list[bytes]:
    """The bytes of each row as fastavro writes them."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        found.append(out.getvalue())
    return found


def read_by_fastavro(writer: Any, content: bytes, reader: Any) -> Any:
    """A value as fastavro reads it, in the form of Spark's types."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(writer)))
    wanted = fastavro.parse_schema(json.loads(json.dumps(reader)))
    return as_spark(reader, fastavro.schemaless_reader(io.BytesIO(content), parsed, wanted))


def as_spark(schema: Any, value: Any) -> Any:
    """A value of fastavro as pyarrow returns it from a column of Spark's type."""
    if isinstance(schema, list):
        return _of_union(schema, value)
    if schema == "bytes" and isinstance(value, str):  # fastavro returns defaults as they are in JSON
        return value.encode("latin-1")
    if schema in ("float", "double"):  # fastavro leaves promoted numbers whole
        return float(np.array(value).astype("f4" if schema == "float" else "f8"))
    if isinstance(schema, str):
        return value
    form = schema["type"]
    if form == "record":
        found = {field["name"]: value.get(field["name"], field.get("default")) for field in schema["fields"]}
        return {field["name"]: as_spark(field["type"], found[field["name"]]) for field in schema["fields"]}
    if form == "array":
        return [as_spark(schema["items"], each) for each in value]
    if form == "map":
        return [(key, as_spark(schema["values"], each)) for key, each in value.items()]
    return str(value) if isinstance(value, uuid.UUID) else value


def _of_union(schema: list[Any], value: Any) -> Any:
    others = [branch for branch in schema if branch != "null"]
    if value is None or not others:
        return None
    if len(others) == 1:
        return as_spark(others[0], value)
    if set(map(str, others)) == {"float", "double"}:
        return float(value)
    names = {"boolean": bool, "long": int, "double": float, "string": str}
    chosen = next(index for index, branch in enumerate(others) if type(value) is names[branch])
    return {f"member{index}": value if index == chosen else None for index in range(len(others))}
