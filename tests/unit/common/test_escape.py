"""Texts of peers and files reach terminals and logs without what could control them, and not too much of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.escape import MAX_LENGTH, for_log

CONTROLLING = (
    "\x00\x07\x08\t\n\r\x1b\x7f\x80\x85\x9b\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
    "\ufeff\ud800\U000e0041"
)
"""C0 and C1 controls, ends of lines, bidirectional marks and overrides, format characters, a lone surrogate, a tag character."""


@given(st.text() | st.binary(), st.integers(1, 400))
def test_the_result_is_printable_and_no_longer_than_the_limit(text: str | bytes, limit: int) -> None:
    assert for_log(text).isprintable()
    assert len(for_log(text)) <= MAX_LENGTH
    assert len(for_log(text, limit)) <= limit


@pytest.mark.parametrize("character", CONTROLLING, ids=ascii)
def test_what_controls_a_terminal_or_a_log_is_escaped(character: str) -> None:
    escaped = character.encode("unicode_escape").decode()
    assert for_log(f"a{character}b") == f"a{escaped}b"
    assert for_log(f"a{character}b", limit=None) == f"a{escaped}b"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Authentication failed", "Authentication failed"),
        (b"na\xc3\xafve", "naïve"),
        ("a\nb\x1b[31m", r"a\nb\x1b[31m"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("x" * 300, "x" * 300),
        ("x" * 301, "x" * 299 + "…"),
        ("é".encode() * 301, "é" * 299 + "…"),
        (b"\0" * 1000, r"\x00" * 74 + "…"),
        ("x" * 297 + "\u202e", "x" * 297 + "…"),
        ("\U0001f600" * 1000, "\U0001f600" * 299 + "…"),
    ],
)
def test_what_is_seen_of_a_text(text: str | bytes, seen: str) -> None:
    assert for_log(text) == seen


def test_no_escape_is_cut_into_two() -> None:
    for limit in range(2, 30):
        assert for_log("\u202e" * 9, limit) in (r"\u202e" * ((limit - 1) // 6) + "…", r"\u202e" * 9)


def test_without_a_limit_nothing_is_cut() -> None:
    assert for_log("x" * 100_000, limit=None) == "x" * 100_000
    assert for_log(b"\n" * 1000, limit=None) == r"\n" * 1000
