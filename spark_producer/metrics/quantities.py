"""What is counted: the kinds of events with their numbers, and the sensors of the table of names as pairs of such numbers.

Owns: which numbers a kind of event has, which of them make a sensor. Must not know: when events come, how a metric reads.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.metrics.counters import Counters, Reading

_MS = 1e3
_NS = 1e9


class Drained(Counters):
    """Batches taken for a request; of each topic. `ratios` and `bounds` are sums of what each batch has one of."""

    SUMS = ("batches", "records", "bytes", "queued", "ratios", "uncompressed", "compressed", "bounds")
    PEAKS = ("largest_batch", "longest_queued", "largest_bound")
    __slots__ = SUMS + PEAKS

    batches: int
    records: int
    bytes: int
    queued: float
    ratios: float
    uncompressed: int
    compressed: int
    bounds: int
    largest_batch: int
    longest_queued: float
    largest_bound: int


class Drains(Counters):
    """Ready nodes; `requests` are those that got batches."""

    SUMS = ("drains", "requests", "records")
    PEAKS = ("largest",)
    __slots__ = SUMS + PEAKS

    drains: int
    requests: int
    records: int
    largest: int


class Delivered(Counters):
    """Acknowledged batches; `seconds` is the sum of their records' ages."""

    SUMS = ("batches", "records", "bytes", "seconds")
    PEAKS = ("oldest",)
    __slots__ = SUMS + PEAKS

    batches: int
    records: int
    bytes: int
    seconds: float
    oldest: float


class Outgoing(Counters):
    """Writes to a socket, and the requests that end in them; of each node."""

    SUMS = ("operations", "bytes_out", "requests", "request_bytes")
    PEAKS = ("largest",)
    __slots__ = SUMS + PEAKS

    operations: int
    bytes_out: int
    requests: int
    request_bytes: int
    largest: int


class Incoming(Counters):
    """Reads from a socket; of each node."""

    SUMS = ("operations", "bytes_in")
    __slots__ = SUMS

    operations: int
    bytes_in: int


class Answered(Counters):
    """Responses; of each node. `latencies` are those of Produce; `reports` of a throttle time contain zeros, `throttles` not."""

    SUMS = ("responses", "reports", "throttles", "throttle_ms", "produced", "latencies")
    PEAKS = ("longest_throttle", "longest_latency")
    __slots__ = SUMS + PEAKS

    responses: int
    reports: int
    throttles: int
    throttle_ms: int
    produced: int
    latencies: float
    longest_throttle: int
    longest_latency: float


class Polls(Counters):
    """Turns of the I/O loop."""

    SUMS = ("polls", "waited", "worked")
    __slots__ = SUMS

    polls: int
    waited: float
    worked: float


class Tally(NamedTuple):
    """A sensor's state at one moment, as plain numbers.

    `weight` values, or as many parts, amount to `amount`; the largest is `largest`, 0 of nothing. They and the two
    rates are those of the window or lap, `total_weight` and `total` those since the beginning, or of the lap. Units are
    those of the values; rates are per second.
    """

    weight: float = 0
    amount: float = 0
    largest: float = 0
    weight_rate: float = 0.0
    rate: float = 0.0
    total_weight: float = 0
    total: float = 0


class Quantity(NamedTuple):
    """A sensor: kinds of events, and the names of its numbers there. Its unit is `scale` times theirs."""

    kinds: tuple[str, ...]
    weight: str = "count"
    amount: str = "amount"
    largest: str = ""
    scale: float = 1

    def tally(self, reading: Reading, seconds: float) -> Tally:
        """Of what its kinds amount to, in a window or lap of `seconds`; zeros of nothing."""
        weight, amount = reading.sums.get(self.weight, 0), reading.sums.get(self.amount, 0) * self.scale
        total_weight, total = reading.totals.get(self.weight, 0), reading.totals.get(self.amount, 0) * self.scale
        largest = reading.peaks.get(self.largest, 0) * self.scale
        return Tally(weight, amount, largest, weight / seconds, amount / seconds, total_weight, total)


QUANTITIES = {
    "batch-size": Quantity(("drained",), "batches", "bytes", "largest_batch"),
    "queue-time": Quantity(("drained",), "batches", "queued", "longest_queued", _MS),
    "compression": Quantity(("drained",), "batches", "ratios"),
    "compressed-bytes": Quantity(("drained",), "uncompressed", "compressed"),
    "record-size": Quantity(("drained",), "batches", "bounds", "largest_bound"),
    "record-bytes": Quantity(("drained",), "records", "uncompressed"),
    "topic-records": Quantity(("drained",), "batches", "records"),
    "topic-bytes": Quantity(("drained",), "batches", "bytes"),
    "topic-compression": Quantity(("drained",), "batches", "ratios"),
    "records-per-request": Quantity(("drains",), "drains", "records"),
    "records-per-produce": Quantity(("drains",), "requests", "records", "largest"),
    "delivered": Quantity(("delivered",), "batches", "records"),
    "delivered-bytes": Quantity(("delivered",), "batches", "bytes"),
    "record-latency": Quantity(("delivered",), "records", "seconds", "oldest", _MS),
    "record-retry": Quantity(("retried",)),
    "topic-retry": Quantity(("retried",)),
    "record-error": Quantity(("errors", "refused")),
    "topic-error": Quantity(("errors",)),
    "bytes-out": Quantity(("outgoing",), "operations", "bytes_out"),
    "requests": Quantity(("outgoing",), "requests", "request_bytes", "largest"),
    "bytes-in": Quantity(("incoming",), "operations", "bytes_in"),
    "network-io": Quantity(("outgoing", "incoming"), "operations", "operations"),
    "responses": Quantity(("answered",), "responses", "responses"),
    "request-latency": Quantity(("answered",), "produced", "latencies", "longest_latency", _MS),
    "throttle": Quantity(("answered",), "reports", "throttle_ms", "longest_throttle"),
    "throttled": Quantity(("answered",), "throttles", "throttle_ms", "longest_throttle"),
    "select": Quantity(("polls",), "polls", "waited", scale=_NS),
    "io-time": Quantity(("polls",), "polls", "worked", scale=_NS),
}
"""The sensors that are not a kind of their own, of single values. Those of the whole producer sum up all topics or nodes."""


def quantity(sensor: str) -> Quantity:
    """The sensor of that name."""
    return QUANTITIES.get(sensor) or Quantity((sensor,), largest="largest")
