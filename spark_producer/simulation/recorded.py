"""What producers did on real clusters, ours and Kafka's own, as it was written down by `python -m benchmarks.partitioning`.

Owns: the files' names and form. Must not know: how figures come about, or look.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple

PERCENTILES = ("p50", "p95", "p99", "p99.9")
RECORD_BYTES = 512
SPREADS_FILE = "spread.json"


class Measured(NamedTuple):
    """One run: MiB per second, latencies in ms; requests and bytes per batch count from the beginning."""

    variant: str
    producer: str
    megabytes: float
    mean: float
    percentiles: dict[str, float]
    requests: float
    batch_bytes: float
    shares: tuple[float, ...] = ()
    """of the records, by broker; the first is the slow one"""


class Spread(NamedTuple):
    """A run of KIP-480's comparison."""

    partitions: int
    linger_ms: int
    measured: Measured
    seconds: float

    @property
    def records_per_batch(self) -> float:
        """From the mean size of a batch: 61 bytes, and 520 to 522 for each record of 512."""
        return (self.measured.batch_bytes - 61) / (RECORD_BYTES + 9)

    @property
    def requests_per_second(self) -> float:
        """Over the whole run."""
        return self.measured.requests / self.seconds


def slow_broker_file(megabytes: float) -> str:
    """Name of the file for a load in MB/s."""
    return f"slow-broker-{megabytes:g}.json"


def read_slow_broker(megabytes: float) -> list[Measured]:
    """The runs at a load."""
    return [_measured(run) for run in _read(slow_broker_file(megabytes))]


def read_spreads() -> list[Spread]:
    """KIP-480's comparison."""
    runs = _read(SPREADS_FILE)
    return [Spread(partitions, linger, _measured(run), seconds) for partitions, linger, run, seconds in runs]


def _read(name: str) -> list[list[Any]]:
    runs: list[list[Any]] = json.loads((files(__package__) / "measured" / name).read_text(encoding="utf-8"))
    return runs


def _measured(fields: list[Any]) -> Measured:
    found = Measured(*fields)
    return found._replace(shares=tuple(found.shares))
