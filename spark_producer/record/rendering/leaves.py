"""The scalar types, each with its text and its JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spark_producer.record.rendering import numbers, strings, times
from spark_producer.record.rendering.strings import TEXT, joined
from spark_producer.record.rendering.untyped import Column, Kind, pa, pc

Render = Callable[[Column], Column]
types = pa.types


class Leaf(NamedTuple):
    """The three renderings of a scalar type: as text, as JSON, and as the name of a JSON field (for the keys of a map).

    `name` renders Spark's internal value, such as the number of days of a date, without escapes. It is None if that value
    differs between processes.
    """

    text: Render
    json: Render
    name: Render | None


def leaf_of(kind: Kind) -> Leaf | None:
    """Return the renderings of a scalar type; None for nested and unknown types."""
    return next((leaf for matches, leaf in _LEAVES if matches(kind)), None)


def _in_quotes(render: Render) -> Render:
    """Return `render` with quotes around its texts, which must need no escapes."""
    return lambda column: joined('"', render(column), '"')


def _as_integers(kind: Kind) -> Render:
    """Return a function that renders values as integers in the unit of `kind`, in which Spark stores them."""

    def render(column: Column) -> Column:
        return numbers.digits(column.cast(kind).cast(pa.int64()))

    return render


def _timestamp_name(column: Column) -> Column:
    return _as_integers(pa.timestamp("us", column.type.tz))(column)


def _date_name(column: Column) -> Column:
    return numbers.digits(column.cast(pa.date32()).cast(pa.int32()))


def _is_number(kind: Kind) -> bool:
    return bool(types.is_integer(kind) or types.is_boolean(kind))


def _is_text(kind: Kind) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: Kind) -> bool:
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(binary or types.is_fixed_size_binary(kind))


def _is_month_day_nano(kind: Kind) -> bool:
    return bool(kind == pa.month_day_nano_interval())


def _nulls(column: Column) -> Column:
    return pa.nulls(len(column), TEXT)


def _bytes(column: Column) -> Column:
    return column.cast(pa.large_binary())


def _quoted(column: Column) -> Column:
    return strings.quoted(strings.checked(column))


_LEAVES: list[tuple[Callable[[Kind], bool], Leaf]] = [
    (_is_text, Leaf(strings.checked, _quoted, strings.checked)),
    (_is_number, Leaf(numbers.digits, numbers.digits, numbers.digits)),
    (types.is_floating, Leaf(numbers.floats, numbers.json_floats, numbers.floats)),
    (types.is_decimal, Leaf(numbers.plain_decimals, numbers.decimals, numbers.decimals)),
    (types.is_timestamp, Leaf(times.short_timestamps, _in_quotes(times.json_timestamps), _timestamp_name)),
    (types.is_date, Leaf(times.dates, _in_quotes(times.dates), _date_name)),
    (types.is_time, Leaf(times.times, _in_quotes(times.times), _as_integers(pa.time64("ns")))),
    (types.is_duration, Leaf(times.durations, _in_quotes(times.durations), _as_integers(pa.duration("us")))),
    (_is_month_day_nano, Leaf(times.calendar_intervals, _in_quotes(times.calendar_intervals), None)),
    (_is_binary, Leaf(_bytes, _in_quotes(strings.base64), None)),
    (types.is_null, Leaf(_nulls, _nulls, None)),
]


def plain(column: Column) -> Column:
    """Return a column without encodings: extensions, run ends, and dictionaries longer than the column."""
    while True:
        kind = column.type
        if isinstance(column, pa.ExtensionArray):
            storage = column.storage
            column = (
                strings.uuids(storage)
                if kind == pa.uuid()
                else storage.cast(pa.bool_())
                if kind == pa.bool8()
                else storage
            )
        elif isinstance(column, pa.RunEndEncodedArray):
            column = pc.run_end_decode(column)
        elif isinstance(column, pa.DictionaryArray) and len(column.dictionary) > len(column):
            column = column.dictionary_decode()
        else:
            return column
