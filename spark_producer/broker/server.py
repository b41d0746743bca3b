"""The event loop: accepts connections, takes requests off them, sends the answers, lets Fetches wait.

Owns: the listening socket, all connections, and which of them waits for what.
Must not know: what requests mean (`handlers`) or how batches are stored.

A client that sends garbage, breaks off or stops reading costs one log line and its own connection.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar

from spark_producer.broker import admin, reading
from spark_producer.broker.connection import Connection
from spark_producer.broker.context import Context
from spark_producer.broker.delayed import Delayed
from spark_producer.broker.handlers import handle
from spark_producer.broker.retention import RetentionTimer
from spark_producer.errors import ConnectionFailed, ProtocolError, UnsupportedVersion
from spark_producer.protocol import API_VERSIONS, RequestFrame, decode_request, encode_response, messages

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

ACCEPT_PAUSE: Final = 0.1
"""Seconds without accepting after it failed: when file descriptors run out, the listener stays readable forever."""


class Server:
    """Serves `context` on `listener` in the thread that calls `run`. Only `call` and `stop` may be used from others."""

    def __init__(
        self, context: Context, listener: socket.socket, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._listener = listener
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        self._delayed: Delayed[Connection] = Delayed()
        self._due: deque[Connection] = deque()
        self._accept_again: float | None = None
        self._retention = RetentionTimer(
            context.topics.delete_old_segments, context.settings.retention_check_s, self._clock()
        )
        self._calls: deque[Callable[[], None]] = deque()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._stopping = False

    def run(self) -> None:
        """Serve until `stop`; then close every connection and the listener."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, self._woken)
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._close()

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Have the server's thread call `function` between two requests. From any thread.

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
        self._wake()
        return future

    def stop(self) -> None:
        """Make `run` return soon. From any thread, also from a signal handler."""
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        # Full: it is awake anyway. Closed: it is gone.
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    def _turn(self) -> None:
        """One round: what sockets, other threads and the clock bring."""
        for key, events in self._selector.select(self._timeout()):
            if isinstance(key.data, Connection):
                self._guarded(key.data, partial(self._serve, key.data, events))
            else:
                key.data()
        while self._calls:
            self._calls.popleft()()
        now = self._clock()
        if self._accept_again is not None and self._accept_again <= now:
            self._accept_again = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._retention.run_if_due(now)
        self._due.extend(self._delayed.take_expired(now))
        while self._due:
            connection = self._due.popleft()
            self._guarded(connection, partial(self._finish_waiting, connection))

    def _timeout(self) -> float:
        asked = (self._delayed.next_deadline(), self._accept_again, self._retention.due)
        return max(min(moment for moment in asked if moment is not None) - self._clock(), 0.0)

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_receiver.recv(4096):
                pass

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            logger.warning("cannot accept connections for a moment: %s", error)
            self._selector.unregister(self._listener)
            self._accept_again = self._clock() + ACCEPT_PAUSE
            return
        connection = Connection(sock, f"{address[0]}:{address[1]}", self._context.settings.max_request_bytes)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _guarded(self, connection: Connection, step: Callable[[], None]) -> None:
        """Do `step`; whatever goes wrong is the end of this one connection and of nothing else."""
        if connection not in self._connections:
            return
        try:
            step()
        except ProtocolError as error:
            logger.warning("dropped %s: %s", connection.peer, error)
            self._drop(connection)
        except OSError as error:
            logger.info("connection of %s broke: %s", connection.peer, error)
            self._drop(connection)
        except Exception:
            logger.exception("dropped %s: its request met a defect of the broker", connection.peer)
            self._drop(connection)

    def _serve(self, connection: Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            connection.send_more()
        if events & selectors.EVENT_READ and not connection.receive():
            self._drop(connection)
            return
        self._answer_all(connection)

    def _answer_all(self, connection: Connection) -> None:
        """Answer requests as long as some are there and their answers leave, then listen for what comes next."""
        while (frame := connection.next_frame()) is not None:
            self._answer_one(connection, frame)
        self._listen(connection)

    def _listen(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        events = selectors.EVENT_READ if connection.wants_to_receive else 0
        events |= selectors.EVENT_WRITE if connection.wants_to_send else 0
        registered = connection.socket in self._selector.get_map()
        if not events:
            if registered:
                self._selector.unregister(connection.socket)
        elif not registered:
            self._selector.register(connection.socket, events, connection)
        elif self._selector.get_key(connection.socket).events != events:
            self._selector.modify(connection.socket, events, connection)

    def _answer_one(self, connection: Connection, frame: memoryview) -> None:
        try:
            request = decode_request(frame)
        except UnsupportedVersion as error:
            details = vars(error)
            if details["api_key"] != API_VERSIONS.key:
                raise
            body = admin.unsupported_api_versions()
            connection.send(encode_response(API_VERSIONS, 0, details["correlation_id"], body))
            return
        if not self._let_wait(connection, request):
            self._answer(connection, request)

    def _let_wait(self, connection: Connection, request: RequestFrame) -> bool:
        """Put a Fetch that finds too little aside until there is more or its time is up."""
        fetch = request.body
        if not isinstance(fetch, messages.FetchRequest) or fetch.max_wait_ms <= 0:
            return False
        if not reading.must_wait(self._context, fetch):
            return False
        connection.waiting = request
        self._delayed.add(connection, reading.waits_for(fetch), self._clock() + fetch.max_wait_ms / 1000)
        return True

    def _answer(self, connection: Connection, request: RequestFrame) -> None:
        answer = handle(self._context, request)
        if answer.body is not None:
            connection.send(encode_response(request.api, request.version, request.correlation_id, answer.body))
        if answer.changed:
            self._look_at_waiting(answer.changed)
        if answer.close:
            raise ProtocolError(f"a {request.api.name} that wants no response failed")

    def _look_at_waiting(self, changed: tuple[Hashable, ...]) -> None:
        for connection in self._delayed.waiting_for(changed):
            fetch = connection.waiting.body if connection.waiting else None
            if not isinstance(fetch, messages.FetchRequest) or not reading.must_wait(self._context, fetch):
                self._delayed.remove(connection)
                self._due.append(connection)

    def _finish_waiting(self, connection: Connection) -> None:
        request, connection.waiting = connection.waiting, None
        if request is not None:
            self._answer(connection, request)
        self._answer_all(connection)

    def _drop(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._delayed.remove(connection)
        if connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        connection.close()

    def _close(self) -> None:
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.close()
        self._listener.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        while self._calls:
            self._calls.popleft()()
