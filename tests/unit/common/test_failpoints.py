"""Failpoints call the function that a test has installed, and nothing else ever."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.common.failpoints import failpoint, install
from tests.matrix.failing import SITE, VARIABLE

ROOT = Path(__file__).resolve().parents[2]
REACH = "from spark_producer.common.failpoints import failpoint; failpoint('the first')"
seen: list[str] = []


def note(name: str) -> None:
    seen.append(name)
    if name == "the second":
        raise OSError("asked for")


def tell(name: str) -> None:
    print(f"reached {name}")


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    seen.clear()
    yield
    install(None)


def test_without_a_test_nothing_happens() -> None:
    failpoint("the first")
    assert seen == []


def test_the_installed_function_is_called_and_may_raise() -> None:
    install(note)
    failpoint("the first")
    with pytest.raises(OSError, match="asked for"):
        failpoint("the second")
    assert seen == ["the first", "the second"]


def reached(site: str, **variables: str) -> str:
    """What a new process prints that reaches a failpoint."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([site, str(ROOT)] if site else [str(ROOT)]), **variables}
    command = [sys.executable, "-c", REACH]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


def test_no_variable_sets_a_failpoint_but_in_the_processes_of_the_matrix() -> None:
    function = f"{__name__}:tell"
    assert reached("", PYPRODUCER_FAILPOINT=function, **{VARIABLE: function}) == ""
    assert reached(SITE, PYPRODUCER_FAILPOINT=function) == ""
    assert reached(SITE, **{VARIABLE: function}) == "reached the first\n"
