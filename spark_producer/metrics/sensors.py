"""The kinds of events with the numbers that are counted for each, and the sensors, each of which has two of these numbers."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.metrics.windowed_counters import CounterValues, Peak, Sum, WindowedCounters

_MS = 1e3
_NS = 1e9


class DrainedBatches(WindowedCounters):
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


class ReadyNodes(WindowedCounters):
    """Ready nodes whose batches were taken; `requests` counts those that had any."""

    drains: Sum
    requests: Sum
    records: Sum
    largest: Peak


class DeliveredBatches(WindowedCounters):
    """Acknowledged batches; `seconds` is the sum of their records' ages."""

    batches: Sum
    records: Sum
    bytes: Sum
    seconds: Sum
    oldest: Peak


class RequestsSent(WindowedCounters):
    """The writes to a node's socket, and the requests that end in them."""

    operations: Sum
    bytes_out: Sum
    requests: Sum
    request_bytes: Sum
    largest: Peak


class BytesReceived(WindowedCounters):
    """The reads from a node's socket."""

    operations: Sum
    bytes_in: Sum


class ResponsesReceived(WindowedCounters):
    """The responses of a node. `latencies` are those of Produce; `reports` counts throttle times, `throttles` those above 0."""

    responses: Sum
    reports: Sum
    throttles: Sum
    throttle_ms: Sum
    produced: Sum
    latencies: Sum
    longest_throttle: Peak
    longest_latency: Peak


class Polls(WindowedCounters):
    """The turns of the I/O loop."""

    polls: Sum
    waited: Sum
    worked: Sum


class Tally(NamedTuple):
    """A sensor's state at one moment, as plain numbers.

    `amount` is the sum of `weight` values (or parts of them), and `largest` the largest value, 0 if there are none. These three
    and the two rates cover the window or interval. `total_weight` and `total` cover the time since the start, or the interval.
    Units are those of the values; rates are per second.
    """

    weight: float = 0
    amount: float = 0
    largest: float = 0
    weight_rate: float = 0.0
    rate: float = 0.0
    total_weight: float = 0
    total: float = 0


class Sensor(NamedTuple):
    """A sensor: its kinds of events, and the names of its values in them, each multiplied by `scale`."""

    kinds: tuple[str, ...]
    weight: str = "count"
    amount: str = "amount"
    largest: str = ""
    scale: float = 1

    def tally(self, reading: CounterValues, seconds: float) -> Tally:
        """Return the tally of some values, over a window or interval of `seconds`; without events it is all zeros."""
        weight, amount = reading.sums.get(self.weight, 0), reading.sums.get(self.amount, 0) * self.scale
        total_weight, total = reading.totals.get(self.weight, 0), reading.totals.get(self.amount, 0) * self.scale
        largest = reading.peaks.get(self.largest, 0) * self.scale
        return Tally(weight, amount, largest, weight / seconds, amount / seconds, total_weight, total)


SENSORS = {
    "batch-size": Sensor(("drained",), "batches", "bytes", "largest_batch"),
    "queue-time": Sensor(("drained",), "batches", "queued", "longest_queued", _MS),
    "compression": Sensor(("drained",), "batches", "ratios"),
    "compressed-bytes": Sensor(("drained",), "uncompressed", "compressed"),
    "record-size": Sensor(("drained",), "batches", "bounds", "largest_bound"),
    "record-bytes": Sensor(("drained",), "records", "uncompressed"),
    "topic-records": Sensor(("drained",), "batches", "records"),
    "records-per-request": Sensor(("drains",), "drains", "records"),
    "records-per-produce": Sensor(("drains",), "requests", "records", "largest"),
    "delivered": Sensor(("delivered",), "batches", "records"),
    "delivered-bytes": Sensor(("delivered",), "batches", "bytes"),
    "record-latency": Sensor(("delivered",), "records", "seconds", "oldest", _MS),
    "record-retry": Sensor(("retried",)),
    "record-rejected": Sensor(("rejected",)),
    "record-error": Sensor(("errors", "refused")),
    "bytes-out": Sensor(("outgoing",), "operations", "bytes_out"),
    "requests": Sensor(("outgoing",), "requests", "request_bytes", "largest"),
    "bytes-in": Sensor(("incoming",), "operations", "bytes_in"),
    "network-io": Sensor(("outgoing", "incoming"), "operations", "operations"),
    "responses": Sensor(("responses",), "responses", "responses"),
    "request-latency": Sensor(("responses",), "produced", "latencies", "longest_latency", _MS),
    "throttle": Sensor(("responses",), "reports", "throttle_ms", "longest_throttle"),
    "throttled": Sensor(("responses",), "throttles", "throttle_ms", "longest_throttle"),
    "select": Sensor(("polls",), "polls", "waited", scale=_NS),
    "io-time": Sensor(("polls",), "polls", "worked", scale=_NS),
    "topic-fetch-size": Sensor(("fetched",), largest="largest"),
    "records-consumed": Sensor(("consumed",)),
    "records-lag": Sensor(("lag",), largest="largest"),
}
"""The sensors that are not `SingleValues` of their own. Those of the whole producer sum up all topics or nodes, and all kinds;
those of one topic or node use the first kind only."""


def sensor_named(sensor: str) -> Sensor:
    """Return the sensor of that name."""
    return SENSORS.get(sensor) or Sensor((sensor,), largest="largest")
