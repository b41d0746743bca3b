"""Filters that Spark pushes: which of them the source takes, and what is fetched then."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from spark_producer.common.cluster import TopicPartition
from spark_producer.datasource.read.pushed_filters import PushedFilters

pytestmark = pytest.mark.covers("RD17")

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
MILLIS = int(MOMENT.timestamp() * 1000)


def pushed(*filters: Filter) -> tuple[PushedFilters, list[Filter]]:
    made = PushedFilters()
    return made, made(filters)


def kept(made: PushedFilters) -> set[tuple[str, int]]:
    return {(t, p) for t in ("a", "ab", "b") for p in range(3) if made.keeps(TopicPartition(t, p))}


def test_partitions_and_topics_are_left_out_whole() -> None:
    made, left = pushed(EqualTo(("topic",), "a"), In(("partition",), (0, 2)), IsNotNull(("partition",)))
    assert (left, kept(made)) == ([], {("a", 0), ("a", 2)})
    made, left = pushed(StringStartsWith(("topic",), "a"), Not(EqualTo(("partition",), 1)), LessThan(("partition",), 2))
    assert (left, kept(made)) == ([], {("a", 0), ("ab", 0)})


@pytest.mark.parametrize(
    ("given", "first", "end"),
    [
        (EqualTo(("offset",), 5), 5, 6),
        (EqualNullSafe(("offset",), 5), 5, 6),
        (GreaterThan(("offset",), 5), 6, None),
        (GreaterThanOrEqual(("offset",), 5), 5, None),
        (LessThan(("offset",), 5), 0, 5),
        (LessThanOrEqual(("offset",), 5), 0, 6),
    ],
)
def test_offsets_bound_the_ranges(given: Filter, first: int, end: int | None) -> None:
    made, left = pushed(given)
    assert (left, made.first_offset, made.end_offset) == ([], first, end)


def test_offsets_in_a_list_bound_the_ranges_and_spark_does_the_rest() -> None:
    given = In(("offset",), (9, 3, 5))
    made, left = pushed(given, LessThan(("offset",), 100))
    assert (left, made.first_offset, made.end_offset) == ([given], 3, 10)


@pytest.mark.parametrize(
    ("given", "first"),
    [
        (GreaterThanOrEqual(("timestamp",), MOMENT), MILLIS),
        (GreaterThan(("timestamp",), MOMENT), MILLIS + 1),
        (GreaterThanOrEqual(("timestamp",), MOMENT + timedelta(microseconds=1)), MILLIS + 1),
        (EqualTo(("timestamp",), MOMENT), MILLIS),
        (In(("timestamp",), (MOMENT + timedelta(1), MOMENT)), MILLIS),
        (LessThan(("timestamp",), MOMENT), 0),
        (Not(GreaterThan(("timestamp",), MOMENT)), 0),
        (GreaterThan(("timestamp",), MOMENT.replace(tzinfo=None)), 0),
    ],
)
def test_a_timestamp_bounds_the_start_alone_and_spark_evaluates_it_nevertheless(given: Filter, first: int) -> None:
    made, left = pushed(given)
    assert (left, made.first_timestamp) == ([given], first)


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("partition",), None),
        EqualTo(("partition",), True),
        In(("partition",), (1, None)),
        Not(EqualTo(("offset",), 5)),
        EqualTo(("offset",), "5"),
        IsNull(("offset",)),
        IsNotNull(("key",)),
        EqualTo(("headers", "key"), "x"),
    ],
    ids=str,
)
def test_what_the_source_does_not_take_stays_with_spark(given: Filter) -> None:
    made, left = pushed(given)
    assert left == [given]
    assert left[0] is given
    assert (made.tests, made.first_offset, made.end_offset) == ([], 0, None)


def test_spark_takes_it_for_the_method_of_its_own_class() -> None:
    """Otherwise it would refuse every read while its own setting for pushed filters is off."""
    made = pickle.loads(pickle.dumps(PushedFilters()))
    assert made.__func__ is DataSourceReader.pushFilters
