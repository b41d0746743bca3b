"""What a peer said is shown without what controls terminals, and not too much of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.security.shown import MOST_SHOWN, shown


@given(st.text() | st.binary())
def test_what_is_shown_is_short_and_printable(said: str | bytes) -> None:
    assert shown(said).isprintable()
    assert len(shown(said)) <= MOST_SHOWN


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("Authentication failed", "Authentication failed"),
        (b"na\xc3\xafve", "naïve"),
        ("a\nb\x1b[31m", r"a\nb\x1b[31m"),
        ("\u202eright to left", r"\u202eright to left"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("x" * 300, "x" * 300),
        ("x" * 301, "x" * 299 + "…"),
        (b"\0" * 1000, (r"\x00" * 100)[:299] + "…"),
    ],
)
def test_what_is_seen_of_a_text(said: str | bytes, seen: str) -> None:
    assert shown(said) == seen
