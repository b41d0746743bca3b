"""One broker per data directory, and the children of a broker do not hold its lock."""

import subprocess
import sys
from pathlib import Path

import pytest

from spark_producer.broker.storage.directory_lock import DirectoryLock
from spark_producer.errors import ConfigError
from tests.fakes.raw_client import DEADLINE

HOLD = """
import os, sys
from pathlib import Path
from spark_producer.broker.storage.directory_lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
what = sys.argv[2]
child = os.fork() if what != "wait" else 1
if child == 0 and what == "close":
    lock.close()
    os._exit(0)
if child == 0:  # a worker that outlives its broker, until its pipe is closed
    os.close(1)
    sys.stdin.read()
    os._exit(0)
if what == "close":
    os.waitpid(child, 0)
print("locked", flush=True)
if what == "fork":
    os._exit(0)
sys.stdin.read()
"""


def holder(path: Path, what: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLD, str(path), what]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


@pytest.mark.parametrize("what", ["wait", "close"])
def test_another_process_keeps_us_out_until_it_ends(tmp_path: Path, what: str) -> None:
    """The lock holds even when a child process has closed its copy."""
    with holder(tmp_path, what) as process:
        with pytest.raises(ConfigError, match=f"{tmp_path}: it is in use by another broker"):
            DirectoryLock(tmp_path)
        process.kill()
        process.wait(DEADLINE)
        DirectoryLock(tmp_path).close()


def test_a_child_that_outlives_the_broker_does_not_keep_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path, "fork") as process:
        assert process.wait(DEADLINE) == 0
        DirectoryLock(tmp_path).close()
        assert process.stdin is not None
        process.stdin.close()  # ends the child


def test_within_one_process_it_is_given_once(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "link"):
        with pytest.raises(ConfigError, match="in use"):
            DirectoryLock(path)
    with pytest.raises(subprocess.CalledProcessError):  # the refusals have not given it back
        subprocess.run(
            [sys.executable, "-c", HOLD, str(tmp_path), "fork"], check=True, capture_output=True, timeout=DEADLINE
        )
    lock.close()
    lock.close()
    DirectoryLock(tmp_path).close()


def test_a_lock_file_that_cannot_be_made_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(IsADirectoryError):
        DirectoryLock(tmp_path)
    (tmp_path / ".lock").rmdir()
    DirectoryLock(tmp_path).close()
