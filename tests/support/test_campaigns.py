"""Every run has the first case of a campaign, and `make campaigns` the others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIMULATION = "tests/unit/sender/test_simulation.py"
SECONDS = 60


def collection(*arguments: str, end: pytest.ExitCode = pytest.ExitCode.OK) -> str:
    """Return pytest's list of the tests that it would run."""
    pytest_ = (sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-q")
    done = subprocess.run(
        [*pytest_, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == end, done.stdout
    return done.stdout


def collected(*options: str) -> list[int]:
    """First seeds of the thousands of schedules that a run with these options has."""
    return [int(first) for first in re.findall(r"thousands_of_schedules\[(\d+)\]", collection(SIMULATION, *options))]


@pytest.mark.parametrize(
    ("options", "firsts"),
    [
        ([], []),
        (["--slow"], [1000]),
        (["-m", "not slow"], []),
        (["-m", "slow"], [1000]),
        (["-m", "campaign"], [*range(1500, 5000, 500)]),
    ],
    ids=["tests/unit alone", "make test", "make test-fast", "slow", "make campaigns"],
)
def test_campaigns_are_for_those_who_ask(options: list[str], firsts: list[int]) -> None:
    assert collected(*options) == firsts


def test_the_error_for_a_case_of_a_campaign_says_how_it_runs() -> None:
    case = f"{SIMULATION}::test_kip91_thousands_of_schedules[1500]"
    assert "1 tests run only with -m campaign" in collection(case, end=pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "only with -m campaign" not in collection(case, "-m", "campaign")


def test_a_twin_on_kafka_39_runs_nightly_unless_it_is_of_a_campaign() -> None:
    """A test with both marks would be left out by both commands if each asked for its own."""
    files = "tests/kafka/test_formats.py", "tests/faults/test_transactions_cut.py"
    nightly, campaign = (collection(*files, "-m", mark) for mark in ("nightly", "campaign"))
    assert [twin in nightly for twin in ("[kafka_39-", "[0-kafka-3.9]", "[9-kafka-3.9]")] == [True, True, False]
    assert [twin in campaign for twin in ("[kafka_39-", "[0-kafka-3.9]", "[9-kafka-3.9]")] == [False, False, True]
