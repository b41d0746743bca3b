"""A producer under steady load, until something has happened.

Owns: the pace, the count of rows, the deadline. Must not know: what is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from spark_producer import Producer
from tests.security.ours import numbers

ROWS_AT_ONCE = 20
PAUSE = 0.005
"""Seconds. Some four thousand rows a second: always some in flight, and few enough to be read back at once."""
SECONDS = 60.0


class Load:
    """Rows with the values 0, 1, 2, … to one topic; `count` of them were given to the producer."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self.count = 0

    def send(self) -> None:
        """Some rows. Raises what the producer raises."""
        self._producer.send_batch(numbers(self.count, ROWS_AT_ONCE), topic=self._topic)
        self.count += ROWS_AT_ONCE

    def until(self, happened: Callable[[], bool]) -> None:
        """Send until `happened`, then see that all is acknowledged. Raises TimeoutError, and what the producer raises."""
        send_all([self], happened)

    def flush(self) -> None:
        """Wait until all is acknowledged. Raises what the producer raises."""
        self._producer.flush()


def send_all(loads: Collection[Load], happened: Callable[[], bool]) -> None:
    """Wait as `Load.until`, with several loads at once."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it has not happened after {SECONDS:.0f} s and {[load.count for load in loads]} rows")
        for load in loads:
            load.send()
        time.sleep(PAUSE)  # the pace of the load
    for load in loads:
        load.flush()
