"""Try the wheel with the libraries of tables, and run the recipes of two pages: `python -m tests.platforms.recipes`.

The environment is kept in build/platforms, some 900 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.platforms.environments import ROOT, build_wheel, make, renew

PACKAGES = ["polars==2.1.0", "duckdb==2.0.1", "deltalake==1.6.6", "pyiceberg[sql-sqlite]==0.12.0", "pandas==2.3.3"]
"""The versions that the pages name."""

PROGRAM = Path(__file__).with_name("recipes_program.py")
SECONDS = 300


def run(python: Path, *only: str) -> dict[str, str]:
    """Return what is wrong in each page, with this Python. Raises: as `outcomes`."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if not python.is_relative_to(ROOT / "build"):
        kept["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(python), str(PROGRAM), str(ROOT / "docs"), *only],
            env=kept,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    return outcomes(done)


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return what is wrong in each page by the output of a program; an empty text is nothing.

    Raises:
        RuntimeError: the program has not begun.
    """
    pages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not pages:
        raise RuntimeError(f"the recipes have not begun:\n{done.stderr[-4000:]}")
    return {page["page"]: page["wrong"] for page in pages}


def tried() -> dict[str, str]:
    """Return what is wrong in each page, in an environment with all libraries. Raises: as `run`."""
    wheel = build_wheel()
    python = make(Path(sys.executable), "recipes", [*PACKAGES, str(wheel)])
    renew(python, wheel)
    return run(python)


def main() -> int:
    """Try and print; how many pages failed."""
    pages = tried()
    for page, wrong in pages.items():
        print(f"docs/{page}.md: {wrong or 'every recipe as it should be'}", flush=True)
    return sum(map(bool, pages.values()))


if __name__ == "__main__":
    sys.exit(main())
