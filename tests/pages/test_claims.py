"""docs/broker_storage.md has a row for each claim of the article, and every test that a row names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_test_ids import ids_by_test

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "broker_storage.md").read_text(encoding="utf-8")
CLAIMS = 46
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| C\d.*$", PAGE, re.MULTILINE)]
MIN_TERMS = 4
"""Minimum words of a reason why there is no test."""


def test_every_claim_has_one_row_in_order() -> None:
    assert [row[0] for row in ROWS] == [f"C{number}" for number in range(1, CLAIMS + 1)]
    assert {len(row) for row in ROWS} == {4}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_claim_has_tests_that_exist_or_a_reason(row: list[str]) -> None:
    marked = re.findall(r"`([^`]+)`", row[3])
    tests = [text for text in marked if "::" in text]
    for test in tests:
        file, name = test.split("::")
        assert (ROOT / "tests" / file).is_file(), test
        assert name in ids_by_test(ROOT / "tests" / file), f"there is no {test}"
    reason = re.sub(r"`[^`]*`|,", "", row[3]).split()
    assert tests or len(reason) >= MIN_TERMS, f"{row[0]}: neither a test nor a reason"
