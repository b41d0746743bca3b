"""Settings of Spark's Python processes. Each case runs in a process of its own, which it changes for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_producer.datasource.interpreter import KEPT, limit_malloc_trim

PIECES, PIECE, ROUNDS = 3, 5 << 20, 20
PROGRAM = f"""
import gc, resource, sys
from spark_producer.datasource import interpreter
for setting in sys.argv[1:]:
    getattr(interpreter, setting)()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    pieces = [b"x" * {PIECE} for _ in range({PIECES})]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, gc.get_freeze_count())
"""


def measured(*settings: str) -> tuple[int, int]:
    """Page faults of `ROUNDS` rounds of `PIECES` large allocations, and how many objects the collector passes over."""
    command = [sys.executable, "-c", PROGRAM, *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    faults, frozen = map(int, done.stdout.split())
    return faults, frozen


def test_freed_memory_is_used_again_without_the_kernel() -> None:
    assert PIECES * PIECE < KEPT
    kept, _ = measured("limit_malloc_trim")
    returned, _ = measured("freeze_once")
    assert kept * ROUNDS // 5 < returned, "about one round of faults instead of all"


def test_what_was_imported_is_frozen() -> None:
    assert measured("freeze_once")[1] > 1000
    assert measured("limit_malloc_trim")[1] == 0


@pytest.mark.slow
def test_the_first_task_freezes_nothing_and_the_second_one_everything() -> None:
    task = "gc_freeze_on_second_task"
    assert measured(task)[1] == 0
    assert measured(task, task)[1] > 1000
    assert measured(task, task, task)[1] == measured(task, task)[1]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def load(name: object) -> object:
        asked.append(name)
        return object()

    monkeypatch.setattr("ctypes.CDLL", load)  # this process has one C library, and it must not be another
    limit_malloc_trim.__wrapped__()
    assert asked == [None]
