"""Columns of Protobuf decoded, with Google's library as the judge."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schemas.protobuf.judging import decode, expected, message_class
from tests.unit.schemas.protobuf.protobuf_schemas import files, messages

STRICTER = ("microseconds", "UTF-8", "no valid number")
"""Reasons for which the library reads what we do not: times of more than 64 bits, texts of proto2, and
fields with the number 0, which it skips in messages without fields."""


@pytest.mark.covers("RD22")
@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data(), files(required=False))
def test_values_are_those_of_googles_library(data: st.DataObject, file: Any) -> None:
    kind = message_class(file)
    values = data.draw(st.lists(messages(kind), max_size=5))
    found = decode(kind.DESCRIPTOR, [each.SerializeToString() for each in values])
    assert found.rows == [expected(each) for each in values]
    assert found.bad == 0


@pytest.mark.covers("RD22")
@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data(), files(required=False))
def test_messages_in_parts_are_merged(data: st.DataObject, file: Any) -> None:
    """One message after the other: fields twice, oneofs with several fields, parts of inner messages, and keys of maps twice."""
    kind = message_class(file)
    rows = [
        b"".join(each.SerializeToString() for each in data.draw(st.lists(messages(kind), max_size=3))) for _ in "ab"
    ]
    found = decode(kind.DESCRIPTOR, list(rows))
    assert found.rows == [expected(kind.FromString(each)) for each in rows]
    assert found.bad == 0


@pytest.mark.covers("RD22")
@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.data(), files(maps=False), files(maps=False, required=False))
def test_values_of_another_message_are_read_as_by_googles_library(data: st.DataObject, written: Any, read: Any) -> None:
    """Fields that are unknown, or written as another type, packed or not; and bytes that are no message at all."""
    kind = message_class(read)
    row = bytearray(data.draw(messages(message_class(written))).SerializePartialToString())
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3)):
        if place < len(row):
            row[place] = byte
    found = decode(kind.DESCRIPTOR, [b"", bytes(row), b""])
    try:
        judged = kind.FromString(bytes(row))
        if found.first is not None and any(each in found.first[1] for each in STRICTER):
            return
        value = expected(judged)
    except DecodeError:
        assert found.bad == 1
        assert found.rows[1] is None
        return
    except OverflowError:  # a time that Python does not have
        return
    assert found.first is None
    assert found.rows[1] == value
