"""Progress output for commands that wait or run for a long time."""

from __future__ import annotations

import sys
from collections.abc import Callable

from spark_producer.cli.console import print_error
from spark_producer.common.escape import for_log

STILL_TRYING = 2.0
"""Seconds without a response after which a command reports what it waits for."""

WIDTH = 24
"""The width of a bar in characters."""


class WaitNotice:
    """Prints a line, once in each wait for brokers; to be called while a command waits at most `timeout` seconds.

    `check` is called each time; an exception from it ends the wait.
    """

    def __init__(self, timeout: float, check: Callable[[], None] = lambda: None) -> None:
        self._timeout = timeout
        self._check = check
        self._reported: set[str] = set()
        """The subjects of lines that were printed. A wait may contain waits for other subjects."""

    def __call__(self, seconds: float, subject: str) -> None:
        """Print the line if the wait for `subject` has lasted long enough; `seconds` is its duration."""
        self._check()
        if seconds < STILL_TRYING:
            self._reported.discard(subject)
        elif subject not in self._reported:
            self._reported.add(subject)
            print_error(f"still trying {subject} … (for {self._timeout:g} s at most)")


class ProgressBar:
    """A bar on stderr, if that is a terminal. `label` stands before it; `total` is None where the end is unknown."""

    def __init__(self, label: str, total: int | None, unit: str = "") -> None:
        self._label, self._total, self._unit = for_log(label), total, unit
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._last = ""
        encoding = (getattr(sys.stderr, "encoding", None) or "").lower()
        self._full, self._empty = "█░" if encoding.startswith("utf") else "#-"

    def __call__(self, done: int) -> None:
        """Show `done` of the total."""
        if not self._shown:
            return
        line = f"{self._label}  {done:,}{self._unit}"
        if self._total:
            filled = min(WIDTH, WIDTH * done // self._total)
            percent = min(100, 100 * done // self._total)
            line = f"{self._label}  {self._full * filled}{self._empty * (WIDTH - filled)} {percent:3} %"
        if line != self._last:
            self._last = line
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Remove the bar."""
        if self._last:
            self._last = ""
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
