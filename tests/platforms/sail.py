"""Try the wheel with Sail, and run the examples of docs/sail.md: `python -m tests.platforms.sail`.

The environment is kept in build/platforms, some 700 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.platforms.environments import ROOT, build_wheel, make, renew

PACKAGES = ["pysail==0.7.2", "pyspark-client==4.2.0"]
"""The versions that the page names."""

PAGE = ROOT / "docs" / "sail.md"
PROGRAM = Path(__file__).with_name("sail_program.py")
SECONDS = 300


def tried() -> list[dict[str, Any]]:
    """Return the outcome of each way.

    Raises:
        RuntimeError: Sail has not begun.
    """
    wheel = build_wheel()
    more = ["pandas<3", "confluent-kafka", "grpcio", "grpcio-status", "googleapis-common-protos"]
    python = make(Path(sys.executable), "sail", [*PACKAGES, *more, str(wheel)])
    renew(python, wheel)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PYSPARK", "SPARK"))
    }
    done = subprocess.run(
        [str(python), str(PROGRAM), str(PAGE)],
        env=kept,
        cwd=python.parent,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    ways = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not ways:
        raise RuntimeError(f"Sail has not begun:\n{done.stderr[-4000:]}")
    return ways


def main() -> int:
    """Try and print; how many ways failed."""
    ways = tried()
    for way in ways:
        print(f"Sail {way['sail']}: {way['way']}: {way['wrong'] or 'as it should be'}", flush=True)
    return sum(bool(way["wrong"]) for way in ways)


if __name__ == "__main__":
    sys.exit(main())
