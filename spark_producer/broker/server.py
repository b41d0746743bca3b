"""The event loop of the broker: one thread waits for sockets, for calls from other threads and for deadlines.

No input of a socket ends the thread. `connections.lifecycle` catches the errors of one connection's steps; all others are caught
here.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar

from spark_producer.broker.connections.acceptor import Acceptor
from spark_producer.broker.connections.connection import ClientConnection
from spark_producer.broker.connections.lifecycle import Clients
from spark_producer.broker.context import Context, partition_key
from spark_producer.broker.coordinator.timer import CoordinatorTimer
from spark_producer.broker.log.compaction import CompactionTimer
from spark_producer.broker.log.retention_timer import RetentionTimer
from spark_producer.broker.security.secure_listener import SecureListener
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConnectionFailed

logger = escaping_logger(__name__)

Result = TypeVar("Result")

BUG_PAUSE_S: Final = 0.1
"""Pause after a step that failed because of a bug in the broker, in seconds: it may fail again in the next turn."""


MAX_SLEEP_S: Final = 3600.0
"""Maximum wait for sockets, in seconds: a client may ask for more milliseconds than fit into the C int of epoll."""


class Server:
    """Serves `context` on `listener` in the thread that calls `run`. Other threads may only use `call` and `stop`.

    `secure_listener` adds TLS and logins; None for a plain listener.
    """

    def __init__(
        self,
        context: Context,
        listener: socket.socket,
        *,
        secure_listener: SecureListener | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._selector = selectors.DefaultSelector()
        self._acceptor = Acceptor(listener, context.settings.max_connections)
        self.clients = Clients(context, self._selector, clock, secure_listener)
        self._retention = RetentionTimer(context.topics.delete_old, context.settings.retention_check_s, self._clock())
        self._compaction = CompactionTimer(
            context.topics.partitions, context.settings.compaction_check_s, self._clock(), clock=self._clock
        )
        self._transactions = CoordinatorTimer(context.coordinator, context.settings.transaction_scan_s, self._clock())
        self._groups = context.coordinator.groups
        self._calls: deque[Callable[[], None]] = deque()
        self._confirmed_partitions: deque[Hashable] = deque()
        self._is_woken = False
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._stopping = False
        context.topics.watch(self._confirmed, self._space_freed)

    def run(self) -> None:
        """Serve until `stop` is called, then close every connection and the listener."""
        self._selector.register(self._acceptor.listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, self._woken)
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._close()

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Run `function` in the server's thread, between two requests. Any thread may call this.

        Raises:
            ConnectionFailed: the server is stopping or has stopped.
        """
        if self._stopping:
            raise ConnectionFailed("the broker is closed")
        future: Future[Result] = Future()

        def work() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self._calls.append(work)
        self._wake_once()
        return future

    def _confirmed(self, topic: str, partition: int) -> None:
        """Record that batches of a partition are confirmed. Any thread may call this."""
        self._confirmed_partitions.append(partition_key(topic, partition))
        self._wake_once()

    def _space_freed(self) -> None:
        """Record that the storage has space again. Any thread may call this."""
        self._calls.append(self.clients.space_freed)
        self._wake_once()

    def stop(self) -> None:
        """Make `run` return soon. Any thread may call this, and a signal handler too."""
        self._stopping = True
        self._wake()

    def _wake_once(self) -> None:
        """Wake the thread, unless it is already woken and has not run since: a storage that confirms batches of a thousand
        partitions together needs one system call."""
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def _wake(self) -> None:
        # With a full socket the thread is awake already; with a closed one it has ended.
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    def _turn(self) -> None:
        """Run one turn of the loop: sockets, calls from other threads, and timers that are due."""
        ready: list[tuple[selectors.SelectorKey, int]] = []
        self._guarded("waiting for sockets", lambda: ready.extend(self._selector.select(self._timeout())))
        for key, events in ready:
            if isinstance(key.data, ClientConnection):
                self._guarded("serving a client", partial(self.clients.serve, key.data, events))
            else:
                self._guarded("accepting a client", key.data)
        self._is_woken = False  # before the queues are read: later entries wake the thread again
        while self._calls:
            self._guarded("a call of another thread", self._calls.popleft())
        while self._confirmed_partitions:
            self.clients.changed(self._confirmed_partitions.popleft())
        self._guarded("accepting clients again", self._accept_again)
        self._guarded("ending transactions", self._end_transactions)
        self._guarded("advancing groups", self._advance_groups)
        self._guarded("serving requests", self.clients.work)
        self._guarded("deleting old records", lambda: self._retention.run_if_due(self._clock()))
        self._guarded("compacting", lambda: self._compaction.run_if_due(self._clock()))

    def _end_transactions(self) -> None:
        for partition in self._transactions.run_if_due(self._clock()):
            self.clients.changed(partition_key(*partition))

    def _advance_groups(self) -> None:
        for waiting in self._groups.run_if_due(self._clock()):
            self.clients.changed(waiting)

    def _guarded(self, what: str, step: Callable[[], None]) -> None:
        """Run `step`; log an error instead of raising it."""
        try:
            step()
        except Exception:
            logger.exception("%s failed, which is a bug in the broker; it goes on", what)
            self._sleep(BUG_PAUSE_S)

    def _timeout(self) -> float:
        deadlines = (
            self.clients.next_deadline(),
            self._acceptor.resume_at,
            self._retention.due,
            self._compaction.due,
            self._transactions.due,
            self._groups.due,
        )
        first = min(deadline for deadline in deadlines if deadline is not None)
        return min(max(first - self._clock(), 0.0), MAX_SLEEP_S)

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_receiver.recv(4096):
                pass

    def _accept(self) -> None:
        accepted = self._acceptor.accept(len(self.clients), self._clock())
        if accepted is not None:
            try:
                self.clients.add(*accepted)
            except BaseException:
                accepted[0].close()
                raise
        if self._acceptor.resume_at is not None:
            self._selector.unregister(self._acceptor.listener)

    def _accept_again(self) -> None:
        if self._acceptor.resume_at is not None and self._acceptor.resume_at <= self._clock():
            self._acceptor.resume_at = None
            self._selector.register(self._acceptor.listener, selectors.EVENT_READ, self._accept)

    def _close(self) -> None:
        self._compaction.close()
        self.clients.close()
        self._selector.close()
        self._acceptor.listener.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        while self._calls:
            self._calls.popleft()()
