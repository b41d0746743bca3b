"""The tables of ids in tests/ids.md: every id has a row, every test that a row names exists and covers the id."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "tests" / "ids.md"
HEADING = "## Test ids of "
COLUMNS = ["id", "what", "test, or why there is none"]

FAMILIES: dict[str, int | tuple[int, ...]] = {
    "BP": 13, "BC": 11, "RA": 32, "CA": 10, "PT": 5, "RR": 2, "KY": 2, "HI": 2, "PB": 11, "FU": 2, "MD": 1, "IN": 3,
    "TX": 1, "KP": 20, "MP": 1, "MB": 21, "RB": 18, "DR": 20, "LR": 1, "LB": 4, "LS": 1, "LZ": 1, "CR": 1, "VB": 0, "EB": 0,
    "PR": 3, "SN": 49, "TM": 33, "NW": 12, "MT": 8, "AV": 1,
    "SEC": 46,
    "PUB": 7, "J": 11, "W": 8, "IDX": 2, "GC": 4, "DIR": 7,
    "RAH": 5, "RC": 2, "TAIL": 9, "RO": 2,
    "COM": 25,
    "RD": 22,
    "JS": 5,
}  # fmt: skip
"""Letters of each family of ids that the page has a table of, and how many there are, or which; 0 if its ids have no numbers.

Add the families of a new table here.
"""


class Row(NamedTuple):
    """One row: its ids, the tests that it names, and what else its last cell says."""

    ids: list[str]
    tests: list[str]
    reason: str


def ids_in(cell: str) -> list[str]:
    """`RA1`, `RA1, RA3` and `RA1–RA3`."""
    found: list[str] = []
    for part in re.split(r",\s*", cell):
        whole = re.fullmatch(r"([A-Z]{1,4})(\d*)(?:–([A-Z]{1,4})(\d+))?", part)
        assert whole is not None, f"{part!r} is neither an id nor a range of ids"
        family, first, last_family, last = whole.groups()
        assert last_family in (None, family), f"{part!r} begins and ends in different families"
        found += [f"{family}{number}" for number in range(int(first), int(last) + 1)] if last else [family + first]
    return found


def rows_of(page: str) -> list[Row]:
    """All rows of the tables under headings of test ids."""
    rows = []
    for section in re.split(r"^(?=## )", page, flags=re.MULTILINE):
        if not section.startswith(HEADING):
            continue
        lines = [line.strip() for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        assert cells, f"no table: {section.splitlines()[0]}"
        for row in cells[2:]:
            assert len(row) == len(COLUMNS), f"a row has the columns {COLUMNS}: {row}"
            ids, _, last = row
            rows.append(Row(ids_in(ids), re.findall(r"`([\w/]+\.py::\w+)`", last), re.sub(r"`[^`]*`", "", last)))
    return rows


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))


@functools.cache
def ids_by_test(path: Path) -> dict[str, frozenset[str]]:
    """The tests of a file, and what their marks `covers` say."""
    found, of_all = {}, frozenset[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = covered(node.decorator_list)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            of_all = covered(node.value.elts if isinstance(node.value, ast.List) else [node.value])
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            found |= {target.id: covered([node.value.func]) for target in node.targets if isinstance(target, ast.Name)}
    return {name: ids | of_all for name, ids in found.items()}


def covered(marks: Sequence[ast.expr]) -> frozenset[str]:
    """The ids of `pytest.mark.covers("RA1", "RA3–RA5")` among expressions."""
    calls = [mark for mark in marks if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.covers"]
    return frozenset(test_id for call in calls for cell in call.args for test_id in ids_in(ast.literal_eval(cell)))


def test_the_page_says_what_every_family_stands_for() -> None:
    first, _, _ = PAGE.read_text(encoding="utf-8").partition(f"\n{HEADING}")
    named = re.findall(r"^\| ((?:[A-Z]{1,4}(?:, )?)+) \|", first, re.MULTILINE)
    assert sorted(", ".join(named).split(", ")) == sorted(FAMILIES)


def test_every_id_has_one_row() -> None:
    listed = [test_id for row in ROWS for test_id in row.ids]
    expected = {
        f"{family}{number}" if number else family
        for family, count in FAMILIES.items()
        for number in (count if isinstance(count, tuple) else range(1, count + 1) if count else (0,))
    }
    assert sorted({test_id for test_id in listed if listed.count(test_id) > 1}) == []
    assert expected - set(listed) == set(), "the page has no row for these"
    assert set(listed) - expected == set(), "add the families of these to FAMILIES"


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.ids[0])
def test_the_tests_of_a_row_exist_and_cover_its_ids_or_it_says_why_there_is_none(row: Row) -> None:
    shown: set[str] = set()
    for test in row.tests:
        file, name = test.split("::")
        path = ROOT / "tests" / file.removeprefix("tests/")
        assert path.exists(), f"{test}: paths begin at tests/, or below"
        assert name in ids_by_test(path), f"there is no {test}"
        shown |= ids_by_test(path)[name]
    if row.tests:
        assert set(row.ids) - shown == set(), f"no test of the row has these in its mark `covers`: {row.tests}"
    else:
        assert len(row.reason.split()) >= 3, f"{row.ids}: neither a test nor a reason"


def test_ids_are_read_alone_in_lists_and_in_ranges() -> None:
    assert ids_in("RA1") == ["RA1"]
    assert ids_in("RA1, RA3–RA5, VB") == ["RA1", "RA3", "RA4", "RA5", "VB"]
    for wrong in ("", "RA1-3", "RA1–BP3", "a1"):
        with pytest.raises(AssertionError):
            ids_in(wrong)


def test_marks_cover_ids_alone_and_in_ranges() -> None:
    function = ast.parse('@pytest.mark.slow\n@pytest.mark.covers("RA1", "MB15–MB19")\ndef test_x(): ...').body[0]
    assert isinstance(function, ast.FunctionDef)
    assert covered(function.decorator_list) == {"RA1", "MB15", "MB16", "MB17", "MB18", "MB19"}
