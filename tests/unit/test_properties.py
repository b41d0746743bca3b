"""Properties files are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.properties import property_of


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
