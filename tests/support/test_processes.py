"""Child processes end with their parent, also when the parent has no time to say so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ivy
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until

PARENT = """
import sys, time
from pathlib import Path
from tests.support.processes import ChildProcess
child = ChildProcess([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"], Path(sys.argv[1]))
print(child.pid, flush=True)
if sys.argv[2] == "raise":
    raise RuntimeError("the parent fails")
time.sleep(600)
"""


def wait_until_gone(pid: int) -> None:
    def is_gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(is_gone, f"process {pid} ends")


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_child_ends_with_its_parent(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "out"), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if how == "kill":
            os.kill(parent.pid, signal.SIGKILL)
        parent.wait(20)
    wait_until_gone(pid)


def test_terminate_kill_and_output(tmp_path: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    child = ChildProcess([sys.executable, "-c", stubborn], tmp_path / "out")
    wait_until(lambda: "up" in child.tail(), "the child's output")
    assert child.exit_code is None
    child.terminate(timeout=0.1)
    assert child.exit_code == -signal.SIGKILL
    child.kill()
    assert child.tail() == "up"


def test_ports_are_free_and_never_given_twice() -> None:
    first, second = free_ports(20), free_ports(20)
    assert len({*first, *second}) == 40


def test_jars_come_from_the_cache_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYPRODUCER_CACHE", str(tmp_path))
    calls: list[Path] = []

    def fail_half_way(coordinates: tuple[ivy.Coordinate, ...], target: Path, transitive: bool) -> None:
        (target / "half.jar").touch()
        raise ivy.JarsUnavailable("no network")

    def retrieve(coordinates: tuple[ivy.Coordinate, ...], target: Path, transitive: bool) -> None:
        calls.append(target)
        (target / "whole.jar").touch()

    with pytest.raises(ivy.JarsUnavailable, match="no network"):
        ivy.fetch_jars(("group", "artifact", "1"), name="thing", retrieve=fail_half_way)
    folder = ivy.fetch_jars(("group", "artifact", "1"), name="thing", retrieve=retrieve)
    assert ivy.fetch_jars(("group", "artifact", "1"), name="thing", retrieve=retrieve) == folder
    assert [path.name for path in folder.iterdir()] == ["whole.jar"]
    assert ivy.fetch_jars(("group", "artifact", "2"), name="thing", retrieve=retrieve) != folder
    assert len(calls) == 2
    assert sorted(path.name for path in folder.parent.iterdir() if not path.name.startswith("thing")) == [".lock"]
