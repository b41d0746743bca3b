"""Properties files are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.java_properties import properties_of, property_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("key=value", "value"),
        ("key = value ", "value "),
        ("key:value", "value"),
        ("  key\t:  value", "value"),
        ("key value", "value"),
        ("key", ""),
        ("key=", ""),
        ("key==value", "=value"),
        ("key=a=b:c", "a=b:c"),
        ("#key=comment\n!key=comment\nkey=value", "value"),
        ("key=a\\\n   b\\\r\n\tc", "abc"),
        ("key=a\\\\\nb=c", "a\\"),
        ("key=a\\\n#b", "a#b"),
        ("key=first\nkey=second", "second"),
        (r"k\u0065y=\u00e4\t\n\\\:\=\q", "ä\t\n\\:=q"),
        ("other=x", None),
        ("keys=x\nke=y", None),
        ("", None),
        ("key=a\\", "a"),
        ("other=x\\\nkey=y", None),
        ("a=1\rkey=b\r\n", "b"),
    ],
)
def test_a_value_as_java_reads_it(text: str, value: str | None) -> None:
    assert property_of("key", text) == value


def test_a_key_may_hold_escaped_separators() -> None:
    assert property_of("a b:c=d", r"a\ b\:c\=d=value") == "value"


@given(st.text(max_size=200))
def test_anything_can_be_read(text: str) -> None:
    found = property_of("key", text)
    assert found is None or isinstance(found, str)


def test_entries_know_the_line_that_they_begin_on_and_how_they_are_parted() -> None:
    text = "# c\n\na=1\\\n  2\nb : 3\nc 4\nd\n"
    found = [(entry.line, entry.key, entry.value, entry.separator) for entry in properties_of(text)]
    assert found == [(3, "a", "12", "="), (5, "b", "3", ":"), (6, "c", "4", " "), (7, "d", "", "")]


@pytest.mark.parametrize(
    ("line", "malformed"),
    [
        (r"a=\u00e4", False), (r"a=\u00g4", True), (r"a=\u00e", True), (r"a=\\u", False), (r"a=\\\u", True), (r"\ux=1", True),
        (r"a=\:\u0041\u", True),
    ],
)  # fmt: skip
def test_a_backslash_and_u_want_four_digits(line: str, malformed: bool) -> None:
    assert [entry.malformed for entry in properties_of(line)] == [malformed]
