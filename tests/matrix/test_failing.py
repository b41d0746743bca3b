"""Failpoints are set in the processes of the matrix, and by no variable elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.matrix.failing import SITE, VARIABLE

ROOT = Path(__file__).resolve().parents[2]
REACH = "from spark_producer.common.failpoints import failpoint; failpoint('the first')"


def show(name: str) -> None:
    print(f"reached {name}")


def reached(site: str, **variables: str) -> str:
    """Return the output of a new process that reaches a failpoint."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([site, str(ROOT)] if site else [str(ROOT)]), **variables}
    command = [sys.executable, "-c", REACH]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


def test_no_variable_sets_a_failpoint_but_in_the_processes_of_the_matrix() -> None:
    function = f"{__name__}:show"
    assert reached("", PYPRODUCER_FAILPOINT=function, **{VARIABLE: function}) == ""
    assert reached(SITE, PYPRODUCER_FAILPOINT=function) == ""
    assert reached(SITE, **{VARIABLE: function}) == "reached the first\n"
