"""The ranges of the tasks of a read. tests/spark/test_read_planning.py compares them with those of Spark's own class."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.datasource.read.driver.range_splitting import MAX_SHARED_OFFSETS, MIN_SHARED_TASKS, divide


def ranges(*sizes: int, start: int = 5) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", number), start, start + size) for number, size in enumerate(sizes)]


def sizes(tasks: list[tuple[OffsetRange, ...]]) -> list[int]:
    return [sum(each.end - each.start for each in task) for task in tasks]


def test_each_range_is_a_task_and_an_empty_one_is_none() -> None:
    assert divide(ranges(10, 0, 1), None, None) == [(each,) for each in ranges(10, 0, 1) if each.end > each.start]
    assert divide([], None, None) == []


def test_a_range_with_more_than_the_maximum_is_cut_into_equal_parts() -> None:
    assert sizes(divide(ranges(10, 3), None, 4)) == [3, 3, 4, 3]
    assert sizes(divide(ranges(8), None, 4)) == [4, 4]


def test_large_ranges_are_cut_until_there_are_enough() -> None:
    assert sizes(divide(ranges(10, 1000), 5, None)) == [10, 250, 250, 250, 250]
    assert sizes(divide(ranges(3), 10, None)) == [1, 1, 1], "no more tasks than offsets"
    assert sizes(divide(ranges(5, 5), 2, None)) == [5, 5], "there are enough already"


def test_both_options_together() -> None:
    assert sizes(divide(ranges(100), 2, 10)) == [10] * 10
    assert len(divide(ranges(100, 100), 8, 100)) == 8


def test_small_ranges_share_tasks_where_there_are_many() -> None:
    few = ranges(*[1] * MIN_SHARED_TASKS)
    assert len(divide(few, None, None)) == MIN_SHARED_TASKS
    many = ranges(*[1] * 20 * MIN_SHARED_TASKS)
    assert len(divide(many, None, None)) == MIN_SHARED_TASKS
    assert len(divide(many, 10, None)) == len(many), "who asks for tasks gets Spark's"
    assert len(divide(many, None, 1)) == len(many)
    large = ranges(*[MAX_SHARED_OFFSETS] * 20 * MIN_SHARED_TASKS)
    assert len(divide(large, None, None)) == len(large)


def test_ranges_share_a_task_until_it_has_the_wanted_offsets() -> None:
    assert sizes(divide(ranges(25, 25, 25, 25), None, None, 1000)) == [100]
    assert sizes(divide(ranges(25, 25, 25, 25), None, None, 50)) == [50, 50]
    assert sizes(divide(ranges(25, 25, 25, 25), None, None, 1)) == [25] * 4
    assert sizes(divide(ranges(3, 30, 9, 9), None, None, 10)) == [33, 18]
    assert sizes(divide(ranges(3, 30, 9, 9), None, 20, 10)) == [18, 15, 18], "the maximum counts more"


@given(
    st.lists(st.integers(0, 3000), max_size=80),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(1, 2000),
    st.none() | st.integers(1, 2000),
)
def test_every_offset_is_in_one_task(
    counts: list[int], minimum: int | None, maximum: int | None, wanted_size: int | None
) -> None:
    wanted = ranges(*counts)
    tasks = divide(wanted, minimum, maximum, wanted_size)
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for task in tasks:
        assert len({each.topic_partition for each in task}) == len(task), "a task reads a topic-partition once"
        for each in task:
            assert each.end > each.start
            found.setdefault(each.topic_partition, []).append(each)
    for each in wanted:
        parts = found.get(each.topic_partition, [])
        assert [part.start for part in parts] + [each.end] == [each.start] + [part.end for part in parts] or not counts
    if maximum is not None:
        assert all(size <= maximum for size in sizes(tasks))
