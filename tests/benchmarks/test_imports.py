"""The benchmark of imports runs; figures are not judged here."""

from __future__ import annotations

from benchmarks.imports import CASES, measure, own_share, page
from benchmarks.part import Options


def test_every_case_starts_and_has_its_line() -> None:
    known = {case.name for case in CASES}
    assert all(not case.without or case.without in known for case in CASES)
    text = page(measure(CASES[:3], Options(repetitions=1)))
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows == ["imported", *(case.name for case in CASES[:3])]


def test_own_is_the_difference_within_a_round() -> None:
    taken = {"numpy and pyarrow": [[100, 30], [300, 30], [200, 40]], CASES[2].name: [[150, 40], [320, 40], [260, 40]]}
    assert own_share({"cases": taken}, CASES[2]) == (50, 10)
    assert f"| {CASES[2].name} | 260 | 50 | 40 | 10 |" in page({"cases": taken})
