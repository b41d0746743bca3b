"""Drivers of Spark as child processes: one that works, and one that is started already for when it dies.

Owns: their start and end, their queries and outcomes, all processes that belong to one.
Must not know: clusters, rows, faults.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.matrix.failing import FOLDER, FUNCTION, SITE, VARIABLE, ancestors
from tests.support.class_archives import spark_options
from tests.support.processes import ChildProcess
from tests.support.waiting import poll, wait_until

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0
LOCAL = "local[2,3]"
"""Two tasks at a time, each of which is tried three times."""
SEPARATE = "local-cluster[1,2,512]"
"""The same, with an executor in a JVM of its own."""


class Reached(NamedTuple):
    """The process that stopped at a failpoint."""

    place: str
    pid: int
    ancestors: tuple[tuple[int, str], ...]

    @property
    def jvm(self) -> int:
        """The JVM that it belongs to: that of the driver, or of an executor."""
        return next(pid for pid, name in self.ancestors if name == "java")


class Driver:
    """One driver with its folder. `give` hands a query over, `outcome` returns how it ended."""

    def __init__(self, folder: Path, master: str = LOCAL) -> None:
        self.folder = folder
        self.jobs = self.faults = 0
        folder.mkdir(parents=True)
        temporary = folder / "tmp"  # what a killed JVM leaves is removed with the folder
        temporary.mkdir()
        environment = {
            FOLDER: str(folder),
            VARIABLE: FUNCTION,
            "SPARK_SUBMIT_OPTS": f"{spark_options()} {shlex.join([f'-Djava.io.tmpdir={temporary}'])}",
            "SPARK_LOCAL_DIRS": str(temporary),
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([SITE, str(ROOT)]),
        }
        command = [sys.executable, "-m", "tests.matrix.driver_program", str(folder), master]
        self.process = ChildProcess(command, folder / "log", environment)

    @property
    def number(self) -> int:
        """Its number among those of the same `Drivers`: unlike a process id, it is given once."""
        return int(self.folder.name.rpartition("-")[2])

    @property
    def is_ready(self) -> bool:
        """Return whether it can take queries."""
        return (self.folder / "ready").exists()

    def wait_until_ready(self) -> None:
        """Wait until it can take queries."""
        process = self.process
        ready = (self.folder / "ready").exists
        wait_until(ready, "the driver starts", seconds=START_SECONDS, more=process.tail, ended=process.has_ended)

    def give(self, job: Mapping[str, Any]) -> int:
        """Hand a query over; its number."""
        number, self.jobs = self.jobs, self.jobs + 1
        self._put(f"job-{number}.json", json.dumps(job))
        return number

    def outcome(self, number: int) -> dict[str, Any] | None:
        """Return how a query ended; None while it runs."""
        try:
            found: dict[str, Any] = json.loads((self.folder / f"done-{number}.json").read_text())
        except FileNotFoundError:
            return None
        return found

    def stop_query(self, number: int) -> None:
        """Stop a query as `StreamingQuery.stop` does, also in the midst of a batch."""
        (self.folder / f"stop-{number}").touch()

    def arm(self, place: str, passes: int) -> None:
        """Stop the process that reaches this failpoint after it was passed `passes` times."""
        self.faults += 1
        self._put("plan", json.dumps({"place": place, "passes": passes, "number": self.faults}))

    def disarm(self) -> None:
        """Stop no process any more."""
        (self.folder / "plan").unlink(missing_ok=True)

    def reached(self) -> Reached | None:
        """Return the process that has stopped at the last armed failpoint, if there is one."""
        try:
            found = json.loads((self.folder / f"reached-{self.faults}").read_text())
        except FileNotFoundError:
            return None
        return Reached(found["place"], found["pid"], tuple((pid, name) for pid, name in found["ancestors"]))

    @property
    def answered(self) -> bool:
        """Return whether the process that stopped last has its answer."""
        return (self.folder / f"answer-{self.faults}").exists()

    def answer(self, text: str = "go on") -> None:
        """Answer the stopped process: `go on` or `raise`."""
        self._put(f"answer-{self.faults}", text)

    def _put(self, name: str, text: str) -> None:
        partial = self.folder / f"{name}.partial"
        partial.write_text(text)
        partial.rename(self.folder / name)

    def trace(self) -> list[str]:
        """The places that were reached, in order."""
        path = self.folder / "trace"
        return [line.split(" ", 2)[2] for line in path.read_text().splitlines()] if path.exists() else []

    def processes(self) -> list[int]:
        """Every process of this driver, executors and Python workers too: they have its folder in their environment."""
        mark = f"{FOLDER}={self.folder}\0".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes() + b"\0":
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def workers(self) -> list[int]:
        """Return its Python workers, active or idle; the planner's and the commit's processes are among them."""
        found = []
        for pid in self.processes():
            above = ancestors_of(pid)
            if len(above) >= 2 and above[0][1].startswith("python") and above[1][1] == "java":
                found.append(pid)
        return found

    def signal(self, pids: Sequence[int], name: str) -> None:
        """A signal, such as STOP, to processes of which some may be gone."""
        for pid in pids:
            kill(pid, signal.Signals[f"SIG{name}"])

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        self.process.kill()

        def all_gone() -> bool:
            left = self.processes()
            for pid in left:
                kill(pid)
            return not left

        poll(all_gone, seconds=10)


class Drivers:
    """Context manager: gives drivers. With `ahead` the next one is started as soon as one is taken, for when that is gone."""

    def __init__(self, home: Path, master: str = LOCAL, *, ahead: bool = True) -> None:
        self._home, self._master, self._ahead = home, master, ahead
        self._numbers = itertools.count()
        self._all: list[Driver] = []
        self._spare: Driver | None = self._new()

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._all:
            driver.kill()

    @property
    def ready(self) -> bool:
        """Return whether `take` would not wait."""
        return self._next().is_ready

    def wait_until_ready(self) -> None:
        """Wait until `take` would not wait."""
        self._next().wait_until_ready()

    def take(self) -> Driver:
        """A driver that is ready, and start the next. Raises RuntimeError if it ends meanwhile."""
        taken = self._next()
        self._spare = self._new() if self._ahead else None
        taken.wait_until_ready()
        return taken

    def _next(self) -> Driver:
        """The spare one; another one if that has ended, as one does that another fault has hit while it started."""
        if self._spare is not None and self._spare.process.has_ended():
            self._spare.kill()  # what it has left
            self._spare = None
        if self._spare is None:
            self._spare = self._new()
        return self._spare

    def _new(self) -> Driver:
        driver = Driver(self._home / f"driver-{os.getpid()}-{next(self._numbers)}", self._master)
        self._all.append(driver)
        return driver


def ancestors_of(pid: int) -> list[tuple[int, str]]:
    """Return the `ancestors` of a process; none if it is gone."""
    try:
        return ancestors(pid)
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_alive(pid: int) -> bool:
    """Return whether a process still runs; a zombie that is not reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """A signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
