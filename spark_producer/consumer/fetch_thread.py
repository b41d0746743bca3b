"""Fetching for a task: its first responses at once, and the rest on a thread while the task decodes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue

from spark_producer.consumer.connections import Connections
from spark_producer.consumer.decoding import FetchedBatches
from spark_producer.consumer.fetcher import NO_TOPIC_IDS, Fetcher
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.requests import Request
from spark_producer.consumer.settings import FetchSettings
from spark_producer.errors import IllegalState, PyProducerError
from spark_producer.network.client import Completion
from spark_producer.protocol import FETCH, is_misrouted
from spark_producer.telemetry.pusher import TelemetryPusher

MAX_POLL_S = 1.0
"""Maximum seconds of a wait for the network, after which deadlines are compared with the clock."""

JOIN_S = 5.0
"""Maximum seconds to wait for the end of the thread. A name look-up can hold it longer; then it closes the connections itself."""


class FetchThread:
    """Fetches ranges into a queue. One other thread, the task's, takes from it, releases what it has decoded, and closes.

    `start` fetches the first responses on the task's thread. Ranges that end in them, as those of a small micro-batch, need no
    other thread, whose start can take as long as the request.

    Responses that are in flight or not released have `max_bytes` together, or one batch if that is larger: fetching stops until
    memory is released. A child process that was forked meanwhile has no such thread: `take` raises there.
    """

    def __init__(
        self,
        settings: FetchSettings,
        ranges: Sequence[OffsetRange],
        connections: Connections,
        topic_ids: Mapping[str, bytes] = NO_TOPIC_IDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections = connections
        self._client = connections.client
        self._metrics = connections.metrics
        self._telemetry = connections.begin(settings, clock)
        connections.cluster.use({each.topic_partition.topic for each in ranges}, clock())
        self._fetcher = Fetcher(settings, ranges, connections.cluster, topic_ids)
        self._clock = clock
        self._brokers = connections.cluster.brokers
        self._process = os.getpid()
        self._queue: SimpleQueue[FetchedBatches | PyProducerError | None] = SimpleQueue()
        self._fetched = self._reserved = 0
        """The bytes that were put into the queue, and those of requests in flight: the thread's own."""
        self._released = 0
        """The bytes of the queue that were released: the taking thread's own."""
        self._starved = False
        """Whether the thread waits for the release of memory."""
        self._stopped = False
        self._abandoned = False
        """Whether the thread must close the connections when it ends, since no thread waits for that."""
        self._failed = False
        """Whether fetching has ended with an error, perhaps between two steps of it."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Fetch until a response can be decoded while further requests are in flight, and start the thread for those.

        Raises:
            RuntimeError: the process cannot start another thread; then the connections are closed.
        """
        try:
            done = self._client.poll(0)  # a connection that was closed meanwhile must not cost a request
            self._handle_telemetry(done)
            self._client.take_disconnected()
            if not self._fetch(lambda: self._fetched > 0 and self._fetcher.must_request):
                self._thread = threading.Thread(target=self._run, name="pyproducer-fetch", daemon=True)
                self._thread.start()
        except BaseException:
            self._connections.close()
            raise

    def take(self) -> FetchedBatches | None:
        """Return the next batches; None after the last ones. It waits for them.

        Raises:
            IllegalState: this process is a forked child.
            PyProducerError: fetching has failed; what was fetched before was returned first.
        """
        while True:
            if os.getpid() != self._process:
                raise IllegalState("this read was begun in another process. Begin it again in the forked one")
            try:
                found = self._queue.get(timeout=MAX_POLL_S)
            except Empty:
                continue
            if isinstance(found, PyProducerError):
                raise found
            return found

    def release(self, fetched: FetchedBatches) -> None:
        """Free the memory of batches that are decoded, so that others can be fetched."""
        self._released += len(fetched.data)
        if self._starved:
            self._client.wakeup()

    def close(self) -> bool:
        """End the thread, and return whether the connections can be used again; after an error they are closed."""
        if os.getpid() != self._process:
            return False
        self._stopped = True
        if threading.current_thread() is self._thread:  # a garbage collection may run on any thread
            self._abandoned = True
            return False
        if self._thread is not None:
            self._client.wakeup()
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                self._abandoned = True
                return False
        if self._failed:
            self._connections.close()
        return not self._failed

    # --- on the thread that fetches: that of the task within `start`, then the other one --------------------------------

    def _run(self) -> None:
        try:
            self._fetch(lambda: self._stopped)
        finally:
            if self._abandoned:
                self._connections.close()

    def _fetch(self, is_enough: Callable[[], bool]) -> bool:
        """Fetch until `is_enough()`, and return False; or until all is fetched, or an error: then end the queue, and return
        True."""
        outcome: PyProducerError | None = None
        try:
            while not self._fetcher.done:
                if is_enough():
                    return False
                self._iterate()
        except PyProducerError as error:
            outcome = error
        except Exception as error:  # an error of another package may not be picklable
            outcome = PyProducerError(f"fetching ended: {error!r}; this is a bug of pyproducer")
            outcome.__cause__ = error
        self._failed = outcome is not None
        self._queue.put(outcome)
        return True

    def _iterate(self) -> None:
        """Send the requests that can be sent, wait for the network, and handle what arrives."""
        now, client, fetcher = self._clock(), self._client, self._fetcher
        free = self._free()
        for request in fetcher.step(now, client, free):
            self._reserved += request.max_bytes
            client.send(request.node, request.api, request.body, tag=request)
            free -= request.max_bytes
        self._starved = fetcher.starved
        if self._telemetry is not None and now >= self._telemetry.due_at:
            self._telemetry.step(now)
        wait = fetcher.wake_at - now
        if self._starved and self._free() > free:  # released before `release` could see that it is needed
            wait = 0.0
        completions = client.poll(max(0.0, min(wait, MAX_POLL_S)))
        now = self._clock()
        self._handle_telemetry(completions)
        for done in completions:
            if isinstance(done.tag, Request):
                self._handle(done.tag, done, now)
        cluster, elsewhere = self._connections.cluster, False
        for node in client.take_disconnected():
            error = client.last_error(node)
            elsewhere |= is_misrouted(error)
            fetcher.on_disconnect(node, error, now)
            if (fatal := client.fatal_error()) is not None:
                raise fatal
        if elsewhere or client.all_nodes_unavailable():  # only the bootstrap servers can find the cluster (KIP-899)
            cluster.clear()
        if cluster.brokers is not self._brokers:
            self._brokers = cluster.brokers
            client.set_nodes(self._brokers, cluster.identity.cluster_id)

    def _handle(self, request: Request, done: Completion, now: float) -> None:
        """Put the batches of a response into the queue."""
        self._reserved -= request.max_bytes
        before = self._fetched
        for fetched in self._fetcher.on_response(request, done.body, done.error, now):
            self._fetched += len(fetched.data)
            self._metrics.batches_fetched(fetched.topic_partition.topic, len(fetched.data), fetched.lag, now)
            self._queue.put(fetched)
        if request.api.key == FETCH.key and done.body is not None:
            self._metrics.fetched(done.node, self._fetched - before, done.latency, now)

    def _handle_telemetry(self, completions: Sequence[Completion]) -> None:
        for done in completions:
            if isinstance(done.tag, TelemetryPusher):
                done.tag.on_completion(done.api, done.body, done.error, self._clock())

    def _free(self) -> int:
        return self._fetcher.max_bytes - self._reserved - (self._fetched - self._released)
