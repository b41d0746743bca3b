"""The script of a simulated disk: calls that fail, are slow, or wait; and the calls that came."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

DEADLINE = 30.0
"""Seconds after which a call that waits gives up, and so does a test that waits for a call."""


class Call(NamedTuple):
    """A call on the file at `path`, by the name of the method."""

    name: str
    path: Path
    position: int = 0
    size: int = 0


class Failure:
    """Calls that fail, after `after` of them have not; the first `kept` bytes of a write arrive nevertheless."""

    def __init__(self, times: int | None, code: int, after: int, kept: int) -> None:
        self.times, self.code, self.after, self.kept = times, code, after, kept


class DiskScript:
    """Calls are distinguished by their name and a pattern of the shell for the name of the file or directory,
    or for its whole path if there is a `/` in the pattern."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._changed = threading.Condition()
        self._failures: list[tuple[str, str, Failure]] = []
        self._delays: list[tuple[str, str, float]] = []
        self._blocked: list[tuple[str, str]] = []
        self._kept = threading.local()

    @property
    def kept_bytes(self) -> int:
        """Bytes of the failed write that reach the disk, in this thread."""
        return getattr(self._kept, "size", 0)

    def fail(
        self,
        name: str,
        pattern: str = "*",
        *,
        times: int | None = 1,
        code: int = errno.EIO,
        after: int = 0,
        kept: int = 0,
    ) -> None:
        """Make the next calls fail: `times` of them, None for all, once `after` of them have passed."""
        self._failures.append((name, pattern, Failure(times, code, after, kept)))

    def heal(self) -> None:
        """Make no call fail any more."""
        with self._changed:
            self._failures.clear()

    def delay(self, name: str, seconds: float, pattern: str = "*") -> None:
        """Make all these calls take this many seconds."""
        self._delays.append((name, pattern, seconds))

    @contextmanager
    def blocked(self, name: str, pattern: str = "*") -> Iterator[None]:
        """Make these calls wait until the end of the `with` block."""
        self.block(name, pattern)
        try:
            yield
        finally:
            self.release(name, pattern)

    def block(self, name: str, pattern: str = "*") -> None:
        """Make these calls wait until `release`."""
        with self._changed:
            self._blocked.append((name, pattern))

    def release(self, name: str, pattern: str = "*") -> None:
        """Let the calls go on that `block` holds by this name and pattern."""
        with self._changed:
            self._blocked.remove((name, pattern))
            self._changed.notify_all()

    def count(self, name: str, pattern: str = "*") -> int:
        """Return the number of these calls, including those that wait or have failed."""
        return len(self.matching(name, pattern))

    def matching(self, name: str, pattern: str = "*") -> list[Call]:
        """Return these calls, in order."""
        with self._changed:
            return [call for call in self.calls if matches(call, name, pattern)]

    def wait_for(self, name: str, pattern: str = "*", *, count: int = 1) -> None:
        """Wait until this number of these calls came."""
        with self._changed:
            came = self._changed.wait_for(
                lambda: sum(matches(call, name, pattern) for call in self.calls) >= count, DEADLINE
            )
        assert came, f"{count} calls of {name} on {pattern} did not come"

    def meet(self, call: Call) -> None:
        """Called by the disk before it does what it was called for."""
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
            seconds = sum(each for name, pattern, each in self._delays if matches(call, name, pattern))
            free = self._changed.wait_for(lambda: not any(matches(call, *block) for block in self._blocked), DEADLINE)
            assert free, f"{call} was blocked and never released"
            failure = self._failure_of(call)
        if seconds:
            time.sleep(seconds)  # how slow the disk is
        if failure is not None:
            self._kept.size = failure.kept
            raise OSError(failure.code, os.strerror(failure.code), str(call.path))

    def _failure_of(self, call: Call) -> Failure | None:
        for name, pattern, failure in self._failures:
            if not matches(call, name, pattern) or failure.times == 0:
                continue
            if failure.after > 0:
                failure.after -= 1
                continue
            if failure.times is not None:
                failure.times -= 1
            return failure
        return None


def matches(call: Call, name: str, pattern: str) -> bool:
    path = str(call.path) if "/" in pattern else call.path.name
    return call.name == name and fnmatch(path, pattern)
