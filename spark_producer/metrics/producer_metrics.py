"""What a producer does, event by event, added to its counters.

Owns: which event changes which numbers. Must not know: who calls, threads, any clock; names of metrics.

The methods are named for events and take plain numbers: durations and `now` in seconds, sizes in bytes. They are called per
batch, per request, per wait, per turn of the I/O loop: never per record.
"""

from __future__ import annotations

from contextlib import nullcontext

from spark_producer.metrics.ledger import Ledger

_MS = 1e3
_NS = 1e9


class ProducerMetrics(Ledger):
    """The events of one producer, and what came of them.

    What is rare is reported by any thread, under the lock. What comes with every batch, request and turn of the I/O loop is
    reported by one thread, the I/O thread, and takes no lock, which would cost as much as the rest (docs/metrics.md). A
    reader may then see one such event by half.
    """

    def _record(self, name: str, value: float, now: float) -> None:
        """A rare event, of any thread."""
        with self._lock:
            self._rare[name].record(value, now)

    # --- any thread -------------------------------------------------------------------------------------------------

    def rows_accepted(self, largest: int, now: float) -> None:
        """An Arrow batch was taken in; its largest record has `largest` encoded bytes."""
        self._record("record-largest", largest, now)

    def record_accepted(self, size: int, now: float) -> None:
        """A single record of `size` encoded bytes was taken in. Only what changes the largest one takes the lock."""
        found = self._accepted
        if size > found.largest or now >= found.ends:
            with self._lock:
                found.record(size, now)
        else:
            found.last = now

    def call_refused(self, now: float) -> None:
        """A call raised what is wrong with its rows, their topic, or the wait for memory; nothing of it is queued."""
        self._record("refused", 1, now)

    def metadata_waited(self, seconds: float, now: float) -> None:
        """A call waited to learn of a topic, in vain or not."""
        self._record("metadata-wait", round(seconds * _NS), now)

    def buffer_waited(self, seconds: float, now: float) -> None:
        """A call waited for buffer memory, in vain or not; not for allocations that were served at once."""
        with self._lock:
            self._rare["buffer-wait"].record(round(seconds * _NS), now)
            self._histograms["buffer-wait"].record(seconds * _MS)

    def buffer_exhausted(self, now: float) -> None:
        """Such a wait ran into `max.block.ms`."""
        self._record("buffer-exhausted", 1, now)

    def flushed(self, seconds: float, now: float) -> None:
        """A flush has ended, well or not."""
        self._record("flush-time", round(seconds * _NS), now)

    def batch_retried(self, topic: str, records: int, now: float) -> None:
        """A batch was queued again after an error."""
        found = self._topics.get(topic) or self._new_topic(topic)
        with self._lock:
            found.retried.record(records, now)

    def batch_failed(self, topic: str, records: int, now: float, *, again: bool = False) -> None:
        """A batch failed. `again`: it had failed before, and only Java's metrics count it twice."""
        found = self._topics.get(topic) or self._new_topic(topic)
        with self._lock:
            found.errors.record(records, now)
            if not again:
                self._rare["failed"].record(records, now)

    def batch_split(self, now: float) -> None:
        """A batch was found too large and was split."""
        self._record("batch-split", 1, now)

    def connection_created(self, now: float) -> None:
        """A connection is open."""
        self._record("connection-creation", 1, now)

    def connection_closed(self, now: float) -> None:
        """An open connection was closed, by either side."""
        self._record("connection-close", 1, now)

    # --- the I/O thread alone, without a lock: see `Counters` ---------------------------------------------------------

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
        found = (self._topics.get(topic) or self._new_topic(topic)).drained
        if now >= found.ends:
            self._turn(found, now)
        found.last = now
        found.batches += 1
        found.records += records
        found.bytes += size
        found.queued += queued
        found.ratios += compressed / uncompressed
        found.uncompressed += uncompressed
        found.compressed += compressed
        found.bounds += largest
        if size > found.largest_batch:
            found.largest_batch = size
        if queued > found.longest_queued:
            found.longest_queued = queued
        if largest > found.largest_bound:
            found.largest_bound = largest
        self._queue_times.record(queued * _MS, records)

    def node_drained(self, records: int, now: float) -> None:
        """A ready node was asked for, and its batches hold `records` records: 0 if there was nothing to send to it."""
        found = self._drains
        if now >= found.ends:
            self._turn(found, now)
        found.last = now
        found.drains += 1
        if records:
            found.requests += 1
            found.records += records
            if records > found.largest:
                found.largest = records

    def batch_delivered(self, records: int, size: int, age: float, now: float) -> None:
        """A batch was acknowledged, `age` after it was created."""
        found = self._delivered
        if now >= found.ends:
            self._turn(found, now)
        found.last = now
        found.batches += 1
        found.records += records
        found.bytes += size
        found.seconds += age * records
        if age > found.oldest:
            found.oldest = age
        self._latencies.record(age * _MS, records)

    def bytes_sent(self, node: int, size: int, request_size: int, now: float) -> None:
        """One write to a socket took `size` bytes; the last of a request of `request_size` bytes, or 0 if there is more of it."""
        found = (self._nodes.get(node) or self._new_node(node)).outgoing
        if now >= found.ends:
            self._turn(found, now)
        found.last = now
        found.operations += 1
        found.bytes_out += size
        if request_size:
            found.requests += 1
            found.request_bytes += request_size
            if request_size > found.largest:
                found.largest = request_size

    def bytes_received(self, node: int, size: int, now: float) -> None:
        """One read from a socket gave `size` bytes."""
        found = (self._nodes.get(node) or self._new_node(node)).incoming
        if now >= found.ends:
            self._turn(found, now)
        found.last = now
        found.operations += 1
        found.bytes_in += size

    def response_received(self, node: int, throttle_ms: int | None, now: float) -> None:
        """A response is complete. It asks to wait for `throttle_ms`, 0 included; None: its kind has no such field."""
        found = (self._nodes.get(node) or self._new_node(node)).answered
        if now >= found.ends:
            self._turn(found, now)
        found.last = now
        found.responses += 1
        if throttle_ms is None:
            return
        found.reports += 1
        if throttle_ms:
            found.throttles += 1
            found.throttle_ms += throttle_ms
            if throttle_ms > found.longest_throttle:
                found.longest_throttle = throttle_ms

    def produce_answered(self, node: int, latency: float, now: float) -> None:
        """A Produce request got its response; not if it was given up or its connection lost."""
        found = (self._nodes.get(node) or self._new_node(node)).answered
        if now >= found.ends:
            self._turn(found, now)
        found.last = now
        found.produced += 1
        found.latencies += latency
        if latency > found.longest_latency:
            found.longest_latency = latency
        self._request_latencies.record(latency * _MS)

    def polled(self, waited: float, worked: float, now: float) -> None:
        """One turn of the I/O loop: seconds in the wait for ready sockets, and in reading and writing after it."""
        found = self._polls
        if now >= found.ends:
            self._turn(found, now)
        found.last = now
        found.polls += 1
        found.waited += waited
        found.worked += worked


def unread_metrics() -> ProducerMetrics:
    """Of a room that is used by itself, where nobody asks for them."""
    return ProducerMetrics("", nullcontext(), 0.0, 0.0)
