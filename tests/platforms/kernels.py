"""Try the compiled kernel of one wheel with each Python: equal to the portable one, and as fast everywhere (COM20).

    python -m tests.platforms.kernels

The Pythons take turns, so that what else the machine does slows all of them. An environment is kept in build/platforms.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.platforms.environments import build_wheel, make, renew
from tests.platforms.roots import python_of

PYTHONS = ("3.11", "3.12", "3.13")
PROGRAM = Path(__file__).with_name("kernel_program.py")
TURNS = 5
SECONDS = 300
SLOWER = 1.10
"""Maximum ratio of a loop's time to that with the first of the Pythons, for whose stable ABI the wheel is built."""

Reported = Mapping[str, Any]


def main() -> int:
    """Try and print; how many Pythons failed."""
    wheel, pythons = build_wheel(), {}
    for version in PYTHONS:
        outside, within = python_of(version)
        python = make(outside, f"kernel-python-{version}", [str(wheel)], within)
        renew(python, wheel, within)
        pythons[version] = [*within, str(python)]
    turns = [{version: run(python) for version, python in pythons.items()} for _ in range(TURNS)]
    reported = {version: least([turn[version] for turn in turns]) for version in PYTHONS}
    failed = 0
    for version in PYTHONS:
        wrong = judge(reported[version], reported[PYTHONS[0]])
        shown = ", ".join(f"{loop} {each['ns']:.1f}" for loop, each in reported[version].items())
        print(f"Python {version}, ns a row: {shown}: {wrong or 'equal to the portable kernel, and as fast'}")
        failed += bool(wrong)
    return failed


def run(python: Sequence[str], *rounds: str) -> dict[str, Reported]:
    """The results of the program for each loop, with this Python and what goes before its commands."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYPRODUCER_KERNEL")}
    done = subprocess.run(
        [*python, str(PROGRAM), *rounds],
        cwd=PROGRAM.root,
        env=kept,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    reported = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not reported:
        raise RuntimeError(f"{' '.join(python)} has not begun:\n{done.stderr[-4000:]}")
    return {each["loop"]: each for each in reported}


def least(turns: Sequence[Mapping[str, Reported]]) -> dict[str, Reported]:
    """The fastest turn of each loop, which is equal only if all turns are."""
    return {
        loop: {
            "ns": min(turn[loop]["ns"] for turn in turns),
            "equal": all(turn[loop]["equal"] for turn in turns),
        }
        for loop in turns[0]
    }


def judge(reported: Mapping[str, Reported], first: Mapping[str, Reported]) -> str:
    """Return the differences between the loops of one Python and those of the first; none if all is well."""
    wrong = [f"{loop} differs from the portable kernel" for loop, each in reported.items() if not each["equal"]]
    for loop, each in reported.items():
        ratio = each["ns"] / first[loop]["ns"]
        if ratio > SLOWER:
            wrong.append(f"{loop} takes {ratio:.2f} times as long as with Python {PYTHONS[0]}")
    return "; ".join(wrong)


if __name__ == "__main__":
    sys.exit(main())
