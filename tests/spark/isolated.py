"""Programs in a Python of their own: nothing of this checkout is importable but what a test hands over.

Owns: the environment of the child process. Must not know: what the programs do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SECONDS = 240


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
