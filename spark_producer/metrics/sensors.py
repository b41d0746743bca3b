"""The kinds of events with their numbers, and the sensors, each of which is a pair of these numbers."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.metrics.windowed_counters import Counters, Peak, Reading, Sum

_MS = 1e3
_NS = 1e9


class DrainedBatches(Counters):
    """The batches of a topic that were taken for a request. `ratios` and `bounds` are sums over batches, one value for each."""

    batches: Sum
    records: Sum
    bytes: Sum
    queued: Sum
    ratios: Sum
    uncompressed: Sum
    compressed: Sum
    bounds: Sum
    largest_batch: Peak
    longest_queued: Peak
    largest_bound: Peak


class ReadyNodes(Counters):
    """Ready nodes whose batches were taken; `requests` counts those that had any."""

    drains: Sum
    requests: Sum
    records: Sum
    largest: Peak


class Delivered(Counters):
    """Acknowledged batches; `seconds` is the sum of their records' ages."""

    batches: Sum
    records: Sum
    bytes: Sum
    seconds: Sum
    oldest: Peak


class Outgoing(Counters):
    """The writes to a node's socket, and the requests that end in them."""

    operations: Sum
    bytes_out: Sum
    requests: Sum
    request_bytes: Sum
    largest: Peak


class Incoming(Counters):
    """The reads from a node's socket."""

    operations: Sum
    bytes_in: Sum


class Answered(Counters):
    """The responses of a node. `latencies` are those of Produce; `reports` counts throttle times, `throttles` those above 0."""

    responses: Sum
    reports: Sum
    throttles: Sum
    throttle_ms: Sum
    produced: Sum
    latencies: Sum
    longest_throttle: Peak
    longest_latency: Peak


class Polls(Counters):
    """The turns of the I/O loop."""

    polls: Sum
    waited: Sum
    worked: Sum


class Tally(NamedTuple):
    """A sensor's state at one moment, as plain numbers.

    `weight` values, or as many parts, add up to `amount`; the largest is `largest`, which is 0 if there are none. These three
    and the two rates cover the window or lap. `total_weight` and `total` cover the time since the beginning, or the lap. Units
    are those of the values; rates are per second.
    """

    weight: float = 0
    amount: float = 0
    largest: float = 0
    weight_rate: float = 0.0
    rate: float = 0.0
    total_weight: float = 0
    total: float = 0


class Quantity(NamedTuple):
    """A sensor: its kinds of events, and the names of its numbers in them, which are multiplied by `scale`."""

    kinds: tuple[str, ...]
    weight: str = "count"
    amount: str = "amount"
    largest: str = ""
    scale: float = 1

    def tally(self, reading: Reading, seconds: float) -> Tally:
        """Return the tally of a reading, over a window or lap of `seconds`; without events it is all zeros."""
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
    "records-per-request": Quantity(("drains",), "drains", "records"),
    "records-per-produce": Quantity(("drains",), "requests", "records", "largest"),
    "delivered": Quantity(("delivered",), "batches", "records"),
    "delivered-bytes": Quantity(("delivered",), "batches", "bytes"),
    "record-latency": Quantity(("delivered",), "records", "seconds", "oldest", _MS),
    "record-retry": Quantity(("retried",)),
    "record-rejected": Quantity(("rejected",)),
    "record-error": Quantity(("errors", "refused")),
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
"""The sensors that are not `SingleValues` of their own. Those of the whole producer sum up all topics or nodes, and all kinds;
those of one topic or node use the first kind only."""


def quantity(sensor: str) -> Quantity:
    """Return the sensor of that name."""
    return QUANTITIES.get(sensor) or Quantity((sensor,), largest="largest")
