"""A client with a clock of the test, polled until something is so.

Owns: the deadline of each wait. Must not know: the server, and what is tested.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_producer.network.client import Client, Completion

DEADLINE = 20.0


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Driver:
    """A client, and what a test does with it: poll until something is so, or the deadline of the test has passed."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.client = client
        self.clock = clock
        self.completions: list[Completion] = []
        self.polls = 0

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, f"waited {DEADLINE} s for {what}"
            self.completions += self.client.poll(0.05)
            self.polls += 1

    def until_ready(self, node: int = -1) -> None:
        self.poll_until(lambda: self.client.ready(node), f"node {node} to be ready")

    def until_disconnected(self) -> list[int]:
        found: list[int] = []

        def disconnected() -> bool:
            found.extend(self.client.take_disconnected())
            return bool(found)

        self.poll_until(disconnected, "a disconnect")
        return found

    def until_completed(self, count: int = 1) -> list[Completion]:
        self.poll_until(lambda: len(self.completions) >= count, f"{count} completions")
        taken, self.completions = self.completions, []
        return taken
