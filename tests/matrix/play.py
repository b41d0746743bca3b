"""One case of the matrix: a query to which faults happen, its restarts, and what two readers have seen at its end.

Owns: the order of events, the verdict. Must not know: which cases there are, which options the sink has beyond its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.matrix.checker import differences, violations
from tests.matrix.clusters import CLOSE_SECONDS, Cluster, left_open
from tests.matrix.drivers import Driver, Drivers, Reached, is_alive
from tests.matrix.readers import ConcurrentReader, read_later
from tests.matrix.rows import FILES, Amount, Row, expected, write_files
from tests.matrix.strikes import Strike
from tests.support.waiting import poll

PARTITIONS = 3
CASE_SECONDS = 150.0
"""Within which all transactions are at their end when the query is."""
ATTEMPTS = 5
LOUD = {
    "PARTIAL": "had timed out before they could be committed, and the other rows are visible",
    "HUNG": "lost the markers that say so",
    "REFUSED": "ConfigError",
}
"""Ends after which nothing is written until a person has looked, and what they say."""


class Fault(NamedTuple):
    """`victim` is hit when a process reaches the failpoint `place`, after it was passed `passes` times.

    `after` says what the process that stopped there does, if it was not the victim: it `dies` too, `goes on` at once, or
    goes on as a `zombie` when the next driver has written its first batch.
    """

    place: str
    victim: str
    passes: int = 0
    after: str = "goes on"


class Case(NamedTuple):
    """A query on a cluster, and what happens to it: each fault to another life of it, in order."""

    cluster: str
    path: str
    faults: tuple[Fault, ...]
    seed: int
    amount: Amount = Amount()
    options: tuple[tuple[str, str], ...] = ()
    loud: str = ""
    """The status that it must have instead of an exact end: a key of `LOUD`, or several that are allowed."""
    title: str = ""
    """The title of a scene, which is no row of the table of failpoints."""
    copies: int = 3
    """Maximum replicas of the topic."""
    loose: bool = False
    """Whether keys may move to another partition, since partitions were added."""

    @property
    def name(self) -> str:
        """The key of the case among the results, of its parts."""
        reported = "+".join(f"{fault.place}:{fault.victim}" for fault in self.faults)
        return f"{self.cluster}/{self.path}/{self.title or reported or 'no fault'}/{self.seed}"


@dataclass
class Result:
    """The outcome of a case. `violations` is empty if each row was seen once, in order, and no transaction was left open."""

    name: str
    faults: int = 1
    fired: int = 0
    lives: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    """Errors with which the query ended, for readers of the results."""
    places: list[str] = field(default_factory=list)
    """Failpoints that were passed, each once."""
    loud: str = ""
    """The required status, if the case has ended with one."""
    day: str = ""
    """The day on which it was played, as in 2026-01-31."""

    @property
    def verdict(self) -> str:
        """`exact`, `loud`, `violated` or `not reached`."""
        if self.violations:
            return "violated"
        return "not reached" if self.fired < self.faults else "loud" if self.loud else "exact"


@dataclass
class Stand:
    """The cluster, the drivers and the folder that cases share."""

    cluster: Cluster
    drivers: Drivers
    home: Path
    options: Mapping[str, str]
    """Options of the sink, in every case."""
    driver: Driver | None = None
    """The driver that works now."""
    format: str = "pyproducer"

    def ready_driver(self) -> Driver:
        """The one that works, or a new one."""
        if self.driver is None or self.driver.process.exit_code is not None:
            self.driver = self.drivers.take()
        return self.driver


class OldProcess(NamedTuple):
    """A driver that is dead, and the process of it that had stopped, which may still do harm."""

    driver: Driver
    pid: int


class Play:
    """One case on a stand."""

    def __init__(self, stand: Stand, case: Case, topic: str) -> None:
        self.stand, self.case, self.topic = stand, case, topic
        self.home = stand.home / topic
        self.result = Result(case.name, len(case.faults))
        self._faults = list(case.faults)
        self._armed = False
        self._old_processes: list[OldProcess] = []

    def run(self) -> Result:
        """Play it, and judge."""
        self.stand.ready_driver()  # the case's time does not include the start of the first driver
        begun = time.monotonic()
        write_files(self.home / "rows", self.case.amount)
        self.stand.cluster.create_topic(self.topic, PARTITIONS, self.case.copies)
        try:
            with ConcurrentReader(self.stand.cluster.bootstrap_servers, self.topic) as reader:
                well = self._live(begun + CASE_SECONDS)
                self._let_them_end()
                self._count_losses()
                if well and self.case.loud in LOUD and not self.result.loud:
                    self.result.violations.append(f"it should have ended with {self.case.loud}")
                elif not self.result.violations:
                    self.result.violations += judge(
                        self.stand.cluster,
                        self.topic,
                        expected(self.case.amount),
                        reader,
                        whole=well,
                        keys_move=self.case.loose,
                    )
        finally:
            self.result.seconds = round(time.monotonic() - begun, 2)
            self._clean_up()
        return self.result

    def job(self) -> dict[str, Any]:
        """The query."""
        options = {
            "kafka.bootstrap.servers": self.stand.cluster.bootstrap_servers,
            "topic": self.topic,
            **{name: value.replace("{topic}", self.topic) for name, value in self.stand.options.items()},
            **dict(self.case.options),
        }
        return {
            "rows": str(self.home / "rows"),
            "checkpoint": str(self.home / "checkpoint"),
            "files": FILES,
            "format": self.stand.format,
            "options": options,
            "endless": False,
        }

    def _live(self, deadline: float) -> bool:
        """Lives of the query until one ends well; whether one did."""
        while self.result.lives < ATTEMPTS:
            driver = self.stand.ready_driver()
            self.result.lives += 1
            (driver.folder / "trace").unlink(missing_ok=True)
            self._arm(driver)
            number = driver.give(self.job())
            outcome = self._one_life(driver, number, deadline)
            for place in driver.trace():
                if place not in self.result.places:
                    self.result.places.append(place)
            if time.monotonic() > deadline:
                self._add_stuck(driver, f"no end within {CASE_SECONDS:g} s")
                return False
            if outcome is not None and not outcome["error"]:
                return True
            self.result.reported.append(short_message(outcome["error"]) if outcome else "the driver died")
            if outcome and self._is_loud(outcome["error"]) and not self._mended():
                return False
        self._add_stuck(None, f"no end after {ATTEMPTS} lives")
        return False

    def _is_loud(self, error: str) -> bool:
        """Return whether it has ended loudly: as it had to, or against what is promised."""
        for status, text in LOUD.items():
            if text in error:
                if status not in self.case.loud.split(" or "):
                    self.result.violations.append(f"{status} was not to be: {self.result.reported[-1]}")
                self.result.loud = status
                return True
        return False

    def _mended(self) -> bool:
        """Return whether `pyproducer txn repair` has written the lost markers, so that the query may go on."""
        if self.result.loud != "HUNG" or self.result.violations:
            return False
        servers = ["--bootstrap-servers", self.stand.cluster.bootstrap_servers]
        for arguments in (["describe", self.sink], ["repair", self.sink, "--yes"]):
            command = [sys.executable, "-m", "spark_producer", "txn", *arguments, *servers]
            done = subprocess.run(command, capture_output=True, text=True, timeout=CASE_SECONDS, check=False)
            self.result.reported.append(f"{arguments[0]}: {done.stdout} {done.stderr}"[-400:])
        return done.returncode == 0

    def _one_life(self, driver: Driver, number: int, deadline: float) -> dict[str, Any] | None:
        """Return the query's outcome at its end; None if its driver died."""
        begun = time.monotonic()
        while time.monotonic() < deadline:
            outcome = driver.outcome(number)
            if outcome is not None or driver.process.exit_code is not None:
                break
            stopped = driver.reached() if self._armed else None
            if stopped is not None:
                self._armed = False
                self.result.fired += 1
                self._strike(driver, stopped, self._faults.pop(0))
                if all(old.driver is not driver for old in self._old_processes) and driver.answered:
                    self._arm(driver)
            self._let_zombies_go(driver, begun)
            time.sleep(0.01)  # the pace of the turns
        else:
            return None
        return driver.outcome(number)

    def _arm(self, driver: Driver) -> None:
        self._armed = bool(self._faults)
        if self._faults:
            driver.arm(self._faults[0].place, self._faults[0].passes)
        else:
            driver.disarm()

    def _strike(self, driver: Driver, stopped: Reached, fault: Fault) -> None:
        """Strike as the fault says."""
        Strike(self.stand.cluster, self.topic, self.sink, driver, stopped, fault.after).do(fault.victim)
        if driver.process.exit_code is not None:
            self._old_processes.append(OldProcess(driver, stopped.pid))

    @property
    def sink(self) -> str:
        """The exactlyOnceId."""
        return self.stand.options.get("exactlyOnceId", "").replace("{topic}", self.topic)

    def _let_zombies_go(self, driver: Driver, begun: float) -> None:
        """When the new driver is in the midst of its work, or has been there for a while."""
        waiting = [old.driver for old in self._old_processes if not old.driver.answered]
        if waiting and (len(driver.trace()) >= 3 or time.monotonic() > begun + 3):
            for old in waiting:
                old.answer()

    def _let_them_end(self) -> None:
        """Wait for the processes of dead drivers: the readers would not see what these write later."""
        deadline = time.monotonic() + CLOSE_SECONDS
        for old in self._old_processes:
            if not old.driver.answered:
                old.driver.answer()
            if not _ends(old.pid, deadline - time.monotonic()):
                self.result.reported.append(
                    f"process {old.pid} of a dead driver has not ended within {CLOSE_SECONDS:g} s"
                )

    def _count_losses(self) -> None:
        """A loss that was asked for, and for which no request came, is none; the next case must not have it either."""
        proxies = self.stand.cluster.proxies
        if proxies and all(proxy.waiting_faults() for proxy in proxies):
            self.result.fired -= 1
        for proxy in proxies:
            proxy.heal()

    def _add_stuck(self, driver: Driver | None, what: str) -> None:
        self.result.violations.append(f"stuck: {what}; {self.result.reported[-1] if self.result.reported else ''}")
        if driver is not None:
            driver.kill()
            self.stand.driver = None

    def _clean_up(self) -> None:
        if self.stand.driver is not None:
            self.stand.driver.disarm()
        for old in self._old_processes:
            old.driver.kill()
        if not self.result.violations:
            shutil.rmtree(self.home, ignore_errors=True)


def judge(
    cluster: Cluster,
    topic: str,
    wanted: set[Row],
    reader: ConcurrentReader,
    *,
    whole: bool = True,
    keys_move: bool = False,
    together: Mapping[int, int] | None = None,
) -> list[str]:
    """Compare what both readers have with what was to be written, when nothing is open any more; the violations.

    Unless all of it must be there (`whole`), the query has stopped loudly: what it left open holds readers back.
    """
    if not whole:
        return violations(wanted, read_later(cluster.bootstrap_servers, topic), whole=False, keys_move=keys_move)
    lagging, still_open = left_open(cluster, topic)
    found = [f"readers are held back: {lagging}"] if lagging else []
    found += [f"transactions are open: {still_open}"] if still_open else []
    later = read_later(cluster.bootstrap_servers, topic)
    known = {partition: rows for partition, rows in later.items() if partition in reader.partitions}
    concurrent = reader.wait_for(sum(map(len, known.values())))
    return [*found, *violations(wanted, later, keys_move=keys_move, together=together), *differences(concurrent, known)]


def _ends(pid: int, seconds: float) -> bool:
    return poll(lambda: not is_alive(pid), seconds=seconds, pause=0.02)


def short_message(error: str) -> str:
    """The line of an error of Spark that says what happened."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    for sign in ("spark_producer.errors", "Error: ", "Exception: ", ""):
        reported = [line for line in lines if sign in line]
        if reported:
            return reported[-1 if sign else 0][:300]
    return ""
