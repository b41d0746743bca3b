"""Reports of what was written: how they add up, and how they read."""

from __future__ import annotations

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.metrics import OffsetRange, WriteReport, merge

FIRST = WriteReport({("a", 0): OffsetRange(0, 9, 10), ("a", 1): OffsetRange(5, 5, 1)}, 11, 1000, 2, 1, 0)
SECOND = WriteReport({("a", 0): OffsetRange(20, 29, 10), ("b", 0): OffsetRange(7, 8, 2)}, 12, 2000, 3, 2, 4)


def test_ranges_cover_both_and_count_only_what_was_written() -> None:
    assert OffsetRange(0, 9, 10).merge(OffsetRange(20, 29, 10)) == OffsetRange(0, 29, 20)
    assert OffsetRange(20, 29, 10).merge(OffsetRange(0, 9, 10)) == OffsetRange(0, 29, 20)


def test_reports_add_up() -> None:
    assert merge([FIRST, SECOND]) == WriteReport(
        {("a", 0): OffsetRange(0, 29, 20), ("a", 1): OffsetRange(5, 5, 1), ("b", 0): OffsetRange(7, 8, 2)},
        23, 3000, 5, 3, 4,
    )  # fmt: skip
    assert FIRST.ranges["a", 0] == OffsetRange(0, 9, 10), "the parts stay what they were"


def test_no_reports_add_up_to_nothing() -> None:
    assert merge([]) == WriteReport({})


def test_a_report_travels_between_processes() -> None:
    assert pickle.loads(pickle.dumps(FIRST)) == FIRST


offsets = st.tuples(st.integers(0, 2**60), st.integers(0, 1000), st.integers(1, 1000)).map(
    lambda parts: OffsetRange(parts[0], parts[0] + parts[1], parts[2])
)
reports = st.lists(
    st.builds(
        WriteReport,
        st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), offsets, max_size=3),
        *[st.integers(0, 2**50)] * 5,
    ),
    max_size=3,
)


@settings(max_examples=40)
@given(reports, reports)
def test_it_does_not_matter_in_which_order_reports_are_merged(
    some: list[WriteReport], others: list[WriteReport]
) -> None:
    assert merge([merge(some), merge(others)]) == merge([*others, *some])
