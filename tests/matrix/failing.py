"""What happens at a failpoint: the process reports to the judge, and waits until it is killed or answered.

This runs in processes of the sink: planner, commit, Python workers. Each driver has a folder, named by `MATRIX_FOLDER`:

* `trace`: a line for every failpoint that was reached: time, process, name.
* `plan`: the failpoint to stop at, how often it is passed before, and the number N of this fault, if the judge wants any.
* `reached-N`: written once, by the process that stopped, with its ancestors. `answer-N`: `go on` or `raise`.

Owns: the wait. Must not know: what is killed, or why. Nothing is imported that a worker has not, so that it stays quick.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

FOLDER = "MATRIX_FOLDER"
FUNCTION = "tests.matrix.failing:reached"
VARIABLE = "MATRIX_FAILPOINT"
"""Environment variable with the function that processes call at a failpoint."""
SITE = str(Path(__file__).parent / "site")
"""Folder on their path that installs it."""
SECONDS = 90.0
"""Maximum wait for an answer; then the process goes on."""


class FailpointFailed(RuntimeError):
    """The judge wanted an error here."""


def reached(place: str) -> None:
    """Called by `failpoint` in the sink."""
    folder = Path(os.environ[FOLDER])
    with (folder / "trace").open("a") as trace:
        trace.write(f"{time.time():.3f} {os.getpid()} {place}\n")
    number = chosen(folder, place)
    if number is not None:
        _wait(folder, place, number)


def chosen(folder: Path, place: str) -> int | None:
    """The number of the fault if this is the one time that a process stops; the others pass, also in other processes."""
    try:
        plan = json.loads((folder / "plan").read_text())
    except FileNotFoundError:
        return None
    if plan["place"] != place:
        return None
    number: int = plan["number"]
    with (folder / f"passed-{number}").open("a+") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        passed = len(counter.read())
        counter.write(".")
    return number if passed == plan["passes"] else None


def _wait(folder: Path, place: str, number: int) -> None:
    partial = folder / "reached.partial"
    partial.write_text(json.dumps({"place": place, "pid": os.getpid(), "ancestors": ancestors(os.getpid())}))
    partial.rename(folder / f"reached-{number}")
    answer = folder / f"answer-{number}"
    deadline = time.monotonic() + SECONDS
    while not answer.exists() and time.monotonic() < deadline:
        time.sleep(0.01)  # it runs in the process under test, and imports nothing more there
    if answer.exists() and answer.read_text() == "raise":
        raise FailpointFailed(f"at {place}, as the test asked")


def ancestors(pid: int) -> list[tuple[int, str]]:
    """The processes above this one, nearest first, with their names."""
    found = []
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
        if pid > 1:
            found.append((pid, Path(f"/proc/{pid}/comm").read_text().strip()))
    return found
