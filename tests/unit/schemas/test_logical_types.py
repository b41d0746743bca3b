"""The logical types of Avro 1.12: what their values become, which values they forbid, and when they count for nothing."""

from __future__ import annotations

import datetime
import struct
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import SchemaError
from spark_producer.schemas.plan import plan_of
from tests.unit.schemas.judging import encoded, read, record, structs

TEXT = "123e4567-e89b-12d3-a456-426614174000"
DAY_MS = 86_400_000
NOON = 43_200 * 10**9
BEFORE_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.UTC)
NANOS, MILLIS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("nanos", "millis"))
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}


def intervals(*parts: tuple[int, int, int]) -> Any:
    """Months, days and nanoseconds."""
    rows: Any = [pa.scalar(each, pa.month_day_nano_interval()) for each in parts]
    return pa.array(rows, pa.month_day_nano_interval())


def of(form: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": form, "logicalType": logical} | more


def fixed(size: int, logical: str = "none", **more: Any) -> dict[str, Any]:
    return of("fixed", logical, name="F", size=size, **more)


def values(schema: Any, column: Any) -> tuple[list[Any], dict[int, str]]:
    """Return fastavro's values of the rows that fit, and the errors of the others."""
    whole = record(("a", schema))
    found = encoded(whole, structs(a=column))
    assert {path for path, _ in found.unfit.values()} <= {"value.a"}
    return [row["a"] for row in read(whole, found.rows)], {row: reason for row, (_, reason) in found.unfit.items()}


@pytest.mark.parametrize(
    ("schema", "column", "wanted", "reason"),
    [
        (of("string", "uuid"), pa.array([TEXT, TEXT.upper()]), [uuid.UUID(TEXT)] * 2, ""),
        (
            of("string", "uuid"),
            pa.array(["not-a-uuid", TEXT[:-1], TEXT + "0", TEXT.replace("-", ""), "{" + TEXT[2:] + "}", TEXT[:-1] + "g", "",
                      TEXT[:8] + "0" + TEXT[9:], "é" + TEXT[2:]]),
            [], "it is not a UUID, such as",
        ),
        (fixed(16, "uuid"), pa.array([TEXT, TEXT.upper()]), [uuid.UUID(TEXT).bytes] * 2, ""),
        (fixed(16, "uuid"), pa.array(["x" * 16, "x" * 36]), [], "it is not a UUID"),
        (fixed(16, "uuid"), pa.array([uuid.UUID(TEXT).bytes]), [uuid.UUID(TEXT).bytes], ""),
        (fixed(16, "uuid"), pa.array([b"x" * 15, b"x" * 36]), [], "it does not have 16 bytes"),
        (of("int", "time-millis"), pa.array([DAY_MS - 1], pa.int32()), [datetime.time(23, 59, 59, 999_000)], ""),
        (of("int", "time-millis"), pa.array([DAY_MS, -1, 90_000_000], pa.int32()), [], "it is not a time of day"),
        (of("int", "time-millis"), pa.array([NOON], pa.time64("ns")), [datetime.time(12)], ""),
        (of("long", "time-micros"), pa.array([NOON + 1000, NOON + 1999], pa.time64("ns")), [datetime.time(12, 0, 0, 1)] * 2, ""),
        (of("long", "time-micros"), pa.array([43_200], pa.time32("s")), [datetime.time(12)], ""),
        (of("long", "time-micros"), pa.array([1000 * DAY_MS, -1, 2**62]), [], "it is not a time of day"),
        (of("long", "time-micros"), pa.array([7, 8], pa.int32()), [datetime.time(0, 0, 0, 7), datetime.time(0, 0, 0, 8)], ""),
        (of("int", "date"), pa.array([-1], pa.date32()), [datetime.date(1969, 12, 31)], ""),
        (of("long", "timestamp-nanos"), pa.array([-1, 0], pa.timestamp("us", "UTC")), [-1000, 0], ""),
        (of("long", "local-timestamp-nanos"), pa.array([5], pa.timestamp("us")), [5000], ""),
        (NANOS, pa.array([2**53 + 2**52, -(2**60)], pa.timestamp("us", "UTC")), [], "it does not fit into 64 bits"),
        (MILLIS, pa.array([-1], pa.timestamp("us", "UTC")), [BEFORE_1970], ""),
        (LOCAL, pa.array([1], pa.timestamp("us")), [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)], ""),
        (fixed(12, "duration"), pa.array([0, 86_400_007_000], pa.duration("us")), [bytes(12), struct.pack("<3I", 0, 1, 7)], ""),
        (fixed(12, "duration"), pa.array([-1000, -86_400_000_000], pa.duration("us")), [], "it is negative"),
        (fixed(12, "duration"), pa.array([1, 86_400_000_001], pa.duration("us")), [], "a fraction of a millisecond"),
        (fixed(12, "duration"), intervals((3, 4, 5_000_000)), [struct.pack("<3I", 3, 4, 5)], ""),
        (fixed(12, "duration"), intervals((-3, 4, 0), (0, 0, -1_000_000)), [], "it is negative"),
        (fixed(12, "duration"), intervals((0, 0, 2**32 * 1_000_000)), [], "a part of it does not fit"),
        (fixed(12, "duration"), pa.array([b"x" * 12]), [b"x" * 12], ""),
        (fixed(12, "duration"), pa.array([b"x" * 11]), [], "it does not have 12 bytes"),
        (of("bytes", "decimal", precision=5, scale=2), pa.array([Decimal("-1.10")], pa.decimal128(5, 2)), [Decimal("-1.10")], ""),
        (fixed(3, "decimal", precision=5, scale=2), pa.array([Decimal("999.99")], pa.decimal128(5, 2)), [Decimal("999.99")], ""),
        (fixed(4), pa.array([b"abcd"]), [b"abcd"], ""),
        (fixed(4), pa.array([b"abc", b"abcde", b""]), [], "it does not have 4 bytes"),
        (fixed(0), pa.array([b""]), [b""], ""),
    ],
    ids=str,
)  # fmt: skip
def test_values_that_a_logical_type_allows_are_written_and_others_are_rows_that_do_not_fit(
    schema: Any, column: Any, wanted: list[Any], reason: str
) -> None:
    found, unfit = values(schema, column)
    assert found == wanted
    assert list(unfit) == ([] if wanted else list(range(len(column))))
    assert all(each.startswith(reason) or reason in each for each in unfit.values())
    nullable, _ = values([schema, "null"], pa.concat_arrays([column, pa.nulls(1, column.type), column]))
    assert nullable == [*wanted, None, *wanted]
    assert values(schema, column[1:])[0] == wanted[1:]


@pytest.mark.parametrize(
    ("number", "content"),
    [
        ("1.10", "06026e04"),
        ("-1.10", "06029204"),
        ("0.00", "06020004"),
        ("127.00", "0804319c04"),
        ("-1234567890123456789012345678901234.56", "221ee8391c4028f0211513be8e8d23454004"),
        ("99999999999999999999.99", "1814021e19e0c9bab23fffff04"),
    ],
)
def test_big_decimals_have_the_bytes_that_java_writes(number: str, content: str) -> None:
    """Written by Avro 1.12.1 for Java, with Conversions.BigDecimalConversion."""
    column: Any = pa.array([Decimal(number)], pa.decimal128(38, 2))
    found = encoded(record(("a", of("bytes", "big-decimal"))), structs(a=column))
    assert [row and row.hex() for row in found.rows] == [content]


@given(st.integers(0, 38), st.data())
def test_big_decimals_hold_the_number_and_the_scale(scale: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), max_size=5))
    column: Any = pa.array(
        [
            None if each is None else Decimal((int(each < 0), tuple(map(int, str(abs(each)))), -scale))
            for each in numbers
        ],
        pa.decimal128(38, scale),
    )
    whole = record(("a", ["null", of("bytes", "big-decimal")]))
    inner = record(("number", "bytes"), ("scale", "int"), name="Inner")
    for each, row in zip(numbers, read(whole, encoded(whole, structs(a=column)).rows), strict=True):
        if each is None:
            assert row["a"] is None
        else:
            (found,) = read(inner, [row["a"]])
            assert (int.from_bytes(found["number"], "big", signed=True), found["scale"]) == (each, scale)


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (of("string", "color"), pa.array(["x"])),
        (of("long", "time-millis"), pa.array([2**40])),
        (of("int", "timestamp-millis"), pa.array([-7], pa.int32())),
        (of("string", "date"), pa.array(["x"])),
        (of("bytes", "uuid"), pa.array([b"x"])),
        (fixed(15, "uuid"), pa.array([b"x" * 15])),
        (fixed(11, "duration"), pa.array([b"x" * 11])),
        (of("string", "big-decimal"), pa.array(["x"])),
        (of("bytes", "decimal"), pa.array([b"x"])),
        (of("bytes", "decimal", precision=0), pa.array([b"x"])),
        (of("bytes", "decimal", precision=True), pa.array([b"x"])),
        (of("bytes", "decimal", precision=2, scale=3), pa.array([b"x"])),
        (of("bytes", "decimal", precision=2, scale=-1), pa.array([b"x"])),
        (of("double", "decimal", precision=2), pa.array([1.5])),
        (of("int", "date", logicalType=["date"]), pa.array([7], pa.int32())),
    ],
    ids=str,
)
def test_a_logical_type_that_is_unknown_or_misapplied_counts_for_nothing(schema: Any, column: Any) -> None:
    node = plan_of(record(("a", schema)), pa.struct([("a", column.type)]), "value").children[0]
    bare = {name: each for name, each in schema.items() if name != "logicalType"}
    assert node == plan_of(record(("a", bare)), pa.struct([("a", column.type)]), "value").children[0]
    assert encoded(record(("a", schema)), structs(a=column)) == encoded(record(("a", bare)), structs(a=column))


def test_a_fixed_decimal_whose_precision_its_bytes_do_not_hold_is_none_and_takes_bytes() -> None:
    schema = fixed(2, "decimal", precision=9)
    assert encoded(record(("a", schema)), structs(a=pa.array([b"ab"]))).rows == [b"ab"]
    with pytest.raises(SchemaError, match=r"has decimal\(4, 0\)"):
        plan_of(record(("a", fixed(2, "decimal", precision=4))), pa.struct([("a", pa.binary())]), "value")


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.binary(), pa.timestamp("us")])
@pytest.mark.parametrize(
    "schema",
    [of("int", "date"), of("long", "timestamp-nanos"), of("bytes", "big-decimal"), of("int", "time-millis")],
    ids=str,
)
def test_columns_of_another_type_are_refused_on_the_driver(schema: Any, kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"field 'value\.a' has type .*, but the schema has "):
        plan_of(record(("a", schema)), pa.struct([("a", kind)]), "value")


@pytest.mark.parametrize("form", ["timestamp-nanos", "local-timestamp-nanos"])
def test_the_times_that_nanoseconds_of_64_bits_hold_are_their_whole_range(form: str) -> None:
    high = (2**63 - 1) // 1000
    kind = pa.timestamp("us", None if form.startswith("local") else "UTC")
    found, unfit = values(of("long", form), pa.array([high, -high, high + 1, -high - 1], kind))
    assert found == [1000 * high, -1000 * high]
    assert list(unfit) == [2, 3]


@given(st.lists(st.none() | st.uuids() | st.text("0123456789abcdefABCDEF-{}", max_size=40), max_size=20))
def test_uuids_are_those_that_python_reads_in_their_usual_form(texts: list[Any]) -> None:
    rows = [None if each is None else str(each) for each in texts]
    good = [isinstance(each, uuid.UUID) for each in texts if each is not None]
    column: Any = pa.array(rows, pa.string())
    for schema in (of("string", "uuid"), fixed(16, "uuid")):
        found, unfit = values(["null", schema], column)
        wanted = [each for each in texts if each is None or isinstance(each, uuid.UUID)]
        assert [
            each if each is None or isinstance(each, uuid.UUID) else uuid.UUID(bytes=each) for each in found
        ] == wanted
        assert len(unfit) == good.count(False)


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    schema = record(
        ("t", ["null", of("int", "time-millis")]), ("u", ["null", of("string", "uuid")]), ("f", ["null", fixed(2)])
    )
    mask = np.array([True, False])
    times = pa.array(np.array([-5, 5], np.int32), mask=mask)
    column = structs(t=times, u=pa.array([None, TEXT]), f=pa.array([None, b"ab"]))
    found = encoded(schema, column)
    assert found.unfit == {}
    assert read(schema, found.rows)[0] == {"t": None, "u": None, "f": None}
