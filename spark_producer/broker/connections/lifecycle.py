"""The lifecycle of client connections: the next step of each one, the event that it waits for, and when it is closed.

Every step is guarded: an error closes only its own connection, and writes one line to the log. `server` runs the thread and the
listening socket; `request_loop` handles the requests of one connection.
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from spark_producer.broker.connections.connection import ClientConnection
from spark_producer.broker.connections.connection_timeouts import ConnectionTimeouts
from spark_producer.broker.connections.publish_buffer import PublishBuffer
from spark_producer.broker.connections.purgatory import Purgatory
from spark_producer.broker.connections.request_loop import RequestLoop
from spark_producer.broker.context import Context
from spark_producer.broker.log_quoting import quoted
from spark_producer.broker.memory.budget import ConnectionMemory
from spark_producer.broker.security.secure_listener import ANONYMOUS, SecureListener
from spark_producer.broker.security.unauthenticated import LOGIN_TIMEOUT_S, UnauthenticatedConnections
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import LocalProtocolError, ProtocolError, SecurityError

logger = escaping_logger(__name__)

CONTENTION_CHECK_INTERVAL_S: Final = 1.0
"""Interval between two checks for slow clients while others wait for memory, in seconds."""


class Clients:
    """All connections, each registered with `selector` for the events that it waits for. Only the server's thread uses it.

    `secure_listener` is None where connections have neither TLS nor a login.
    """

    def __init__(
        self,
        context: Context,
        selector: selectors.BaseSelector,
        clock: Callable[[], float],
        secure_listener: SecureListener | None = None,
    ) -> None:
        self._secure_listener = secure_listener
        self._unauthenticated: UnauthenticatedConnections[ClientConnection] = UnauthenticatedConnections()
        self._context = context
        self._settings = context.settings
        self._selector = selector
        self._clock = clock
        self.budget: ConnectionMemory[ClientConnection] = ConnectionMemory(context.settings.max_buffered_bytes)
        self.publish_buffer: PublishBuffer[ClientConnection] = PublishBuffer(
            context.settings.publish_buffer_bytes, self.budget.unconfirmed
        )
        self._connections: set[ClientConnection] = set()
        self._purgatory: Purgatory[ClientConnection] = Purgatory()
        self._request_loop = RequestLoop(context, self.budget, self._purgatory, clock, self._refuse)
        self._ready: dict[ClientConnection, None] = {}
        self._blocked: dict[ClientConnection, None] = {}
        self._next_deadline_check = float("inf")
        self._next_contention_check = float("-inf")

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, sock: socket.socket, peer: str) -> None:
        """Serve a new client on its non-blocking socket, or close it if too many connections have not logged in."""
        if self._unauthenticated.is_full and not self._displace(peer):
            if self._unauthenticated.may_log(peer, logging.WARNING, self._clock()):
                logger.warning("refused %s: %d connections have not logged in yet", peer, len(self._unauthenticated))
            sock.close()
            return
        timeouts = ConnectionTimeouts(self._settings.idle_timeout, self._settings.stall_timeout)
        tls = login = None
        if self._secure_listener is not None:
            tls, login = self._secure_listener.transport(sock), self._secure_listener.login()
        connection = ClientConnection(
            sock,
            peer,
            self._settings.max_request_bytes,
            self.budget,
            timeouts,
            self.publish_buffer,
            tls=tls,
            login=login,
        )
        self._connections.add(connection)
        if connection.is_unauthenticated:
            self._unauthenticated.add(connection, self._clock(), peer)
        self._guarded(connection, partial(self._settle, connection))

    def _displace(self, peer: str) -> bool:
        """Close an unauthenticated connection in favour of a new one from `peer`, if one can be; return whether one was."""
        displaced = self._unauthenticated.connection_to_displace(peer, self._clock())
        if displaced is None:
            return False
        self._log(
            displaced,
            "closed %s: it has not logged in, and its host has the most of the %d such connections",
            displaced.peer,
            len(self._unauthenticated),
        )
        self._drop(displaced)
        return True

    def serve(self, connection: ClientConnection, events: int) -> None:
        """Receive or send, as the socket of `connection` is ready for `events`."""
        self._guarded(connection, partial(self._serve, connection, events))

    def work(self) -> None:
        """Handle one request of each client that has sent any, and advance connections whose deadline, data or memory has
        come."""
        now = self._clock()
        for connection in self._purgatory.take_expired(now):
            self._guarded(connection, partial(self._check_first, connection))
        for connection in self.publish_buffer.take_resumed(now):
            self._guarded(connection, partial(self._settle, connection))
        for connection in self._unblocked():
            del self._blocked[connection]
            self._ready[connection] = None
        for connection in list(self._ready):
            self._ready.pop(connection, None)
            if self._blocked:
                self._blocked.pop(connection, None)
            if self.budget.may_respond(fetch=connection.next_is_fetch):
                self._guarded(connection, partial(self._advance, connection))
            else:
                self._blocked[connection] = None
                self._guarded(connection, partial(self._listen, connection))
        self._check_changed()
        while (admitted := self.budget.next_admitted()) is not None:
            self._guarded(admitted, partial(self._resume, admitted))
        if self._is_contended and self._next_contention_check <= now:
            self._next_contention_check = now + CONTENTION_CHECK_INTERVAL_S
            self._close_slow_holders(now)
        if self._next_deadline_check <= now:
            self._close_expired(now)
        for connection in self._unauthenticated.expired(now):
            self._log(connection, "closed %s: it has not logged in within %g s", connection.peer, LOGIN_TIMEOUT_S)
            self._drop(connection)

    def next_deadline(self) -> float:
        """Return the time, in seconds of the clock, at which `work` is due even if no socket is ready."""
        if self._ready or self._unblocked() or self.publish_buffer.has_resumable():
            return self._clock()
        deadline = self._purgatory.next_deadline()
        check_due = (
            min(self._next_deadline_check, self._next_contention_check)
            if self._is_contended
            else self._next_deadline_check
        )
        check_due = min(check_due, self._unauthenticated.next_deadline(), self.publish_buffer.next_deadline())
        return check_due if deadline is None else min(deadline, check_due)

    def _unblocked(self) -> list[ClientConnection]:
        """Return the blocked connections whose response has memory now."""
        may = {fetch: self.budget.may_respond(fetch=fetch) for fetch in (True, False)} if self._blocked else {}
        return [connection for connection in self._blocked if may[connection.next_is_fetch]]

    @property
    def _is_contended(self) -> bool:
        """Whether a client waits for memory that others hold."""
        return bool(self._blocked) or self.budget.is_contended

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._connections):
            self._drop(connection)

    def _guarded(self, connection: ClientConnection, step: Callable[[], None]) -> None:
        """Run `step`; an error closes this connection and affects no other."""
        if connection not in self._connections:
            return
        try:
            step()
        except LocalProtocolError:
            logger.exception(
                "dropped %s: its response cannot be encoded, which is a bug in the broker", connection.peer
            )
            self._drop(connection)
        except (ProtocolError, SecurityError) as error:
            self._log(connection, "dropped %s: %s", connection.peer, error)
            self._drop(connection)
        except OSError as error:
            self._log(connection, "connection of %s broke: %s", connection.peer, error, level=logging.INFO)
            self._drop(connection)
        except Exception:
            logger.exception("dropped %s: its request hit a bug in the broker", connection.peer)
            self._drop(connection)

    def _serve(self, connection: ClientConnection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            connection.send_more()
        if events & selectors.EVENT_READ and connection.wants_to_receive and not connection.receive():
            self._drop(connection)
            return
        self._settle(connection)

    def _resume(self, connection: ClientConnection) -> None:
        connection.resume()
        self._settle(connection)

    def _settle(self, connection: ClientConnection) -> None:
        """Update the registration and the deadlines of a connection after a step."""
        if connection.is_over:
            self._drop(connection)
            return
        if connection.is_postponed:
            connection.resume()
        if connection in self._unauthenticated and not connection.is_unauthenticated:
            self._unauthenticated.remove(connection)
            connection.allow_large_frames()
            user = connection.user
            logger.info("%s is authenticated as %s", connection.peer, ANONYMOUS if user is None else quoted(user))
        connection.observe(self._clock())
        self._next_deadline_check = min(self._next_deadline_check, connection.timeouts.deadline)
        if connection.publisher.is_paused:
            self.publish_buffer.pause(connection.publisher, self._clock())
        if (connection.responses and connection.is_due) or connection.has_request or connection.has_buffered:
            self._ready[connection] = None  # its next step needs no event of the selector
        else:
            self._listen(connection)

    def _listen(self, connection: ClientConnection) -> None:
        events = selectors.EVENT_READ if connection.wants_to_receive else 0
        events |= selectors.EVENT_WRITE if connection.wants_to_send else 0
        before, connection.events = connection.events, events
        if events == before:
            return
        if not events:
            self._selector.unregister(connection.socket)
        elif not before:
            self._selector.register(connection.socket, events, connection)
        else:
            self._selector.modify(connection.socket, events, connection)

    def _advance(self, connection: ClientConnection) -> None:
        """Send the responses that are due, or else handle the next request."""
        if connection.responses and connection.is_due:
            self._request_loop.send_due(connection)
        elif connection.has_request:
            self._request_loop.handle_next(connection)
        elif connection.has_buffered and not connection.receive():
            self._drop(connection)
            return
        self._settle(connection)

    def changed(self, partition: Hashable) -> None:
        """Make the next `work` check the delayed responses with this key (`context.partition_key`)."""
        self._request_loop.changed[partition] = None

    def space_freed(self) -> None:
        """Make the next `work` resume producers that wait for space in the storage."""
        self.publish_buffer.space_freed()

    def _check_changed(self) -> None:
        """Check the delayed responses whose partitions have changed: they may be ready now."""
        changed, self._request_loop.changed = self._request_loop.changed, {}
        for connection in self._purgatory.waiting_for(changed):
            self._guarded(connection, partial(self._check_first, connection))

    def _check_first(self, connection: ClientConnection) -> None:
        if self._request_loop.check_first(connection):
            self._ready[connection] = None

    def _refuse(self, connection: ClientConnection, reason: str) -> None:
        self._log(connection, "refused %s: %s", connection.peer, reason)

    def _close_expired(self, now: float) -> None:
        """Close connections whose deadline has passed. To scan all of them now and then is cheaper than a queue of deadlines."""
        for connection in list(self._connections):
            if connection.timeouts.deadline <= now:
                logger.info("closed %s: %s", connection.peer, connection.timeouts.reason())
                self._drop(connection)
        self._next_deadline_check = min(
            (connection.timeouts.deadline for connection in self._connections), default=float("inf")
        )

    def _close_slow_holders(self, now: float) -> None:
        """While others wait for memory, close each connection whose transfer holds some and has taken `stall_timeout`."""
        for connection in list(self._connections):
            if connection.holds_memory and connection.timeouts.whole_deadline <= now:
                logger.info(
                    "closed %s, because other clients wait for the memory that it holds: %s",
                    connection.peer,
                    connection.timeouts.reason(),
                )
                self._drop(connection)

    def _log(self, connection: ClientConnection, text: str, *details: object, level: int = logging.WARNING) -> None:
        """Log the end of a connection; lines about unauthenticated connections are limited in number."""
        known = connection not in self._unauthenticated
        if known or self._unauthenticated.may_log(connection.peer, level, self._clock()):
            logger.log(level, text, *details)

    def _drop(self, connection: ClientConnection) -> None:
        """Remove the connection from all tables, then close it."""
        self._connections.discard(connection)
        self._unauthenticated.remove(connection)
        self._ready.pop(connection, None)
        self._blocked.pop(connection, None)
        self._purgatory.remove(connection)
        try:
            if connection.events:
                self._selector.unregister(connection.socket)
        finally:
            connection.close()
