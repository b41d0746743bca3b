"""Of a campaign every run has the first case, and those who ask have the others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIMULATION = "tests/unit/sender/test_simulation.py"
SECONDS = 60


def collected(*options: str) -> list[int]:
    """First seeds of the thousands of schedules that a run with these options has."""
    pytest_ = (sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-q", SIMULATION)
    done = subprocess.run(
        [*pytest_, *options], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True
    ).stdout
    return [int(first) for first in re.findall(r"thousands_of_schedules\[(\d+)\]", done)]


@pytest.mark.parametrize(
    ("options", "firsts"),
    [
        ([], [1000]),
        (["-m", "not slow"], []),
        (["-m", "slow"], [1000]),
        (["-m", "campaign"], [*range(1500, 5000, 500)]),
    ],
    ids=["make test", "make test-fast", "slow", "make campaigns"],
)
def test_campaigns_are_for_those_who_ask(options: list[str], firsts: list[int]) -> None:
    assert collected(*options) == firsts
