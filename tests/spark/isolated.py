"""Programs in a Python of their own: nothing of this checkout is importable but what a test hands over.

Owns: the environment of the child process. Must not know: what the programs do.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.support.waiting import retry

REPOSITORY = Path(__file__).parents[2]
SECONDS = 240


@contextmanager
def connect_port() -> Iterator[None]:
    """Hold the port of Spark Connect (15002), which a local server cannot change; other processes of this run wait."""
    with (Path(tempfile.gettempdir()) / "pyproducer-spark-connect.lock").open("w") as lock:
        retry(
            lambda: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB),
            BlockingIOError,
            "the end of another test with Spark Connect",
            seconds=SECONDS,
            pause=0.2,
        )
        yield


def run_program(program: str, arguments: list[str], folders: list[Path], directory: Path) -> str:
    """Run in `directory`, with `folders` and what this package depends on as libraries; what it said on standard error.

    The base interpreter runs it, so that no path file of the virtual environment leads back to this checkout.
    """
    script = directory / "program.py"
    script.write_text(program)
    dependencies = sysconfig.get_paths()["purelib"]
    path = os.pathsep.join([*map(str, folders), dependencies])
    base: str = sys._base_executable  # type: ignore[attr-defined]  # private to Python
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))},
        "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"],
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": base,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    with connect_port() if ".remote(" in program else nullcontext():
        done = subprocess.run(
            [base, str(script), *arguments],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-8_000:]
    return done.stderr
