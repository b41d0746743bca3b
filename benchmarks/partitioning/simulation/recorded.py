"""The recorded runs of producers on real clusters, ours and Kafka's own, written by `python -m benchmarks.partitioning`."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple

PERCENTILES = ("p50", "p95", "p99", "p99.9")
RECORD_BYTES = 512
SPREADS_FILE = "spread.json"


class Measured(NamedTuple):
    """One run, with MiB per second and latencies in ms. Requests and bytes per batch count from its beginning."""

    variant: str
    producer: str
    megabytes: float
    mean: float
    percentiles: dict[str, float]
    requests: float
    batch_bytes: float
    shares: tuple[float, ...] = ()
    """The shares of the records by broker; the first is the slow one."""


class Spread(NamedTuple):
    """A run of KIP-480's comparison."""

    partitions: int
    linger_ms: int
    measured: Measured
    seconds: float

    @property
    def records_per_batch(self) -> float:
        """The records per batch, from its mean size: 61 bytes, and 520 to 522 for each record of 512."""
        return (self.measured.batch_bytes - 61) / (RECORD_BYTES + 9)

    @property
    def requests_per_second(self) -> float:
        """The requests per second over the whole run."""
        return self.measured.requests / self.seconds


def slow_broker_file(megabytes: float) -> str:
    """Return the name of the file for a load in MB/s."""
    return f"slow-broker-{megabytes:g}.json"


def read_slow_broker(megabytes: float) -> list[Measured]:
    """Return the runs at a load in MB/s."""
    return [_measured(run) for run in _read(slow_broker_file(megabytes))]


def read_spreads() -> list[Spread]:
    """Return the runs of KIP-480's comparison."""
    runs = _read(SPREADS_FILE)
    return [Spread(partitions, linger, _measured(run), seconds) for partitions, linger, run, seconds in runs]


def _read(name: str) -> list[list[Any]]:
    runs: list[list[Any]] = json.loads((files(__package__) / "measured" / name).read_text(encoding="utf-8"))
    return runs


def _measured(fields: list[Any]) -> Measured:
    found = Measured(*fields)
    return found._replace(shares=tuple(found.shares))
