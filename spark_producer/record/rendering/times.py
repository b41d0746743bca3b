"""Dates, times and intervals: as Spark formats them in a session whose time zone is UTC."""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_producer.record.rendering.strings import TEXT, joined
from spark_producer.record.rendering.untyped import Column, pa, pc

DAY_US = 86_400_000_000
_FIRST, _LAST = (int(np.datetime64(day, "D").astype(np.int64)) for day in ("-9999-01-01", "9999-12-31"))
"""The first and the last day, counted from 1970, whose year has four digits."""


def dates(column: Column) -> Column:
    """Return dates in ISO 8601; a year after 9999 begins with a plus."""
    days = column.cast(pa.date32()).cast(pa.int32())
    far = _far(days, _FIRST, _LAST)
    text = column.cast(pa.date32()).cast(TEXT)
    return text if far is None else pc.replace_with_mask(text, far, _far_dates(days.filter(far)))


def _far(values: Column, first: int, last: int) -> Column | None:
    """Return a mask of the values outside of these bounds; None if there are none."""
    far = pc.fill_null(pc.or_(pc.less(values, first), pc.greater(values, last)), False)
    return far if pc.any(far).as_py() else None


def _far_dates(days: Column) -> Column:
    text = pa.array(np.datetime_as_string(np.asarray(days).astype("datetime64[D]")).tolist(), TEXT)
    return pc.if_else(pc.less(days, 0), text, joined("+", text))


def timestamps(column: Column) -> Column:
    """Return timestamps as `2013-01-01 05:17:00.123456`, without their zone; those with a zone are in UTC.

    Seconds have six decimals, or nine if a row has nanoseconds, which Spark does not support.
    """
    if column.type.unit == "ns":
        text = column.cast(pa.timestamp("ns")).cast(TEXT)
        return pc.replace_substring_regex(text, "000$", "")
    column = column.cast(pa.timestamp("us"))
    values = column.cast(pa.int64())
    far = _far(values, _FIRST * DAY_US, (_LAST + 1) * DAY_US - 1)
    text = column.cast(TEXT)
    return text if far is None else pc.replace_with_mask(text, far, _far_timestamps(np.asarray(values.filter(far))))


def _far_timestamps(values: Any) -> Column:
    days, rest = np.divmod(values, DAY_US)
    return joined(_far_dates(pa.array(days)), " ", pa.array(rest).cast(pa.time64("us")).cast(TEXT))


def json_timestamps(column: Column) -> Column:
    """Return timestamps in the format of `as_records`: with a T, and with a Z if they have a zone."""
    text = pc.replace_substring(timestamps(column), " ", "T", max_replacements=1)
    return joined(text, "Z") if column.type.tz else text


def short_timestamps(column: Column) -> Column:
    """Return timestamps without the zeros at the end of their seconds, as Spark's cast to string does."""
    return _without_zeros(timestamps(column))


def _without_zeros(text: Column) -> Column:
    return pc.utf8_rtrim(pc.utf8_rtrim(text, characters="0"), characters=".")


def times(column: Column) -> Column:
    """Return times of day as `05:17:00.1`, without zeros at the end, with nanoseconds if there are any.

    Raises:
        pyarrow.ArrowInvalid: a time is before 0:00 or not before 24:00.
    """
    unit = "ns" if column.type.unit == "ns" else "us"
    column = column.cast(pa.time64(unit))
    day = DAY_US if unit == "us" else DAY_US * 1000
    if _far(column.cast(pa.int64()), 0, day - 1) is not None:
        raise pa.ArrowInvalid("a time of day is before 0:00 or not before 24:00")
    return _without_zeros(column.cast(TEXT))


def durations(column: Column) -> Column:
    """Return durations as Spark's intervals of days and seconds: `INTERVAL '1 02:03:04.5' DAY TO SECOND`."""
    unit = "ns" if column.type.unit == "ns" else "us"
    day = DAY_US if unit == "us" else DAY_US * 1000
    values = pc.fill_null(column.cast(pa.duration(unit)).cast(pa.int64()), 0)
    amounts = np.asarray(values)
    days, rest = np.divmod(
        np.abs(amounts).astype(np.uint64), np.uint64(day)
    )  # the least int64 is its own absolute value
    time = times(pa.array(rest.astype(np.int64)).cast(pa.time64(unit)))
    sign = pc.if_else(pc.less(values, 0), pa.scalar("-", TEXT), pa.scalar("", TEXT))
    text = joined("INTERVAL '", sign, pa.array(days.astype(np.int64)).cast(TEXT), " ", time, "' DAY TO SECOND")
    return pc.if_else(column.is_valid(), text, pa.scalar(None, TEXT))


def calendar_intervals(column: Column) -> Column:
    """Return months, days and nanoseconds as `CalendarInterval.toString` does: `1 years 2 months 3 days 4 hours 5.5 seconds`."""
    rows = column.to_pylist()  # the type is rare, and Arrow has no kernels for its three parts
    return pa.array([None if row is None else _calendar_interval(*row) for row in rows], TEXT)


def _calendar_interval(months: int, days: int, nanoseconds: int) -> str:
    sign = -1 if nanoseconds < 0 else 1
    minutes, rest = divmod(abs(nanoseconds), 60_000_000_000)
    years, months = _toward_zero(months, 12)
    hours, minutes = divmod(minutes, 60)
    found = [(years, "years"), (months, "months"), (days, "days"), (sign * hours, "hours"), (sign * minutes, "minutes")]
    parts = [f"{amount} {name}" for amount, name in found if amount]
    if rest:
        seconds = f"{rest // 1_000_000_000}.{rest % 1_000_000_000:09d}".rstrip("0").rstrip(".")
        parts.append(f"{'-' if sign < 0 else ''}{seconds} seconds")
    return " ".join(parts) or "0 seconds"


def _toward_zero(value: int, by: int) -> tuple[int, int]:
    """Return the quotient, rounded toward zero as in Java, and the rest."""
    whole, rest = divmod(abs(value), by)
    return (-whole, -rest) if value < 0 else (whole, rest)
