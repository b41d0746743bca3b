"""The judge of a case, with drivers, readers and clusters made up: when it asks the readers, and what it asks them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.matrix import play
from tests.matrix.checker import Read, Seen
from tests.matrix.drivers import is_alive
from tests.matrix.nemesis import Record, Run
from tests.matrix.play import LOUD, Case, LeftBehind, Play, Stand
from tests.matrix.rows import Amount, rows_of_batch

AMOUNT = Amount(batches=1, rows=20)


class MadeUpReader:
    """It has seen what the later one sees."""

    def __init__(self, *_: object) -> None:
        self.partitions = {0}
        self.count = 0

    def __enter__(self) -> MadeUpReader:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def wait_for(self, _: int) -> Read:
        return seen()


class MadeUpDriver:
    """Its query ends at once with an error, or well."""

    def __init__(self, folder: Path, error: str = "") -> None:
        self.folder, self.error = folder, error
        self.process = SimpleNamespace(exit_code=None)
        self.jobs: list[dict[str, Any]] = []
        self.answered = False

    def give(self, job: dict[str, Any]) -> int:
        self.jobs.append(job)
        return len(self.jobs)

    def outcome(self, _: int) -> dict[str, str]:
        return {"error": self.error}

    def trace(self) -> list[str]:
        return []

    def answer(self) -> None:
        self.answered = True

    def disarm(self) -> None:
        """Nothing is armed."""

    def kill(self) -> None:
        """It is none."""


def seen(*, twice: bool = False) -> Read:
    """The rows of the one batch, but for the last; perhaps one of them twice."""
    rows = sorted(rows_of_batch(AMOUNT, 0))[:-1]
    rows = [rows[0], *rows] if twice else rows
    return {0: [Seen(offset, row.key.encode(), row.text(AMOUNT.width).encode()) for offset, row in enumerate(rows)]}


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Play]:
    """A case whose query ends with an error, and has to end so."""
    monkeypatch.setattr(play, "ConcurrentReader", MadeUpReader)
    cluster: Any = SimpleNamespace(bootstrap_servers="nowhere:1", create_topic=lambda *_: None)

    def made(error: str) -> Play:
        driver: Any = MadeUpDriver(tmp_path, error)
        drivers: Any = None
        stand = Stand(cluster, drivers, tmp_path / "home", {"exactlyOnceId": "m-{topic}"}, driver)
        return Play(stand, Case("4", "B", (), 1, AMOUNT, loud="PARTIAL"), "t")

    return made


@pytest.mark.parametrize("twice", [False, True])
def test_rows_that_are_visible_after_a_loud_end_are_judged_too(
    played: Callable[[str], Play], monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    monkeypatch.setattr(play, "read_later", lambda *_: seen(twice=twice))
    result = played(f"Error: {LOUD['PARTIAL']}").run()
    assert result.loud == "PARTIAL"
    assert result.verdict == ("violated" if twice else "loud")
    assert [told.partition(":")[0] for told in result.violations] == (["duplicate"] if twice else [])


def test_the_readers_are_asked_when_those_left_behind_have_ended(
    played: Callable[[str], Play], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = played(f"Error: {LOUD['PARTIAL']}")
    word = tmp_path / "go on"
    program = f"import pathlib, time\nwhile not pathlib.Path({str(word)!r}).exists(): time.sleep(0.01)"
    left = subprocess.Popen([sys.executable, "-I", "-S", "-c", program])
    driver: Any = MadeUpDriver(tmp_path)
    driver.answer = word.touch
    case._left_behind.append(LeftBehind(driver, left.pid))
    alive = []

    def read(*_: object) -> Read:
        alive.append(is_alive(left.pid))
        return seen()

    monkeypatch.setattr(play, "read_later", read)
    try:
        assert case.run().verdict == "loud"
    finally:
        left.kill()
        left.wait(10)
    assert alive == [False]


def test_a_query_whose_driver_was_just_taken_away_is_finished_by_another_one(tmp_path: Path) -> None:
    brokers: Any = SimpleNamespace(cluster=SimpleNamespace(bootstrap_servers="nowhere:1"))
    driver = MadeUpDriver(tmp_path)
    drivers: Any = SimpleNamespace(ready=True, take=lambda: driver)
    reader: Any = MadeUpReader()
    run = Run(brokers, drivers, tmp_path, Record(1, "4", 0.0), "t")
    run._finish(reader)
    assert ([job["endless"] for job in driver.jobs], run.record.violations) == ([False], [])
