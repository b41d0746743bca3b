"""The column `topic`: strings, or a dictionary of them, and every complaint about a topic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_producer.errors import RecordError, SchemaError
from tests.unit.record.test_columns import array, read


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_topics_are_numbered_in_the_order_of_their_first_row(kind: Any) -> None:
    columns = read(None, value=array(["v"] * 4, pa.string()), topic=array(["b", "a", "b", "c"], kind))
    assert columns.topics == ("b", "a", "c")
    assert columns.topic_codes is not None
    assert columns.topic_codes.tolist() == [0, 1, 0, 2]
    assert [columns.topic_of(row) for row in range(4)] == ["b", "a", "b", "c"]


def test_one_topic_needs_no_codes() -> None:
    columns = read(None, value=array(["v"] * 2, pa.string()), topic=array(["a", "a"], pa.string()))
    assert (columns.topics, columns.topic_codes) == (("a",), None)


def test_the_option_overrides_the_column_also_its_nulls() -> None:
    columns = read("option", value=array(["v"], pa.string()), topic=array([None], pa.string()))
    assert (columns.topics, columns.topic_codes) == (("option",), None)


@pytest.mark.covers("KP15")
def test_a_null_topic_is_named_by_its_row() -> None:
    with pytest.raises(
        RecordError, match=r"row 1001 of the task has a null topic\. Fill it, or set the option 'topic'"
    ):
        read(None, first_row=1000, value=array(["v"] * 3, pa.string()), topic=array(["a", None, "b"], pa.string()))


def test_no_topic_at_all_and_a_topic_of_another_type() -> None:
    with pytest.raises(SchemaError, match=r"no topic is given\. Set the option 'topic', or add a column 'topic'"):
        read(None, value=array(["v"], pa.string()))
    for kind in (pa.binary(), pa.dictionary(pa.int8(), pa.binary())):
        with pytest.raises(
            SchemaError, match=r"column 'topic' must be a string, or a dictionary of strings, not .*\. Cast it"
        ):
            read(None, value=array(["v"], pa.string()), topic=array([b"a"], kind))


def topic_dictionary(rows: list[int | None], names: list[str | None], kind: Any = None, index: Any = None) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(rows, index or pa.int8()), pa.array(names, kind or pa.string()))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("index", [pa.int8(), pa.uint16(), pa.int32(), pa.uint64()])
def test_a_dictionary_of_topics_says_which_its_rows_have(kind: Any, index: Any) -> None:
    """As pandas' categoricals come: topics that no row has are not asked for, and one that is there twice is one."""
    column = topic_dictionary([2, 0, 4, 2, 1], ["a", "c", "b", "unused", "a", None], kind, index)
    values = array(["v"] * 5, pa.string())
    columns = read(None, value=values, topic=column)
    assert columns.topics == ("b", "a", "c")
    assert columns.topic_codes is not None
    assert columns.topic_codes.tolist() == [0, 1, 1, 0, 2]
    assert columns.topic_codes.dtype == np.int32
    tail = read(None, value=values[1:3], topic=column[1:3])
    assert (tail.topics, tail.topic_codes) == (("a",), None)
    assert read("option", value=values, topic=column).topics == ("option",)


@pytest.mark.parametrize(
    "column",
    [topic_dictionary([0, 1, None], ["a", "b"]), topic_dictionary([0, 1, 2], ["a", "b", None])],
    ids=["row", "category"],
)
def test_a_null_topic_in_a_dictionary_is_named_by_its_row(column: Any) -> None:
    with pytest.raises(RecordError, match="row 1002 of the task has a null topic"):
        read(None, first_row=1000, value=array(["v"] * 3, pa.string()), topic=column)


def test_a_topic_in_a_dictionary_that_is_not_utf8() -> None:
    names = pa.array([b"\xff"], pa.binary()).view(pa.string())
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), names)
    with pytest.raises(RecordError, match="a topic name in rows 7 to 8 of the task is not UTF-8"):
        read(None, first_row=7, value=array(["v"] * 2, pa.string()), topic=column)
