"""Columns of all types, with what a key and a field of JSON are made of each value: for the tests of both ways that do it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute

pa: Any = pyarrow
pc: Any = pyarrow.compute
"""Any, because the stubs do not know all types."""

PARQUET, ARROW = "parquet", "arrow"
"""The expression by which Spark gives a column its type."""

_DAY = 86_400_000_000
_NAN, _INFINITE = float("nan"), float("inf")
_FIRST, _LAST = -(2**63), 2**63 - 1
_STRUCT = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
_STRUCTS = [{"a": None, "b": [{"c": None}, {"c": "x"}]}, None, {"a": 1, "b": None}, {"a": None, "b": None}]


class Rendered(NamedTuple):
    """A column, its JSON and its text; `text` is None where it is the JSON. `given` is None if Spark has no such type."""

    column: Any
    json: Sequence[str | None]
    text: Sequence[str | bytes | None] | None
    given: str | None = PARQUET


def _integers(values: list[int | None], kind: Any) -> Any:
    width = pa.int32() if kind in (pa.date32(), pa.time32("s"), pa.time32("ms")) else pa.int64()
    return pa.array(values, width).cast(kind)


def _decimals(kind: Any, *values: str) -> Any:
    return pa.array([*map(Decimal, values), None], kind)


def _strings(*values: str) -> list[str]:
    return [f'"{value}"' for value in values]


def _map(key: Any, *entries: tuple[Any, Any]) -> Any:
    return pa.array([list(entries)], pa.map_(key, pa.int32()))


_MOMENTS = [0, 123_456, 100_000, -1, -_DAY * 172_000, -62_200_000_000_000_000, 253_402_300_800_000_000, _LAST, _FIRST]
_TEXTS = [
    "1970-01-01 00:00:00", "1970-01-01 00:00:00.123456", "1970-01-01 00:00:00.1", "1969-12-31 23:59:59.999999",
    "1499-01-30 00:00:00", "-0002-12-17 14:13:20", "+10000-01-01 00:00:00", "+294247-01-10 04:00:54.775807",
    "-290308-12-21 19:59:05.224192",
]  # fmt: skip
_JSON_TIMES = [
    "1970-01-01T00:00:00.000000", "1970-01-01T00:00:00.123456", "1970-01-01T00:00:00.100000", "1969-12-31T23:59:59.999999",
    "1499-01-30T00:00:00.000000", "-0002-12-17T14:13:20.000000", "+10000-01-01T00:00:00.000000",
    "+294247-01-10T04:00:54.775807", "-290308-12-21T19:59:05.224192",
]  # fmt: skip
_DOUBLES = [
    1.5, 100.0, -0.0, 0.0, 0.1, 9_999_999.999, 1e7, -12_345_678.5, 1e10, 1e14, 123_456_789_012_345_680.0, 0.001, 9.9e-4, -1.5e-5,
    1e-7, 1e300, 5e-324, 1.7976931348623157e308,
]  # fmt: skip
_AS_JAVA = [
    "1.5", "100.0", "-0.0", "0.0", "0.1", "9999999.999", "1.0E7", "-1.23456785E7", "1.0E10", "1.0E14", "1.2345678901234568E17",
    "0.001", "9.9E-4", "-1.5E-5", "1.0E-7", "1.0E300", "4.9E-324", "1.7976931348623157E308",
]  # fmt: skip
_UNESCAPED = 'a"b\\/\b\f\n\r\t\x01\x1f\x7f\u2028é😀<>&'
_ESCAPED = '"a\\"b\\\\/\\b\\f\\n\\r\\t\\u0001\\u001F\x7f\u2028é😀<>&"'
_DURATIONS = [0, -1, 90_061_500_000, -_DAY, 8_640_000_000_000 * 1_000_000, None]
_INTERVALS = [
    "INTERVAL '0 00:00:00' DAY TO SECOND", "INTERVAL '-0 00:00:00.000001' DAY TO SECOND",
    "INTERVAL '1 01:01:01.5' DAY TO SECOND", "INTERVAL '-1 00:00:00' DAY TO SECOND",
    "INTERVAL '100000000 00:00:00' DAY TO SECOND",
]  # fmt: skip

CASES: dict[str, Rendered] = {
    "boolean": Rendered(pa.array([True, False, None]), ["true", "false", None], None),
    "int8": Rendered(pa.array([-128, None], pa.int8()), ["-128", None], None),
    "int64": Rendered(pa.array([_FIRST, None]), [str(_FIRST), None], None),
    "uint8": Rendered(pa.array([255], pa.uint8()), ["255"], None),
    "uint32": Rendered(pa.array([2**32 - 1], pa.uint32()), ["4294967295"], None),
    "uint64": Rendered(pa.array([2**64 - 1, None], pa.uint64()), ["18446744073709551615", None], None),
    "double": Rendered(pa.array([*_DOUBLES, None]), [*_AS_JAVA, None], None),
    "no numbers": Rendered(
        pa.array([_NAN, _INFINITE, -_INFINITE, 1e10]),
        ['"NaN"', '"Infinity"', '"-Infinity"', "1.0E10"],
        ["NaN", "Infinity", "-Infinity", "1.0E10"],
    ),
    "float": Rendered(
        pa.array([1.1, 16_777_216, 1e10, 3.4e38, 9.9e-4, 1e-45, None], pa.float32()),
        ["1.1", "1.6777216E7", "1.0E10", "3.4E38", "9.9E-4", "1.4E-45", None],
        None,
    ),
    "half float": Rendered(
        pa.array([0.1, _NAN, 65_504, None], pa.float16()),
        ["0.099975586", '"NaN"', "65504.0", None],
        ["0.099975586", "NaN", "65504.0", None],
        None,
    ),
    "decimal": Rendered(
        _decimals(pa.decimal128(10, 5), "1.1", "-12.34567", "0"), ["1.10000", "-12.34567", "0.00000", None], None
    ),
    "small decimals": Rendered(
        _decimals(pa.decimal128(38, 18), "0", "1E-7", "-1.2E-7", "0.000001", "12345678901234567890.1"),
        ["0E-18", "1.00000000000E-7", "-1.20000000000E-7", "0.000001000000000000",
         "12345678901234567890.100000000000000000", None],
        [
            "0.000000000000000000", "0.000000100000000000", "-0.000000120000000000", "0.000001000000000000",
            "12345678901234567890.100000000000000000", None,
        ],
    ),
    "large decimals": Rendered(_decimals(pa.decimal128(38, 0), "9" * 38), ["9" * 38, None], None),
    "decimal32": Rendered(_decimals(pa.decimal32(9, 8), "1E-8"), ["1E-8", None], ["0.00000001", None], None),
    "decimal256": Rendered(_decimals(pa.decimal256(60, 9), "1E-9"), ["1E-9", None], ["0.000000001", None], None),
    "decimal of a negative scale": Rendered(_decimals(pa.decimal128(5, -2), "1200"), ["1200", None], None, None),
    "date": Rendered(
        _integers([15_706, -141_427, -719_529, 2_932_897, 42_932_896, -4_719_528, None], pa.date32()),
        [
            *_strings("2013-01-01", "1582-10-15", "-0001-12-31", "+10000-01-01", "+119516-04-12", "-10952-05-16"), None,
        ],
        ["2013-01-01", "1582-10-15", "-0001-12-31", "+10000-01-01", "+119516-04-12", "-10952-05-16", None],
    ),
    "timestamp": Rendered(
        _integers([*_MOMENTS, None], pa.timestamp("us", "Europe/Berlin")),
        [*(f'"{text}Z"' for text in _JSON_TIMES), None],
        [*_TEXTS, None],
    ),
    "timestamp_ntz": Rendered(
        _integers([*_MOMENTS, None], pa.timestamp("us")), [*_strings(*_JSON_TIMES), None], [*_TEXTS, None]
    ),
    "timestamp in seconds": Rendered(
        _integers([1_357_017_420, -1], pa.timestamp("s", "UTC")),
        _strings("2013-01-01T05:17:00.000000Z", "1969-12-31T23:59:59.000000Z"),
        ["2013-01-01 05:17:00", "1969-12-31 23:59:59"],
    ),
    "timestamp in nanoseconds": Rendered(
        _integers([1_500_000, 1, None], pa.timestamp("ns", "UTC")),
        ['"1970-01-01T00:00:00.001500Z"', '"1970-01-01T00:00:00.000000001Z"', None],
        ["1970-01-01 00:00:00.0015", "1970-01-01 00:00:00.000000001", None],
        None,
    ),
    "time": Rendered(
        _integers([0, 19_020_100_000, _DAY - 1, None], pa.time64("us")),
        [*_strings("00:00:00", "05:17:00.1", "23:59:59.999999"), None],
        ["00:00:00", "05:17:00.1", "23:59:59.999999", None],
        ARROW,
    ),
    "time in seconds": Rendered(
        _integers([19_020, 0], pa.time32("s")), _strings("05:17:00", "00:00:00"), ["05:17:00", "00:00:00"], None
    ),
    "time in nanoseconds": Rendered(
        _integers([1, 1_000_000], pa.time64("ns")),
        _strings("00:00:00.000000001", "00:00:00.001"),
        ["00:00:00.000000001", "00:00:00.001"],
        None,
    ),
    "duration": Rendered(
        _integers(_DURATIONS, pa.duration("us")), [*_strings(*_INTERVALS), None], [*_INTERVALS, None], ARROW
    ),
    "calendar interval": Rendered(
        pa.array([pa.MonthDayNano([14, 25, 18_367_500_000_000]), pa.MonthDayNano([-14, 0, -1000]), pa.MonthDayNano([0, 0, 0])]),
        _strings(
            "1 years 2 months 25 days 5 hours 6 minutes 7.5 seconds", "-1 years -2 months -0.000001 seconds", "0 seconds"
        ),
        ["1 years 2 months 25 days 5 hours 6 minutes 7.5 seconds", "-1 years -2 months -0.000001 seconds", "0 seconds"],
        None,
    ),
    "string": Rendered(pa.array(["UA", "", None]), ['"UA"', '""', None], ["UA", "", None]),
    "string with escapes": Rendered(pa.array([_UNESCAPED, "plain"]), [_ESCAPED, '"plain"'], [_UNESCAPED, "plain"]),
    "string view": Rendered(pa.array(["UA", None], pa.string_view()), ['"UA"', None], ["UA", None], None),
    "dictionary": Rendered(pa.array(["é", None, "é"]).dictionary_encode(), ['"é"', None, '"é"'], ["é", None, "é"]),
    "dictionary of doubles": Rendered(
        pa.array([1e10, None, 1e10, 1e10]).dictionary_encode(), ["1.0E10", None, "1.0E10", "1.0E10"], None, None
    ),
    "run ends": Rendered(pc.run_end_encode(pa.array([1e10, 1e10, None])), ["1.0E10", "1.0E10", None], None, None),
    "binary": Rendered(
        pa.array([b"", b"a", b"ab", b"abc", b"\x00\xff", b"00ff", None]),
        ['""', '"YQ=="', '"YWI="', '"YWJj"', '"AP8="', '"MDBmZg=="', None],
        [b"", b"a", b"ab", b"abc", b"\x00\xff", b"00ff", None],
    ),
    "binary of one length": Rendered(pa.array([b"abcd", None], pa.binary(4)), ['"YWJjZA=="', None], [b"abcd", None]),
    "uuid": Rendered(
        pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()),
        ['"00000000-0000-0000-0000-000000000005"', None],
        ["00000000-0000-0000-0000-000000000005", None],
        None,
    ),
    "null": Rendered(pa.nulls(2), [None, None], None),
    "list": Rendered(pa.array([[1, None], [], None]), ["[1,null]", "[]", None], None),
    "large list": Rendered(pa.array([["a"], None], pa.large_list(pa.string())), ['["a"]', None], None),
    "list of one length": Rendered(pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), ["[1,2]", None], None),
    "list view": Rendered(pa.array([[1, 2], None, [3]], pa.list_view(pa.int32())), ["[1,2]", None, "[3]"], None, None),
    "list of bytes": Rendered(pa.array([[b"\x00", None]]), ['["AA==",null]'], None),
    "list of lists": Rendered(pa.array([[[1.0], [], None]]), ["[[1.0],[],null]"], None),
    "map": Rendered(
        pa.array([[("a", 1), ('"\n', None)], [], None], pa.map_(pa.string(), pa.int64())),
        ['{"a":1,"\\"\\n":null}', "{}", None],
        None,
    ),
    "map with a key twice": Rendered(_map(pa.string(), ("a", 1), ("a", 2)), ['{"a":1,"a":2}'], None),
    "map of structs": Rendered(
        pa.array([[("a", {"b": None})]], pa.map_(pa.string(), pa.struct([("b", pa.int32())]))), ['{"a":{}}'], None
    ),
    "map by number": Rendered(_map(pa.int64(), (1, 2)), ['{"1":2}'], None),
    "map by double": Rendered(_map(pa.float64(), (1e10, 1), (_NAN, 2)), ['{"1.0E10":1,"NaN":2}'], None),
    "map by decimal": Rendered(_map(pa.decimal128(10, 8), (Decimal(0), 1)), ['{"0E-8":1}'], None),
    "map by boolean": Rendered(_map(pa.bool_(), (True, 1)), ['{"true":1}'], None),
    "map by date": Rendered(_map(pa.date32(), (date(2020, 1, 1), 1)), ['{"18262":1}'], None),
    "map by timestamp": Rendered(_map(pa.timestamp("ms", "UTC"), (5, 1)), ['{"5000":1}'], None),
    "map by time": Rendered(_map(pa.time64("us"), (5, 1)), ['{"5000":1}'], None, None),
    "struct": Rendered(pa.array(_STRUCTS, _STRUCT), ['{"b":[{},{"c":"x"}]}', None, '{"a":1}', "{}"], None),
    "struct with one full field": Rendered(
        pa.array([{"a": None, "b": 1, "c": 2}, {"a": 3, "b": 4, "c": None}]), ['{"b":1,"c":2}', '{"a":3,"b":4}'], None
    ),
    "struct without fields": Rendered(pa.array([{}, None], pa.struct([])), ["{}", None], None, ARROW),
    "union": Rendered(
        pa.UnionArray.from_dense(
            pa.array([1, 0, 1], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1.0]), pa.array(["a", None])]
        ),
        ['"a"', "1.0", None],
        None,
        None,
    ),
}  # fmt: skip

KEPT_NULLS = ['{"a":null,"b":[{"c":null},{"c":"x"}]}', None, '{"a":1,"b":null}', '{"a":null,"b":null}']
"""Return the struct as JSON with `keep_nulls`."""
