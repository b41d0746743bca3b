"""Programs in a Python of their own: nothing of this checkout is importable but what a test hands over.

Owns: the installed package, the environment of the child process. Must not know: what the programs do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SECONDS = 240


def install(place: Path) -> Path:
    """The package as `pip install` leaves it; what it depends on is not installed again."""
    source = place / "source"
    source.mkdir()
    for name in ("spark_producer", "pyspark_pyproducer"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in REPOSITORY.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, source)
    target = place / "installed"
    run = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    run += ["--target", str(target), str(source)]
    subprocess.run(run, check=True, timeout=SECONDS)
    return target


def run_program(program: str, arguments: list[str], folders: list[Path], directory: Path) -> str:
    """Run in `directory`, with `folders` and what this package depends on as libraries; what it said on standard error.

    The base interpreter runs it, so that no path file of the virtual environment leads back to this checkout.
    """
    script = directory / "program.py"
    script.write_text(program)
    dependencies = sysconfig.get_paths()["purelib"]
    path = os.pathsep.join([*map(str, folders), dependencies])
    base: str = sys._base_executable  # type: ignore[attr-defined]
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
