"""What a command says while it waits for brokers, so that nobody sits before a silent terminal."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.cli.terminal import complain

STILL_TRYING = 2.0
"""Seconds without an answer after which a command says what it waits for."""


class Wait:
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
            complain(f"still trying {subject} … (for {self._most:g} s at most)")
