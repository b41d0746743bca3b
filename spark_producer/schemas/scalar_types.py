"""The Arrow types that fit an Avro type without children, with its logical type (Avro 1.12 specification, Logical Types).

A logical type that is unknown, or invalid for its type, is ignored, as the specification demands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.kernel.avro_nodes import ArrowLayout, AvroNode
from spark_producer.schemas.texts import arrow_type_name, list_names
from spark_producer.schemas.types import is_binary, is_int, is_text

NUMBERS = frozenset({"int", "long", "float", "double"})

MAX_DECIMAL_BYTES = 1024
"""Maximum bytes of a fixed decimal. A column's has 16; a schema with a gibibyte would use that for each row."""

_DAY_SECONDS = 86_400
_UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
"""The number per second of each of Arrow's time units."""


class Planned(NamedTuple):
    """A plan, and the distance of the schema's type from the column's.

    Attributes:
        node: The plan.
        cost: The distance: 0 for the column's own type.
        total: Whether every value fits, apart from strings that are not UTF-8.
    """

    node: AvroNode
    cost: int
    total: bool


def type_mismatch(path: str, kind: pa.DataType, wanted: str) -> SchemaError:
    """Return the error for a column that does not fit its schema; `wanted` is escaped."""
    return SchemaError(f"field '{path}' has type {arrow_type_name(kind)}, but the schema has {wanted}")


def type_name(schema: dict[str, Any]) -> str:
    """Return the name of a type for messages, or its form with its logical type."""
    form, logical = schema.get("type"), schema.get("logicalType")
    if isinstance(schema.get("name"), str):
        return f"{for_log(str(form))} '{for_log(schema['name'])}'"
    return for_log(str(form)) + (f" ({for_log(logical)})" if isinstance(logical, str) else "")


def is_number(schema: dict[str, Any]) -> bool:
    """Return whether a type is a number without a known logical type."""
    return schema.get("type") in NUMBERS and _key(schema) not in _LOGICAL


def scalar_node(schema: dict[str, Any], kind: pa.DataType, path: str, *, narrow: bool) -> Planned:
    """Return the plan of a type without children. With `narrow` numbers may be encoded in a smaller type, if each value fits.

    Raises:
        SchemaError: the column's type does not fit.
    """
    read = _LOGICAL.get(_key(schema))
    if read is not None:
        found = read(schema, kind, path)
        if found is not None:
            return found
    if schema.get("type") == "enum":
        return _enum(schema, kind, path)
    if schema.get("type") == "fixed":
        size = _size(schema, path)
        if is_binary(kind):
            return Planned(AvroNode(ArrowLayout.RAW, path, width=size), 1, total=False)
        raise type_mismatch(path, kind, f"{type_name(schema)} of {size} bytes")
    form = schema.get("type")
    for is_it, shape, cost, total in _TAKEN.get(form, ()) if isinstance(form, str) else ():
        if is_it(kind) and (total or narrow):
            return Planned(_number(AvroNode(shape, path), str(form), total=total), cost, total)
    raise type_mismatch(path, kind, type_name(schema))


def _number(node: AvroNode, form: str, *, total: bool) -> AvroNode:
    """Return the plan of a number, which checks each value if the schema's type cannot represent all."""
    if total:
        return node
    if form == "int":
        return node._replace(low=-(1 << 31), high=(1 << 31) - 1, reason="it does not fit into 32 bits")
    return node._replace(reason=f"{form} cannot represent it exactly")


def _key(schema: dict[str, Any]) -> tuple[object, object]:
    form, logical = schema.get("type"), schema.get("logicalType")
    return (form, logical) if isinstance(form, str) and isinstance(logical, str) else (None, None)


def _size(schema: dict[str, Any], path: str) -> int:
    size = schema.get("size")
    if type(size) is not int or size < 0:
        raise SchemaError(f"field '{path}': the schema has a fixed type without a size")
    return size


def _enum(schema: dict[str, Any], kind: pa.DataType, path: str) -> Planned:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not is_text(kind):
        raise type_mismatch(path, kind, f"the {type_name(schema)}, which takes strings")
    names = tuple(map(str, symbols))
    reason = f"it is not one of the symbols {list_names(names)}"
    return Planned(AvroNode(ArrowLayout.ENUM, path, symbols=names, reason=reason), 1, total=False)


def _decimal(schema: dict[str, Any], kind: pa.DataType, path: str) -> Planned | None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return None
    wanted = f"decimal({precision}, {scale})"
    width = _size(schema, path) if schema["type"] == "fixed" else 0
    if not pa.types.is_decimal128(kind):
        if schema["type"] == "fixed" and precision > _digits(width):
            return None  # the logical type is invalid; but decimals that are small enough do fit
        raise type_mismatch(path, kind, for_log(wanted))
    if kind.scale != scale or kind.precision > precision:
        raise type_mismatch(path, kind, f"{for_log(wanted)}. Cast the field to it")
    if schema["type"] == "fixed" and not width:
        raise SchemaError(f"field '{path}': the schema has a fixed type without a size")
    if width > MAX_DECIMAL_BYTES:
        raise SchemaError(
            f"field '{path}': a decimal of {for_log(str(width))} bytes is not supported; the maximum is {MAX_DECIMAL_BYTES}"
        )
    fits = not width or kind.precision <= _digits(width)
    cost = int(kind.precision != precision) + 2 * (width > 0)
    return Planned(AvroNode(ArrowLayout.DECIMAL, path, width=width), cost, total=fits)


def _digits(width: int) -> int:
    """Return the number of digits that always fit into `width` bytes: floor((8 width - 1) log10 2)."""
    return (8 * width - 1) * 30_103 // 100_000


def _big_decimal(_: dict[str, Any], kind: pa.DataType, path: str) -> Planned:
    if not pa.types.is_decimal128(kind):
        raise type_mismatch(path, kind, "bytes (big-decimal)")
    return Planned(AvroNode(ArrowLayout.BIG_DECIMAL, path, scale=kind.scale), 3, total=True)


def _uuid_text(_: dict[str, Any], kind: pa.DataType, path: str) -> Planned:
    if not is_text(kind):
        raise type_mismatch(path, kind, "string (uuid)")
    return Planned(AvroNode(ArrowLayout.UUID_TEXT, path), 1, total=False)


def _uuid_bytes(schema: dict[str, Any], kind: pa.DataType, path: str) -> Planned | None:
    if schema.get("size") != 16 or not is_text(kind):
        return None  # bytes are encoded as in every fixed type
    return Planned(AvroNode(ArrowLayout.UUID_BYTES, path), 2, total=False)


def _duration(schema: dict[str, Any], kind: pa.DataType, path: str) -> Planned | None:
    if schema.get("size") != 12 or is_binary(kind):
        return None
    if kind in (pa.duration("us"), pa.month_day_nano_interval()):
        return Planned(AvroNode(ArrowLayout.DURATION, path), 0, total=False)
    raise type_mismatch(path, kind, "fixed (duration)")


def _date(_: dict[str, Any], kind: pa.DataType, path: str) -> Planned:
    if not pa.types.is_date32(kind):
        raise type_mismatch(path, kind, "int (date)")
    return Planned(AvroNode(ArrowLayout.LONG, path), 0, total=True)


_TIMES = {"s": pa.time32("s"), "ms": pa.time32("ms"), "us": pa.time64("us"), "ns": pa.time64("ns")}
"""Arrow's times of day, by their unit; Spark's are in nanoseconds."""

_Reader = Callable[[dict[str, Any], pa.DataType, str], Planned | None]


def _time(unit: str, cost: int) -> _Reader:
    """Return the reader of times of day: those of Spark, and numbers that count the same units."""

    def read(schema: dict[str, Any], kind: pa.DataType, path: str) -> Planned:
        is_number = is_int(kind) or (unit == "us" and pa.types.is_int64(kind))
        if not (is_number or kind in _TIMES.values()):
            raise type_mismatch(path, kind, type_name(schema))
        have = unit if is_number else next(each for each, time in _TIMES.items() if time == kind)
        node = _scaled(AvroNode(ArrowLayout.LONG, path), have, unit)
        high = _DAY_SECONDS * _UNITS[unit] // node.factor - 1
        return Planned(
            node._replace(low=0, high=high, reason="it is not a time of day"), cost + 5 * is_number, total=False
        )

    return read


def _timestamp(unit: str, cost: int, *, local: bool) -> _Reader:
    def read(schema: dict[str, Any], kind: pa.DataType, path: str) -> Planned:
        if not pa.types.is_timestamp(kind) or (kind.tz is None) != local:
            raise type_mismatch(path, kind, type_name(schema))
        node = _scaled(AvroNode(ArrowLayout.LONG, path), kind.unit, unit)
        if node.factor > 1:
            high = ((1 << 63) - 1) // node.factor
            node = node._replace(low=-high, high=high, reason=f"it does not fit into 64 bits as {type_name(schema)}")
        return Planned(node, cost, total=node.factor == 1)

    return read


def _scaled(node: AvroNode, ours: str, theirs: str) -> AvroNode:
    """Return the plan of times in another unit. They are rounded down to a coarser one."""
    have, want = _UNITS[ours], _UNITS[theirs]
    return node._replace(divisor=max(1, have // want), factor=max(1, want // have))


_LOGICAL: dict[tuple[object, object], _Reader] = {
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("bytes", "big-decimal"): _big_decimal,
    ("string", "uuid"): _uuid_text,
    ("fixed", "uuid"): _uuid_bytes,
    ("int", "date"): _date,
    ("int", "time-millis"): _time("ms", 1),
    ("long", "time-micros"): _time("us", 0),
    ("long", "timestamp-millis"): _timestamp("ms", 1, local=False),
    ("long", "timestamp-micros"): _timestamp("us", 0, local=False),
    ("long", "timestamp-nanos"): _timestamp("ns", 1, local=False),
    ("long", "local-timestamp-millis"): _timestamp("ms", 1, local=True),
    ("long", "local-timestamp-micros"): _timestamp("us", 0, local=True),
    ("long", "local-timestamp-nanos"): _timestamp("ns", 1, local=True),
    ("fixed", "duration"): _duration,
}
"""All logical types of the specification, and the types that they belong to."""

_Test = Callable[[pa.DataType], bool]


def _is_whole(kind: pa.DataType) -> bool:
    return is_int(kind) or pa.types.is_int64(kind)


_TAKEN: dict[str, tuple[tuple[_Test, ArrowLayout, int, bool], ...]] = {
    "boolean": ((pa.types.is_boolean, ArrowLayout.BOOLEAN, 0, True),),
    "int": ((is_int, ArrowLayout.LONG, 0, True), (pa.types.is_int64, ArrowLayout.LONG, 2, False)),
    "long": ((pa.types.is_int64, ArrowLayout.LONG, 0, True), (is_int, ArrowLayout.LONG, 1, True)),
    "float": (
        (pa.types.is_float32, ArrowLayout.FLOAT, 0, True),
        (pa.types.is_float64, ArrowLayout.FLOAT, 2, False),
        (_is_whole, ArrowLayout.FLOAT, 4, False),
    ),
    "double": (
        (pa.types.is_float64, ArrowLayout.DOUBLE, 0, True),
        (pa.types.is_float32, ArrowLayout.DOUBLE, 1, True),
        (is_int, ArrowLayout.DOUBLE, 3, True),
        (pa.types.is_int64, ArrowLayout.DOUBLE, 3, False),
    ),
    "string": ((is_text, ArrowLayout.TEXT, 0, True),),
    "bytes": ((is_binary, ArrowLayout.BYTES, 0, True), (is_text, ArrowLayout.BYTES, 3, True)),
}
"""The types of columns that each of Avro's types accepts: its own, those whose values all fit, and (in a union) those of which
some values fit."""
