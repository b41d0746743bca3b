"""The benchmark of group commits, run small: counters show that writers share forces; no time is asserted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import journal
from spark_producer.broker.storage.tiered.journal import JournalSettings

FORCE = 0.005
APPENDS = 20


def test_writers_share_forces_in_groups_and_not_one_by_one(tmp_path: Path) -> None:
    """While a force takes its 5 ms, the other seven writers append, and have the next one in common."""
    settings = JournalSettings()
    assert journal.in_groups(tmp_path, settings, FORCE, 1, APPENDS, 100).per_force == 1
    together = tmp_path / "together"
    together.mkdir()
    assert journal.in_groups(together, settings, FORCE, 8, APPENDS, 100).per_force > 2
    assert journal.one_by_one(tmp_path, FORCE, 8, 2, 100).per_force == 1


def test_a_row_for_each_number_of_writers(capsys: pytest.CaptureFixture[str]) -> None:
    journal.main(["--appends", "3", "--bytes", "100", "--force-ms", "0.1", "--writers", "1", "3"])
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == ["1", "3"]
    assert {row.count("|") for row in rows} == {head.count("|")}
