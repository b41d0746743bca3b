"""Run the recipes with Spark's own jars of Delta and Iceberg, of two pages: `python -m tests.platforms.spark_tables`.

The jars are made for one line of Spark each; `SPARK` is the newest for which both exist. The environment is kept in
build/platforms, some 900 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.platforms.environments import ROOT, build_wheel, make, renew
from tests.platforms.recipes import outcomes
from tests.support.ivy import Coordinate, fetch_jars

SPARK = "4.1.4"
DELTA: tuple[Coordinate, ...] = (
    ("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
    ("io.delta", "delta-storage", "4.4.0"),
)
ICEBERG: Coordinate = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.11.0")
"""The versions that the pages name."""

PROGRAM = Path(__file__).with_name("spark_tables_program.py")
SECONDS = 1500


def jars() -> list[Path]:
    """The jars of both formats."""
    delta = fetch_jars(*DELTA, name="delta-spark", transitive=False)
    iceberg = fetch_jars(ICEBERG, name="iceberg-spark", transitive=False)
    return sorted([*delta.glob("*.jar"), *iceberg.glob("*.jar")])


def tried() -> dict[str, str]:
    """Return what is wrong in each page, in an environment with the Spark of the jars; an empty text is nothing."""
    wheel = build_wheel()
    python = make(Path(sys.executable), "spark-tables", [f"pyspark=={SPARK}", "pandas<3", str(wheel)])
    renew(python, wheel)
    without = ("PYTHONPATH", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "SPARK_SUBMIT_OPTS")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(python), str(PROGRAM), str(ROOT / "docs"), *map(str, jars())],
            env={**kept, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    return outcomes(done)


def main() -> int:
    """Try and print; how many pages failed."""
    pages = tried()
    for page, wrong in pages.items():
        print(f"docs/{page}.md: {wrong or 'every recipe as it should be'}", flush=True)
    return sum(map(bool, pages.values()))


if __name__ == "__main__":
    sys.exit(main())
