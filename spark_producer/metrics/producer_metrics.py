"""The events of a producer, each with the counters that it changes.

The methods are named for events and take plain numbers: durations and `now` in seconds, sizes in bytes. They are called per
batch, request, wait, or turn of the I/O loop, and never per record.
"""

from __future__ import annotations

from contextlib import nullcontext

from spark_producer.metrics.registry import NO_TOPIC, MetricsRegistry

_MS = 1e3
_NS = 1e9


class ProducerMetrics(MetricsRegistry):
    """The counters of one producer, with a method for each event.

    Any thread reports rare events, under the lock. Only the I/O thread reports the events of every batch, request and turn of
    the I/O loop. It takes no lock, which would cost as much as the rest (docs/metrics.md), so a reader may see a part of one
    such event.
    """

    def _record(self, name: str, value: float, now: float) -> None:
        """Record a rare event, from any thread."""
        with self._lock:
            self._rare[name].record(value, now)

    # --- any thread -------------------------------------------------------------------------------------------------

    def rows_accepted(self, largest: int, now: float) -> None:
        """Record that an Arrow batch was taken in; its largest record has `largest` encoded bytes."""
        self._record("record-largest", largest, now)

    def record_accepted(self, size: int, now: float) -> None:
        """Record that a single record of `size` encoded bytes was taken in.

        The lock is taken only if the record is the largest one.
        """
        found = self._accepted
        if size > found.largest or now >= found.sample_end:
            with self._lock:
                found.record(size, now)
        else:
            found.last = now

    def call_refused(self, now: float) -> None:
        """Record that a call raised an error about its rows, their topic, or the wait for memory; none of its rows are queued."""
        self._record("refused", 1, now)

    def metadata_waited(self, seconds: float, now: float) -> None:
        """Record that a call waited for the metadata of a topic, with or without success."""
        self._record("metadata-wait", round(seconds * _NS), now)

    def buffer_waited(self, seconds: float, now: float) -> None:
        """Record that a call waited for buffer memory, with or without success.

        Allocations that are served at once do not count.
        """
        with self._lock:
            self._rare["buffer-wait"].record(round(seconds * _NS), now)
            self._histograms["buffer-wait"].record(seconds * _MS)

    def buffer_exhausted(self, now: float) -> None:
        """Record that a wait for buffer memory took all of `max.block.ms`."""
        self._record("buffer-exhausted", 1, now)

    def flushed(self, seconds: float, now: float) -> None:
        """Record that a flush has ended, with or without success."""
        self._record("flush-time", round(seconds * _NS), now)

    def transaction_call_completed(self, call: str, seconds: float, now: float) -> None:
        """Record that a call about transactions has ended, with or without success: init, begin, send-offsets, commit or
        abort."""
        self._record(f"txn-{call}-time", round(seconds * _NS), now)

    def batch_retried(self, topic: str, records: int, now: float) -> None:
        """Record that a batch was queued again after an error."""
        found = self._topics.get(topic) or self._new_topic(topic)
        with self._lock:
            found.retried.record(records, now)

    def batch_failed(self, topic: str, records: int, now: float, *, again: bool = False) -> None:
        """Record that a batch failed. With `again` it had failed before; only Java's metrics count it twice."""
        found = self._topics.get(topic) or self._new_topic(topic)
        with self._lock:
            found.errors.record(records, now)
            if not again:
                self._rare["failed"].record(records, now)

    def rows_rejected(self, topic: str, rows: int, now: float) -> None:
        """Rows for a topic go to the dead-letter topic instead; the topic is empty if they name none."""
        found = self._topics.get(topic) or self._new_topic(topic or NO_TOPIC)
        with self._lock:
            found.rejected.record(rows, now)

    def batch_split(self, now: float) -> None:
        """Record that a batch was found too large and was split."""
        self._record("batch-split", 1, now)

    def connection_created(self, now: float) -> None:
        """Record that a connection is open."""
        self._record("connection-creation", 1, now)

    def connection_closed(self, now: float) -> None:
        """Record that an open connection was closed, by either side."""
        self._record("connection-close", 1, now)

    def logged_in(self, now: float, *, repeatable: bool) -> None:
        """Record that a connection has logged in. `repeatable` says whether its broker supports re-authentication (KIP-368)."""
        self._record("authentication", 1, now)
        if not repeatable:
            self._record("authentication-once", 1, now)

    def reauthenticated(self, seconds: float, now: float) -> None:
        """Record that a re-authentication has succeeded, after `seconds`."""
        self._record("reauthentication", seconds * 1000, now)

    def login_failed(self, now: float, *, reauthentication: bool) -> None:
        """Record that a login or a re-authentication has failed: the broker refused it, or did not authenticate itself."""
        self._record("reauthentication-failure" if reauthentication else "authentication-failure", 1, now)

    # --- only the I/O thread, without a lock: see `WindowedCounters` ----------------------------------------------------

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
        """Record that a batch was drained for a request, the first time or again.

        `size` is that of the batch as sent; `uncompressed` and `compressed` are those of its records, without the batch's
        header. `largest` is the upper bound of its largest record with all overhead; `queued` is the age of the batch.
        """
        found = (self._topics.get(topic) or self._new_topic(topic)).drained
        if now >= found.sample_end:
            self._roll(found, now)
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
        """Record that the batches for a ready node were drained, with `records` records; 0 if no batch could be sent."""
        found = self._drains
        if now >= found.sample_end:
            self._roll(found, now)
        found.last = now
        found.drains += 1
        if records:
            found.requests += 1
            found.records += records
            if records > found.largest:
                found.largest = records

    def batch_delivered(self, records: int, size: int, age: float, now: float) -> None:
        """Record that a batch was acknowledged, `age` after it was created."""
        found = self._delivered
        if now >= found.sample_end:
            self._roll(found, now)
        found.last = now
        found.batches += 1
        found.records += records
        found.bytes += size
        found.seconds += age * records
        if age > found.oldest:
            found.oldest = age
        self._latencies.record(age * _MS, records)

    def bytes_sent(self, node: int, size: int, request_size: int, now: float) -> None:
        """Record that a write to a socket sent `size` bytes, and completed a request of `request_size` bytes; 0 if the request
        continues."""
        found = (self._nodes.get(node) or self._new_node(node)).outgoing
        if now >= found.sample_end:
            self._roll(found, now)
        found.last = now
        found.operations += 1
        found.bytes_out += size
        if request_size:
            found.requests += 1
            found.request_bytes += request_size
            if request_size > found.largest:
                found.largest = request_size

    def bytes_received(self, node: int, size: int, now: float) -> None:
        """Record that a read from a socket returned `size` bytes."""
        found = (self._nodes.get(node) or self._new_node(node)).incoming
        if now >= found.sample_end:
            self._roll(found, now)
        found.last = now
        found.operations += 1
        found.bytes_in += size

    def response_received(self, node: int, throttle_ms: int | None, now: float) -> None:
        """Record that a response is complete.

        Its throttle time is `throttle_ms`, which may be 0; None if its API has no such field.
        """
        found = (self._nodes.get(node) or self._new_node(node)).responses
        if now >= found.sample_end:
            self._roll(found, now)
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

    def produce_completed(self, node: int, latency: float, now: float) -> None:
        """Record that a Produce request got its response. Requests that timed out, or whose connection was lost, do not count."""
        found = (self._nodes.get(node) or self._new_node(node)).responses
        if now >= found.sample_end:
            self._roll(found, now)
        found.last = now
        found.produced += 1
        found.latencies += latency
        if latency > found.longest_latency:
            found.longest_latency = latency
        self._request_latencies.record(latency * _MS)

    def polled(self, waited: float, worked: float, now: float) -> None:
        """One turn of the I/O loop has ended: `waited` and `worked` are the seconds of the wait and of the work after it."""
        found = self._polls
        if now >= found.sample_end:
            self._roll(found, now)
        found.last = now
        found.polls += 1
        found.waited += waited
        found.worked += worked


def unread_metrics() -> ProducerMetrics:
    """Return metrics that are not read, for a package that is used without a producer."""
    return ProducerMetrics("", nullcontext(), 0.0, 0.0)
