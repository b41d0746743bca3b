"""The filters of a query on topic, partition, offset and timestamp, which decide what is fetched at all.

With `spark.sql.python.filterPushdown.enabled` Spark passes a query's filters to `DataSourceReader.pushFilters`. Without it, it
refuses a reader whose class overrides that method (DATA_SOURCE_PUSHDOWN_DISABLED). So the reader has an instance of
`PushedFilters` as an attribute of that name, which Spark takes for the method of its own class.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from pyspark.sql.datasource import DataSourceReader

from spark_producer.common.cluster import TopicPartition

Filter: TypeAlias = Any
"""A filter of PySpark, which has them since 4.1."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, wanted: value in wanted,
    "StringStartsWith": lambda value, wanted: value.startswith(wanted),
    "StringEndsWith": lambda value, wanted: value.endswith(wanted),
    "StringContains": lambda value, wanted: wanted in value,
}
"""The filters on topic and partition by the name of their class: whether a value passes."""

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")


class PushedFilters:
    """The filters that Spark has pushed: the topic-partitions, offsets and timestamps that pass them."""

    def __init__(self) -> None:
        self.tests: list[tuple[str, Filter]] = []
        """The filters on topic and partition, by the column."""
        self.first_offset = 0
        self.end_offset: int | None = None
        """The offset after the last one that passes; None: no bound."""
        self.first_timestamp = 0
        """Milliseconds since 1970 of the first timestamp that passes; 0: no bound."""

    @property
    def __func__(self) -> Callable[..., Any] | None:
        """The function that Spark compares with that of its own class (`plan_data_source_read`)."""
        return getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Sequence[Filter]) -> list[Filter]:
        """Take over what the source can do, and return the filters that Spark must evaluate nevertheless."""
        return [each for each in filters if not self._takes(each)]

    def keeps(self, topic_partition: TopicPartition) -> bool:
        """Return whether records of a topic-partition can pass."""
        values = {"topic": topic_partition.topic, "partition": topic_partition.partition}
        return all(_passes(values[column], each) for column, each in self.tests)

    def _takes(self, given: Filter) -> bool:
        """Record a filter, and return whether the source alone ensures it."""
        name, column = type(given).__name__, _column(given)
        if name == "IsNotNull":
            return column in _NEVER_NULL
        if column in ("topic", "partition"):
            if not _is_known(given, str if column == "topic" else int):
                return False
            self.tests.append((column, given))
            return True
        if column == "offset" and name != "Not" and _is_known(given, int):
            return self._takes_offset(name, given.value)
        if column == "timestamp" and name != "Not" and _is_known(given, datetime):
            self._note_timestamp(name, given.value)
        return False

    def _takes_offset(self, name: str, value: Any) -> bool:
        first, end = 0, None
        match name:
            case "EqualTo" | "EqualNullSafe":
                first, end = value, value + 1
            case "GreaterThan":
                first = value + 1
            case "GreaterThanOrEqual":
                first = value
            case "LessThan":
                end = value
            case "LessThanOrEqual":
                end = value + 1
            case "In":
                first, end = min(value), max(value) + 1
        self.first_offset = max(self.first_offset, first)
        if end is not None:
            self.end_offset = end if self.end_offset is None else min(self.end_offset, end)
        return name != "In"

    def _note_timestamp(self, name: str, value: Any) -> None:
        """Record the first timestamp that passes.

        Earlier offsets than that of the first record with at least this timestamp cannot pass, whatever the order of timestamps.
        There is no such bound for the end.
        """
        if name in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual", "GreaterThan", "In"):
            micros = _micros(min(value) if name == "In" else value) + (name == "GreaterThan")
            self.first_timestamp = max(self.first_timestamp, -(-micros // 1000))


def _column(given: Filter) -> str | None:
    """Return the name of the column that a filter is about; None if it is within a column."""
    attribute: tuple[str, ...] = getattr(_inner(given), "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _inner(given: Filter) -> Filter:
    """Return the filter that a `Not` has, or the filter itself."""
    return getattr(given, "child", given)


def _is_known(given: Filter, kind: type) -> bool:
    """Return whether a filter is one of those above, with values of a type."""
    inner = _inner(given)
    if type(inner).__name__ not in _TESTS:
        return False
    values: tuple[Any, ...] = inner.value if type(inner).__name__ == "In" else (inner.value,)
    return bool(values) and all(type(each) is kind and _has_zone(each) for each in values)


def _has_zone(value: Any) -> bool:
    return not isinstance(value, datetime) or value.tzinfo is not None


def _passes(value: Any, given: Filter) -> bool:
    inner = _inner(given)
    return _TESTS[type(inner).__name__](value, inner.value) is (inner is given)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
