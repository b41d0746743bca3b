"""The pool of drivers gives another one for a spare that has died."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.matrix import drivers


class MadeUpDriver:
    """A driver without a process."""

    def __init__(self, folder: Path, master: str) -> None:
        self.is_ready = self.ended = self.killed = False
        self.process = SimpleNamespace(has_ended=lambda: self.ended)

    def wait_until_ready(self) -> None:
        assert self.is_ready

    def kill(self) -> None:
        self.killed = True


def test_a_spare_that_died_while_it_started_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[MadeUpDriver] = []

    def make(folder: Path, master: str) -> MadeUpDriver:
        made.append(MadeUpDriver(folder, master))
        return made[-1]

    monkeypatch.setattr(drivers, "Driver", make)
    with drivers.Drivers(tmp_path) as pool:
        assert not pool.ready
        made[0].ended = True
        assert not pool.ready
        assert made[0].killed
        made[1].is_ready = True
        assert pool.ready
        assert pool.take() is made[1]
    assert len(made) == 3
