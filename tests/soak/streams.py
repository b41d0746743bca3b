"""The streams of a soak: one at least once, one exactly once, and one from Kafka to Kafka that reads the second.

The first two write the numbers 0, 1, 2, … of Spark's `rate-micro-batch`, which gives the same rows again after every death. So
nothing is kept on disk, and what must have arrived is one number: the end of the last micro-batch that was committed.

Owns: the queries, their lives, what they have committed. Must not know: faults, readers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.matrix.drivers import Driver, Drivers
from tests.matrix.play import LOUD, short_message

TASKS = 2
"""A divisor of the number of keys, 10: so the rows of a key come from one task, in order."""
INTERVAL = "1 second"
SECONDS = 1e6
"""A query ends when it is stopped, not by time."""
PAUSE = 2.0
"""Seconds between the failure of a query and its next start."""
MAX_OFFSETS = "20000"


class Plan(NamedTuple):
    """What a stream is to do; `source` is the topic that it reads, if it reads one."""

    name: str
    topic: str
    once: bool
    source: str = ""
    inline: bool = True
    """Whether the driver sends the rows of small tasks, as it does by default; else each task has a transaction of its own."""
    spared: bool = False
    """Whether its driver is never killed, so that one life is as long as the run."""


PLANS = (
    Plan("at least once", "soak-at-least-once", once=False),
    Plan("exactly once", "soak-exactly-once", once=True, inline=False),
    Plan("Kafka to Kafka", "soak-copied", once=True, source="soak-exactly-once", spared=True),
)


@dataclass
class Life:
    """A run of a query, from its start to its end, in seconds of the soak."""

    begin: float
    end: float
    driver: int
    """The number of its driver."""
    error: str = ""


@dataclass
class Stream:
    """One query, which is started again whenever it has ended."""

    plan: Plan
    home: Path
    drivers: Drivers
    connection: Mapping[str, str]
    """Options of sink and source, `kafka.bootstrap.servers` among them."""
    rows: int
    """Rows of a micro-batch."""
    clock: Callable[[], float]
    lives: list[Life] = field(default_factory=list)
    driver: Driver | None = None
    loud: str = ""
    """The message of an end that people must look at."""
    _number: int = 0
    _running: bool = False
    _endless: bool = True
    _next: float = 0.0

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the query."""
        return self.home / self.plan.topic

    def turn(self, *, endless: bool = True) -> bool:
        """Start the query if it does not run; return whether it has ended well, as one that is not `endless` does."""
        if self._running and self._has_ended():
            self._running = False
            if not self.lives[-1].error and not self._endless:
                return True
        if self.driver is not None and self.driver.process.has_ended():
            self.driver.kill()  # its JVM and its workers may live on
            self.driver = None
        if not self._running and self.clock() >= self._next and not self.loud:
            self._start(endless)
        return False

    def close_life(self) -> None:
        """Note that a query that still runs did so until now."""
        if self._running:
            self.lives[-1].end = self.clock()

    def stop(self) -> None:
        """Stop the query, also in the midst of a micro-batch."""
        if self.driver is not None and self._running:
            self.driver.stop_query(self._number)

    def has_settled(self) -> bool:
        """Return whether the query runs for some seconds already."""
        return self._running and self.lives[-1].begin + 5 < self.clock()

    def committed(self) -> int:
        """Rows of the micro-batches that are committed: those are the numbers below it."""
        if self.plan.source:
            raise ValueError(f"{self.plan.name} has no numbers of its own")
        done = [int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*")]
        while done:
            try:
                line = (self.checkpoint / "offsets" / str(max(done))).read_text().splitlines()[-1]
                return int(json.loads(line)["offset"])
            except (FileNotFoundError, IndexError, ValueError):  # Spark removes old ones meanwhile, or writes this one
                done.remove(max(done))
        return 0

    def _has_ended(self) -> bool:
        assert self.driver is not None
        outcome = self.driver.outcome(self._number)
        if outcome is None and not self.driver.process.has_ended():
            return False
        error = "the driver died" if outcome is None else str(outcome["error"])
        self.lives[-1].end, self.lives[-1].error = self.clock(), short_message(error)
        self._next = self.clock() + (PAUSE if outcome is not None else 0)
        if any(text in error for text in LOUD.values()):
            self.loud = short_message(error)
        return True

    def _start(self, endless: bool) -> None:
        if self.driver is None:
            if not self.drivers.ready:
                return
            self.driver = self.drivers.take()
        self._number, self._endless, self._running = self.driver.give(self._job(endless)), endless, True
        self.lives.append(Life(self.clock(), self.clock(), self.driver.number))

    def _job(self, endless: bool) -> dict[str, Any]:
        plan = self.plan
        once = {"exactlyOnceId": plan.topic, "kafka.transaction.timeout.ms": "60000"} if plan.once else {}
        once |= {} if plan.inline else {"exactlyOnceMaxInlineBytes": "0"}
        job: dict[str, Any] = {
            "checkpoint": str(self.checkpoint),
            "format": "pyproducer",
            "options": {**self.connection, **once, "topic": plan.topic},
            "endless": endless,
            "interval": INTERVAL,
            "seconds": SECONDS,
        }
        if plan.source:
            bounds = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": MAX_OFFSETS}
            isolation = {"kafka.isolation.level": "read_committed"}
            job["source"] = {**self.connection, **bounds, **isolation, "subscribe": plan.source}
        else:
            job["numbers"] = {"rowsPerBatch": self.rows, "numPartitions": TASKS, "startTimestamp": 0}
        return job


def play_until(streams: list[Stream], seconds: float) -> list[Stream]:
    """Let streams come to their ends, without new rows; return those that did not within some seconds."""
    for stream in streams:
        stream.stop()
    left, deadline = list(streams), time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        left = [stream for stream in left if not stream.turn(endless=False) and not stream.loud]
        time.sleep(0.05)  # the pace of the turns
    return left
