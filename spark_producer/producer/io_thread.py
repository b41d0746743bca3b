"""The I/O thread of a producer: its loop, its start and end, and its failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

from spark_producer.accumulator import RecordAccumulator
from spark_producer.errors import ProducerClosed, PyProducerError
from spark_producer.producer.metadata_wait import MetadataWaiter
from spark_producer.producer.metrics_access import Meter
from spark_producer.producer.network_client import Network
from spark_producer.producer.outages import Outages
from spark_producer.protocol import PRODUCE, is_misrouted
from spark_producer.sender import RequestBatches, Sender
from spark_producer.telemetry.pusher import TelemetryPusher

LAST_PUSH_S = 1.0
"""Maximum seconds that `close` waits for the response to the terminating push of metrics, within its own timeout."""


class IoThread:
    """Runs the sender and polls the network until the producer is closed, or an error ends the thread.

    Other threads call the public methods; private methods run on the thread itself. When the thread ends, all waits end with its
    error.
    """

    def __init__(
        self,
        client: Network,
        sender: Sender,
        accumulator: RecordAccumulator,
        topics: MetadataWaiter,
        meter: Meter,
        max_in_flight: int,
        max_sleep: float,
        wake_all: Callable[[], None],
        telemetry: TelemetryPusher | None = None,
    ) -> None:
        """`max_in_flight` is the maximum number of in-flight requests per connection.

        An idle thread sleeps `max_sleep` seconds at most. `wake_all` wakes the threads that wait for responses.
        """
        self._client = client
        self._sender = sender
        self._metadata = sender.metadata
        self._accumulator = accumulator
        self._incomplete = accumulator.incomplete
        self._topics = topics
        self._meter = meter
        self._clock = meter.clock
        self._outages = Outages(accumulator, sender.metadata)
        self._max_in_flight = max_in_flight
        self._max_sleep = max_sleep
        self._wake_all = wake_all
        self._telemetry = telemetry
        self._close_by = float("-inf")
        """The time until which `close` waits."""
        self._thread = threading.Thread(target=self._run, name="pyproducer-io", daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: the process cannot start another thread; then the network is closed.
        """
        try:
            self._thread.start()
        except BaseException:
            self._client.close()
            raise

    @property
    def ident(self) -> int | None:
        """The identifier of the thread; None before its start."""
        return self._thread.ident

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this thread, as callbacks are."""
        return threading.current_thread() is self._thread

    def join(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the end of the thread; return at once on the thread itself."""
        if not self.is_current:
            self._thread.join(min(timeout, threading.TIMEOUT_MAX))

    def close(self, timeout: float) -> None:
        """Send all batches for up to `timeout` seconds, then end the thread; batches that are not acknowledged by then fail."""
        self._close_by = self._clock() + timeout
        self._incomplete.begin_close()
        if timeout > 0:  # else the thread must not wake before the error is set: it would abort a transaction
            self._client.wakeup()
            self.join(timeout)
        detail = "" if self._incomplete.idle else " before everything was acknowledged"
        self._accumulator.close(ProducerClosed(f"the producer was closed{detail}"))
        self._client.wakeup()
        self.join(self._max_sleep)

    # --- on the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failure: Exception = ProducerClosed("the producer was closed")
        self._topics.io_thread = threading.get_ident()
        self._accumulator.adopt_io_thread()
        try:
            while not self._finished():
                self._iterate()
            self._push_last()
        except PyProducerError as error:
            failure = error
        except BaseException as error:  # an error of another package may not be picklable
            failure = PyProducerError(f"the I/O thread of the producer ended: {error!r}; this is a bug of pyproducer")
            failure.__cause__ = error
        finally:
            self._client.close()
            self._accumulator.completion.abort(failure)
            self._accumulator.completion.network_closed()
            self._wake_all()

    def _finished(self) -> bool:
        if self._incomplete.error is not None or not self._incomplete.closing:
            return self._incomplete.error is not None
        transactions = self._sender.transactions
        return self._incomplete.idle and (transactions is None or transactions.settled)

    def _iterate(self) -> None:
        """Do one iteration: send requests, wait for the network, and handle the completions."""
        now = self._clock()
        cluster, responses = self._metadata.cluster, self._metadata.response_count
        client, sender, incomplete = self._client, self._sender, self._incomplete
        wake_at = self._send_ready(now)
        if self._telemetry is not None and now >= self._telemetry.due_at:
            self._telemetry.step(now)
        wait = 0.0
        if incomplete.sleeps(wake_at):
            wait = self._max_sleep if wake_at is None else min(max(wake_at - now, 0.0), self._max_sleep)
        completions = client.poll(wait)
        incomplete.wakes()
        if completions:
            now = self._clock()
            for done in completions:
                if isinstance(done.tag, TelemetryPusher):
                    done.tag.on_completion(done.api, done.body, done.error, now)
                    continue
                if done.api.key == PRODUCE.key and done.body is not None:
                    self._meter.events.produce_completed(done.node, done.latency, now)
                if done.body is not None:
                    self._outages.on_response(done.node)
                sender.on_completion(done.api, cast(RequestBatches, done.tag), done.body, done.error, now)
                self._topics.last_error = done.error
        for node in client.take_disconnected():
            error = client.last_error(node)
            self._topics.last_error = error or self._topics.last_error
            self._outages.on_disconnect(node, error, self._clock())
            sender.on_disconnect(node)
            if is_misrouted(error):
                self._metadata.reject_nodes(self._clock())
            if (fatal_error := client.fatal_error()) is not None:
                raise fatal_error
        self._outages.check(self._clock())
        if self._metadata.cluster is not cluster:
            client.set_nodes(self._metadata.cluster.addresses, self._metadata.cluster_id)
        if self._metadata.response_count != responses:
            self._topics.wake_waiters()

    def _send_ready(self, now: float) -> float | None:
        """Send all requests that can be sent, several to each connection, and return the time of the next step."""
        client = self._client
        for _ in range(self._max_in_flight):
            step = self._sender.step(now, client)
            if not step.requests:
                return step.wake_at
            for node, api, body, batches, expect_response in step.requests:
                client.send(node, api, body, tag=batches, expect_response=expect_response)
        return now

    def _push_last(self) -> None:
        """Send the terminating push of metrics, if the brokers want any, and wait for its response as long as `close` does."""
        if self._telemetry is None:
            return
        self._telemetry.close()
        deadline = min(self._close_by, self._clock() + LAST_PUSH_S)
        while self._telemetry.in_flight and (left := deadline - self._clock()) > 0:
            for done in self._client.poll(left):
                if isinstance(done.tag, TelemetryPusher):
                    done.tag.on_completion(done.api, done.body, done.error, self._clock())
