"""The judge of a case, with drivers, readers and clusters made up: when it asks the readers, and what it asks them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_producer.protocol import END_TXN
from tests.matrix import play, strikes
from tests.matrix.checker import Read, Seen
from tests.matrix.drivers import Reached, is_alive
from tests.matrix.faults import Fault
from tests.matrix.hand import Hand
from tests.matrix.nemesis import Record, Run
from tests.matrix.play import CASE_SECONDS, LOUD, Case, OldProcess, Play, Stand
from tests.matrix.rows import Amount, rows_of_batch
from tests.matrix.strikes import Strike
from tests.support.proxy import FaultProxy

AMOUNT = Amount(batches=1, rows=20)


class MadeUpReader:
    """A concurrent reader that has seen the same rows as the later one."""

    def __init__(self, *_: object) -> None:
        self.partitions = {0}
        self.count = 0

    def __enter__(self) -> MadeUpReader:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no connection to close."""

    def wait_for(self, _: int) -> Read:
        return seen()


class MadeUpDriver:
    """A driver whose query ends at once, with an error or without."""

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
        """Do nothing: no failpoint is armed."""

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
    cluster: Any = SimpleNamespace(bootstrap_servers="nowhere:1", create_topic=lambda *_: None, proxies=())

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
    assert [reported.partition(":")[0] for reported in result.violations] == (["duplicate"] if twice else [])


def test_the_time_of_a_case_begins_when_its_driver_is_there(
    played: Callable[[str], Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "read_later", lambda *_: seen())
    case = played(f"Error: {LOUD['PARTIAL']}")
    driver, case.stand.driver = case.stand.driver, None
    clock = SimpleNamespace(now=0.0, sleep=lambda _: None)
    clock.monotonic = lambda: clock.now

    def take() -> object:
        clock.now += 2 * CASE_SECONDS
        return driver

    monkeypatch.setattr(play, "time", clock)
    drivers: Any = SimpleNamespace(take=take)
    case.stand.drivers = drivers
    assert case.run().verdict == "loud"


@pytest.mark.parametrize("lost", [False, True])
def test_a_loss_for_which_no_request_came_is_none(
    played: Callable[[str], Play], monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    monkeypatch.setattr(play, "read_later", lambda *_: seen())
    case = played(f"Error: {LOUD['PARTIAL']}")
    case.result.fired = case.result.faults = 1
    with FaultProxy() as proxy:
        case.stand.cluster.proxies = (proxy,)
        if not lost:
            proxy.lose_request(END_TXN.key)
        assert case.run().verdict == ("loud" if lost else "not reached")
        assert not proxy.waiting_faults(), "the next case must not have it"


def test_a_deed_that_finds_nothing_to_do_it_to_does_not_pass_for_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(strikes, "open_transactions", lambda _: {"stranger": "Ongoing"})
    driver: Any = MadeUpDriver(tmp_path)
    with FaultProxy() as proxy:
        cluster: Any = SimpleNamespace(bootstrap_servers="nowhere:1", proxies=(proxy,))
        strike = Strike(cluster, "t", "m-t", driver, Reached("commit.voting", 0, ()), "goes on")
        with pytest.raises(RuntimeError, match="no task has a transaction open"):
            strike.do("hijack tasks")
        strike.do("keep ends")
        with pytest.raises(RuntimeError, match="no end of a transaction was kept"):
            strike.do("send ends")


def test_the_readers_are_asked_when_those_left_over_have_ended(
    played: Callable[[str], Play], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = played(f"Error: {LOUD['PARTIAL']}")
    answer = tmp_path / "go on"
    program = f"import pathlib, time\nwhile not pathlib.Path({str(answer)!r}).exists(): time.sleep(0.01)"  # a process of its own
    left = subprocess.Popen([sys.executable, "-I", "-S", "-c", program])
    driver: Any = MadeUpDriver(tmp_path)
    driver.answer = answer.touch
    case._old_processes.append(OldProcess(driver, left.pid))
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


@pytest.mark.parametrize("said", [None, "node 1"])
def test_a_fault_that_could_not_be_done_is_not_in_the_record(tmp_path: Path, said: str | None) -> None:
    brokers: Any = SimpleNamespace(cluster=SimpleNamespace(bootstrap_servers="nowhere:1"))
    drivers: Any = None
    run = Run(brokers, drivers, tmp_path, Record(1, "4", 0.0), "t")
    hand = Hand(run, [Fault("broker", "leaders moved", lambda: said)])
    run.begun -= 100  # it is time
    hand.turn()
    hand.end()
    assert [fault[2:] for fault in run.record.faults] == ([] if said is None else [(said, "leaders moved")])


def test_a_query_whose_driver_was_just_taken_away_is_finished_by_another_one(tmp_path: Path) -> None:
    brokers: Any = SimpleNamespace(cluster=SimpleNamespace(bootstrap_servers="nowhere:1"))
    driver = MadeUpDriver(tmp_path)
    drivers: Any = SimpleNamespace(ready=True, take=lambda: driver)
    reader: Any = MadeUpReader()
    run = Run(brokers, drivers, tmp_path, Record(1, "4", 0.0), "t")
    run._finish(reader)
    assert ([job["endless"] for job in driver.jobs], run.record.violations) == ([False], [])
