"""Kills Spark at a failpoint of an exactly-once write, in each Python process that Spark starts: Python imports this first.

Its folder is on the path of these processes alone. `UPGRADE_KILL` is the failpoint and how often it is passed before, with a
file that is written when it was reached: `task.ended:2:/tmp/reached`. It serves earlier versions, which find the function
`sitecustomize:reached` by an environment variable of their own.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def reached(name: str) -> None:
    """Kill the JVM above this process if this is the failpoint and the time."""
    place, passes, file = os.environ["UPGRADE_KILL"].split(":")
    if name != place:
        return
    counter = Path(file + ".passed")
    with counter.open("a+") as passed:
        passed.seek(0)
        count = len(passed.read())
        passed.write(".")
    if count != int(passes):
        return
    Path(file).touch()
    for process in _jvms(os.getpid()):
        os.kill(process, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _jvms(process: int) -> list[int]:
    found = []
    while process > 1:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if Path(f"/proc/{process}/comm").read_text().strip() == "java":
            found.append(process)
        process = int(fields[1])
    return found


if os.environ.get("UPGRADE_KILL"):
    try:
        from spark_producer.common import failpoints
    except ImportError:
        pass  # before 27 November `PYPRODUCER_FAILPOINT` names the function
    else:
        failpoints.install(reached)
