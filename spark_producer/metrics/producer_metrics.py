"""What a producer does, event by event, recorded into its sensors.

Owns: which event touches which sensors; the bound on nodes and topics. Must not know: who calls, threads, any clock.

The methods are named for events and take plain numbers: durations and `now` in seconds, sizes in bytes. They are called per
batch, per request, per wait, per turn of the I/O loop: never per record. Any thread may call them: the lock that the owner
passes in is taken for a microsecond or two, and nothing else is locked or called while it is held (docs/metrics.md).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from spark_producer.metrics.names import CLIENT, NODE, OWN, TOPIC, histograms, sensors_of
from spark_producer.metrics.sensors import Histogram, Sensor, Tally, Window
from spark_producer.metrics.snapshot import Levels, Place, Snapshot

MAX_NODES = 256
MAX_TOPICS = 1000
"""Nodes and topics that get sensors of their own. Those that come later share one set of sensors."""

OTHER_NODES = "node-other"
OTHER_TOPICS = "(other)"
"""Tags of those that share. No topic can have that name."""

_MS = 1e3
_NS = 1e9


class _Node:
    """Sensors of one node; the attributes are those of the table."""

    __slots__ = ("bytes_in", "bytes_out", "request_latency", "requests", "responses")

    def __init__(self, window: Window) -> None:
        self.bytes_out = Sensor(window)
        self.bytes_in = Sensor(window)
        self.requests = Sensor(window)
        self.responses = Sensor(window)
        self.request_latency = Sensor(window)


class _Topic:
    """Sensors of one topic; the attributes are those of the table."""

    __slots__ = ("topic_bytes", "topic_compression", "topic_error", "topic_records", "topic_retry")

    def __init__(self, window: Window) -> None:
        self.topic_records = Sensor(window)
        self.topic_bytes = Sensor(window)
        self.topic_compression = Sensor(window)
        self.topic_retry = Sensor(window)
        self.topic_error = Sensor(window)


class ProducerMetrics:
    """All sensors of one producer.

    `now` is monotonic; `unix_now` is the same moment in Unix seconds, so that snapshots of several machines can be laid
    side by side. `lock` is a plain mutex, used for nothing else.
    """

    def __init__(
        self,
        client_id: str,
        lock: AbstractContextManager[object],
        now: float,
        unix_now: float,
        window: Window = Window(),  # noqa: B008 - a value
    ) -> None:
        self._client_id = client_id
        self._lock = lock
        self._unix = unix_now - now
        self._window = window
        self._lap_began = now
        self._sensors = {name: Sensor(window) for name in sensors_of(CLIENT, OWN)}
        self._histograms = {name: Histogram() for name in histograms()}
        self._nodes: dict[int, _Node] = {}
        self._other_nodes = _Node(window)
        self._topics: dict[str, _Topic] = {}
        self._other_topics = _Topic(window)
        self._bind()

    def _bind(self) -> None:
        """Attributes for what is recorded often: a look-up by name less for each."""
        sensors = self._sensors
        self._bytes_out, self._bytes_in, self._io = sensors["bytes-out"], sensors["bytes-in"], sensors["network-io"]
        self._requests, self._responses = sensors["requests"], sensors["responses"]
        self._select, self._io_time = sensors["select"], sensors["io-time"]
        self._batch_size, self._queue_time = sensors["batch-size"], sensors["queue-time"]
        self._compression, self._record_size = sensors["compression"], sensors["record-size"]
        self._record_bytes, self._compressed = sensors["record-bytes"], sensors["compressed-bytes"]
        self._delivered, self._delivered_bytes = sensors["delivered"], sensors["delivered-bytes"]
        self._record_latency = sensors["record-latency"]
        self._queue_times, self._latencies = self._histograms["queue-time"], self._histograms["record-latency"]

    # --- task threads -----------------------------------------------------------------------------------------------

    def rows_accepted(self, largest: int, now: float) -> None:
        """An Arrow batch was taken in; its largest record has `largest` encoded bytes."""
        with self._lock:
            self._sensors["record-largest"].record(largest, now)

    def call_refused(self, now: float) -> None:
        """A call raised what is wrong with its rows, their topic, or the wait for memory; nothing of it is queued."""
        with self._lock:
            self._sensors["record-error"].record(1, now)

    def metadata_waited(self, seconds: float, now: float) -> None:
        """A call waited to learn of a topic, in vain or not."""
        with self._lock:
            self._sensors["metadata-wait"].record(round(seconds * _NS), now)

    def buffer_waited(self, seconds: float, now: float) -> None:
        """A call waited for buffer memory, in vain or not; not for allocations that were served at once."""
        with self._lock:
            self._sensors["buffer-wait"].record(round(seconds * _NS), now)
            self._histograms["buffer-wait"].record(seconds * _MS)

    def buffer_exhausted(self, now: float) -> None:
        """Such a wait ran into `max.block.ms`."""
        with self._lock:
            self._sensors["buffer-exhausted"].record(1, now)

    def flushed(self, seconds: float, now: float) -> None:
        """A flush has ended, well or not."""
        with self._lock:
            self._sensors["flush-time"].record(round(seconds * _NS), now)

    # --- batches ----------------------------------------------------------------------------------------------------

    def batch_drained(
        self,
        topic: str,
        records: int,
        size: int,
        uncompressed: int,
        compressed: int,
        largest: int,
        queued: float,
        now: float,
    ) -> None:
        """A batch was taken for a request, the first time or again.

        `size` is that of the batch as sent; `uncompressed` and `compressed` are those of its records, without the batch's
        header; `largest` the upper bound of its largest record with all overhead; `queued` the age of the batch.
        """
        ratio = compressed / uncompressed
        milliseconds = queued * _MS
        with self._lock:
            self._batch_size.record(size, now)
            self._queue_time.record(milliseconds, now)
            self._queue_times.record(milliseconds, records)
            self._compression.record(ratio, now)
            self._compressed.add(compressed, uncompressed, ratio, now)
            self._record_size.record(largest, now)
            self._record_bytes.add(uncompressed, records, largest, now)
            sensors = self._topics.get(topic) or self._new_topic(topic)
            sensors.topic_records.record(records, now)
            sensors.topic_bytes.record(size, now)
            sensors.topic_compression.record(ratio, now)

    def node_drained(self, records: int, now: float) -> None:
        """A ready node was asked for, and its batches hold `records` records: 0 if there was nothing to send to it."""
        with self._lock:
            self._sensors["records-per-request"].record(records, now)
            if records:
                self._sensors["records-per-produce"].record(records, now)

    def batch_delivered(self, records: int, size: int, age: float, now: float) -> None:
        """A batch was acknowledged, `age` after it was created."""
        milliseconds = age * _MS
        with self._lock:
            self._delivered.record(records, now)
            self._delivered_bytes.record(size, now)
            self._record_latency.add(milliseconds * records, records, milliseconds, now)
            self._latencies.record(milliseconds, records)

    def batch_retried(self, topic: str, records: int, now: float) -> None:
        """A batch was queued again after an error."""
        with self._lock:
            self._sensors["record-retry"].record(records, now)
            (self._topics.get(topic) or self._new_topic(topic)).topic_retry.record(records, now)

    def batch_failed(self, topic: str, records: int, now: float, *, again: bool = False) -> None:
        """A batch failed. `again`: it had failed before, and only Java's metrics count it twice."""
        with self._lock:
            self._sensors["record-error"].record(records, now)
            (self._topics.get(topic) or self._new_topic(topic)).topic_error.record(records, now)
            if not again:
                self._sensors["failed"].record(records, now)

    def batch_split(self, now: float) -> None:
        """A batch was found too large and was split."""
        with self._lock:
            self._sensors["batch-split"].record(1, now)

    # --- requests and connections -----------------------------------------------------------------------------------

    def request_sent(self, node: int, size: int, now: float) -> None:
        """The last byte of a request of `size` bytes went out."""
        with self._lock:
            self._requests.record(size, now)
            (self._nodes.get(node) or self._new_node(node)).requests.record(size, now)

    def response_received(self, node: int, now: float) -> None:
        """A response is complete."""
        with self._lock:
            self._responses.record(1, now)
            (self._nodes.get(node) or self._new_node(node)).responses.record(1, now)

    def produce_answered(self, node: int, latency: float, now: float) -> None:
        """A Produce request got its response; not if it was given up or its connection lost."""
        milliseconds = latency * _MS
        with self._lock:
            self._sensors["request-latency"].record(milliseconds, now)
            self._histograms["request-latency"].record(milliseconds)
            (self._nodes.get(node) or self._new_node(node)).request_latency.record(milliseconds, now)

    def throttle_reported(self, milliseconds: int, now: float) -> None:
        """A response, of whatever kind, has a field `throttle_time_ms`; 0 counts too."""
        with self._lock:
            self._sensors["throttle"].record(milliseconds, now)
            if milliseconds:
                self._sensors["throttled"].record(milliseconds, now)

    def bytes_sent(self, node: int, size: int, now: float) -> None:
        """One write to a socket took `size` bytes."""
        with self._lock:
            self._io.record(1, now)
            self._bytes_out.record(size, now)
            (self._nodes.get(node) or self._new_node(node)).bytes_out.record(size, now)

    def bytes_received(self, node: int, size: int, now: float) -> None:
        """One read from a socket gave `size` bytes."""
        with self._lock:
            self._io.record(1, now)
            self._bytes_in.record(size, now)
            (self._nodes.get(node) or self._new_node(node)).bytes_in.record(size, now)

    def polled(self, waited: float, worked: float, now: float) -> None:
        """One turn of the I/O loop: seconds in the wait for ready sockets, and in reading and writing after it."""
        with self._lock:
            self._select.record(round(waited * _NS), now)
            self._io_time.record(round(worked * _NS), now)

    def connection_created(self, now: float) -> None:
        """A connection is open."""
        with self._lock:
            self._sensors["connection-creation"].record(1, now)

    def connection_closed(self, now: float) -> None:
        """An open connection was closed, by either side."""
        with self._lock:
            self._sensors["connection-close"].record(1, now)

    def authenticated(self, now: float, *, once: bool = True) -> None:
        """A login (TLS, SASL) succeeded. `once`: the broker does not let it be repeated (KIP-368)."""
        with self._lock:
            self._sensors["authentication"].record(1, now)
            if once:
                self._sensors["authentication-once"].record(1, now)

    def authentication_failed(self, now: float) -> None:
        """A login failed."""
        with self._lock:
            self._sensors["authentication-failure"].record(1, now)

    def reauthenticated(self, seconds: float, now: float) -> None:
        """A login on an open connection was repeated, which took `seconds`."""
        with self._lock:
            self._sensors["reauthentication"].record(seconds * _MS, now)

    def reauthentication_failed(self, now: float) -> None:
        """A login on an open connection could not be repeated."""
        with self._lock:
            self._sensors["reauthentication-failure"].record(1, now)

    # --- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self, levels: Levels, now: float) -> Snapshot:
        """Windows and totals as Java shows them. Percentiles are of everything since the producer began."""
        with self._lock:
            tallies = {place: sensor.tally(now) for place, sensor in self._all_sensors().items()}
            counts = {name: histogram.counts() for name, histogram in self._histograms.items()}
        since = now - self._window.seconds * self._window.samples
        return Snapshot(self._client_id, since + self._unix, now + self._unix, levels, tallies, counts)

    def start_lap(self, now: float) -> None:
        """Begin the time that the next `lap` is about: a task."""
        with self._lock:
            self._lap_began = now
            for sensor in self._all_sensors().values():
                sensor.mark()
            for histogram in self._histograms.values():
                histogram.mark()

    def lap(self, levels: Levels, now: float) -> Snapshot:
        """What came since `start_lap`, whatever the windows hold; only sensors that saw an event. It begins no new lap."""
        with self._lock:
            seconds = now - self._lap_began
            all_tallies = {place: sensor.lap(seconds) for place, sensor in self._all_sensors().items()}
            counts = {name: histogram.lap() for name, histogram in self._histograms.items()}
        tallies: dict[Place, Tally] = {place: tally for place, tally in all_tallies.items() if tally.weight}
        counts = {name: buckets for name, buckets in counts.items() if buckets}
        return Snapshot(self._client_id, self._lap_began + self._unix, now + self._unix, levels, tallies, counts)

    def _all_sensors(self) -> dict[Place, Sensor]:
        found: dict[Place, Sensor] = {(name, ""): sensor for name, sensor in self._sensors.items()}
        nodes = {f"node-{node}": sensors for node, sensors in self._nodes.items()}
        if len(self._nodes) >= MAX_NODES:
            nodes[OTHER_NODES] = self._other_nodes
        topics = dict(self._topics)
        if len(topics) >= MAX_TOPICS:
            topics[OTHER_TOPICS] = self._other_topics
        for names, owners in ((_NODE_SENSORS, nodes), (_TOPIC_SENSORS, topics)):
            for owner, sensors in owners.items():
                for name, attribute in names:
                    found[name, owner] = getattr(sensors, attribute)
        return found

    def _new_node(self, node: int) -> _Node:
        if len(self._nodes) >= MAX_NODES:
            return self._other_nodes
        sensors = self._nodes[node] = _Node(self._window)
        return sensors

    def _new_topic(self, topic: str) -> _Topic:
        if len(self._topics) >= MAX_TOPICS:
            return self._other_topics
        sensors = self._topics[topic] = _Topic(self._window)
        return sensors


def unread_metrics() -> ProducerMetrics:
    """Of a room that is used by itself, where nobody asks for them."""
    return ProducerMetrics("", nullcontext(), 0.0, 0.0)


_NODE_SENSORS = [(name, name.replace("-", "_")) for name in sensors_of(NODE)]
_TOPIC_SENSORS = [(name, name.replace("-", "_")) for name in sensors_of(TOPIC)]
"""(name in the table, attribute)."""
