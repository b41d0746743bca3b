"""What a command says while it waits for brokers or works through something long: nobody sits before a silent terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from spark_producer.cli.console import print_error
from spark_producer.common.escape import for_log

STILL_TRYING = 2.0
"""Seconds without an answer after which a command says what it waits for."""

WIDTH = 24
"""Characters of a bar."""


class WaitNotice:
    """Is called while a command waits for a broker, and complains once in each wait. `most` (seconds) is how long it waits.

    `look` is called each time: what it raises ends the wait.
    """

    def __init__(self, most: float, look: Callable[[], None] = lambda: None) -> None:
        self._most = most
        self._look = look
        self._told: set[str] = set()
        """What was said to be waited for. Waits for other things may lie within such a wait."""

    def __call__(self, seconds: float, subject: str) -> None:
        """`seconds` is how long this wait has lasted, `subject` for what."""
        self._look()
        if seconds < STILL_TRYING:
            self._told.discard(subject)
        elif subject not in self._told:
            self._told.add(subject)
            print_error(f"still trying {subject} … (for {self._most:g} s at most)")


class ProgressBar:
    """A bar on stderr, where that is a terminal; elsewhere nothing. `total` None is for what has no known end."""

    def __init__(self, what: str, total: int | None, unit: str = "") -> None:
        self._what, self._total, self._unit = for_log(what), total, unit
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._last = ""
        encoding = (getattr(sys.stderr, "encoding", None) or "").lower()
        self._full, self._empty = "█░" if encoding.startswith("utf") else "#-"

    def __call__(self, done: int) -> None:
        """Show how much is done."""
        if not self._shown:
            return
        line = f"{self._what}  {done:,}{self._unit}"
        if self._total:
            filled = min(WIDTH, WIDTH * done // self._total)
            percent = min(100, 100 * done // self._total)
            line = f"{self._what}  {self._full * filled}{self._empty * (WIDTH - filled)} {percent:3} %"
        if line != self._last:
            self._last = line
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the bar away."""
        if self._last:
            self._last = ""
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
