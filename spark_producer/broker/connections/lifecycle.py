"""The clients of the broker: this module decides what each connection does next, what it waits for, and when it is closed.

Every step is guarded: an error ends only the connection that it belongs to, and puts one line into the log. `server` runs the
thread and the listening socket, and `answering` takes one connection's step.
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
from spark_producer.broker.security.unauthenticated import LOGIN_SECONDS, UnauthenticatedConnections
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import LocalProtocolError, ProtocolError, SecurityError

logger = escaping_logger(__name__)

CROWDED_CHECK_INTERVAL: Final = 1.0
"""Seconds between two looks for slow clients while others wait for memory."""


class Clients:
    """All connections, each registered with `selector` for the events that it waits for. Only the server's thread uses this.

    `entrance` is None where connections are neither encrypted nor have to log in.
    """

    def __init__(
        self,
        context: Context,
        selector: selectors.BaseSelector,
        clock: Callable[[], float],
        entrance: SecureListener | None = None,
    ) -> None:
        self._entrance = entrance
        self._strangers: UnauthenticatedConnections[ClientConnection] = UnauthenticatedConnections()
        self._context = context
        self._settings = context.settings
        self._selector = selector
        self._clock = clock
        self.budget: ConnectionMemory[ClientConnection] = ConnectionMemory(context.settings.max_buffered_bytes)
        self.published: PublishBuffer[ClientConnection] = PublishBuffer(
            context.settings.publish_buffer_bytes, self.budget.unconfirmed
        )
        self._connections: set[ClientConnection] = set()
        self._delayed: Purgatory[ClientConnection] = Purgatory()
        self._answering = RequestLoop(context, self.budget, self._delayed, clock, self._refuse)
        self._ready: dict[ClientConnection, None] = {}
        self._held_back: dict[ClientConnection, None] = {}
        self._next_look = float("inf")
        self._next_crowded_look = float("-inf")

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, sock: socket.socket, peer: str) -> None:
        """Serve a new client on its non-blocking socket; or close it, if there are too many that have not logged in."""
        if self._strangers.full and not self._displace(peer):
            if self._strangers.may_be_logged(peer, logging.WARNING, self._clock()):
                logger.warning("refused %s: %d connections have not logged in yet", peer, len(self._strangers))
            sock.close()
            return
        patience = ConnectionTimeouts(self._settings.idle_timeout, self._settings.stall_timeout)
        tls = login = None
        if self._entrance is not None:
            tls, login = self._entrance.wire(sock), self._entrance.login()
        connection = ClientConnection(
            sock, peer, self._settings.max_request_bytes, self.budget, patience, self.published, tls=tls, login=login
        )
        self._connections.add(connection)
        if connection.is_stranger:
            self._strangers.add(connection, self._clock(), peer)
        self._guarded(connection, partial(self._settle, connection))

    def _displace(self, peer: str) -> bool:
        """Close a connection that has not logged in for a new one from `peer`, if one may be; return whether one was."""
        displaced = self._strangers.displaced_by(peer, self._clock())
        if displaced is None:
            return False
        self._tell(
            displaced,
            "closed %s: it has not logged in, and its host has the most of the %d such connections",
            displaced.peer,
            len(self._strangers),
        )
        self._drop(displaced)
        return True

    def serve(self, connection: ClientConnection, events: int) -> None:
        """Receive or send, as the socket of `connection` is ready for `events`."""
        self._guarded(connection, partial(self._serve, connection, events))

    def work(self) -> None:
        """Answer one request of each client that has sent any, and look at the clients that wait for time, data or memory."""
        now = self._clock()
        for connection in self._delayed.take_expired(now):
            self._guarded(connection, partial(self._look_at, connection))
        for connection in self.published.take_resumed(now):
            self._guarded(connection, partial(self._settle, connection))
        for connection in self._to_be_answered():
            del self._held_back[connection]
            self._ready[connection] = None
        for connection in list(self._ready):
            self._ready.pop(connection, None)
            if self._held_back:
                self._held_back.pop(connection, None)
            if self.budget.may_answer(fetch=connection.next_is_fetch):
                self._guarded(connection, partial(self._answer_next, connection))
            else:
                self._held_back[connection] = None
                self._guarded(connection, partial(self._listen, connection))
        self._look_at_waiting()
        while (admitted := self.budget.next_admitted()) is not None:
            self._guarded(admitted, partial(self._resume, admitted))
        if self._crowded and self._next_crowded_look <= now:
            self._next_crowded_look = now + CROWDED_CHECK_INTERVAL
            self._close_slow_holders(now)
        if self._next_look <= now:
            self._look_at_deadlines(now)
        for connection in self._strangers.late(now):
            self._tell(connection, "closed %s: it has not logged in within %g s", connection.peer, LOGIN_SECONDS)
            self._drop(connection)

    def next_moment(self) -> float:
        """Return the time, in seconds of the clock, at which `work` has something to do even if no socket is ready."""
        if self._ready or self._to_be_answered() or self.published.has_resumable():
            return self._clock()
        deadline = self._delayed.next_deadline()
        look = min(self._next_look, self._next_crowded_look) if self._crowded else self._next_look
        look = min(look, self._strangers.next_deadline(), self.published.next_deadline())
        return look if deadline is None else min(deadline, look)

    def _to_be_answered(self) -> list[ClientConnection]:
        """Return the connections that were held back and may be answered now."""
        may = {fetch: self.budget.may_answer(fetch=fetch) for fetch in (True, False)} if self._held_back else {}
        return [connection for connection in self._held_back if may[connection.next_is_fetch]]

    @property
    def _crowded(self) -> bool:
        """Whether some client waits for memory that others hold."""
        return bool(self._held_back) or self.budget.crowded

    def close(self) -> None:
        """Drop every connection."""
        for connection in list(self._connections):
            self._drop(connection)

    def _guarded(self, connection: ClientConnection, step: Callable[[], None]) -> None:
        """Do `step`; an error ends this one connection and nothing else."""
        if connection not in self._connections:
            return
        try:
            step()
        except LocalProtocolError:
            logger.exception("dropped %s: its answer cannot be written, a defect of the broker", connection.peer)
            self._drop(connection)
        except (ProtocolError, SecurityError) as error:
            self._tell(connection, "dropped %s: %s", connection.peer, error)
            self._drop(connection)
        except OSError as error:
            self._tell(connection, "connection of %s broke: %s", connection.peer, error, level=logging.INFO)
            self._drop(connection)
        except Exception:
            logger.exception("dropped %s: its request met a defect of the broker", connection.peer)
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
        """Note after a step what the connection waits for now, and how long it may wait."""
        if connection.is_over:
            self._drop(connection)
            return
        if connection.is_put_off:
            connection.resume()
        if connection in self._strangers and not connection.is_stranger:
            self._strangers.remove(connection)
            connection.welcome()
            user = connection.user
            logger.info("%s is %s", connection.peer, ANONYMOUS if user is None else quoted(user))
        connection.observe(self._clock())
        self._next_look = min(self._next_look, connection.patience.deadline)
        if connection.publisher.is_paused:
            self.published.pause(connection.publisher, self._clock())
        if (connection.unanswered and connection.is_due) or connection.has_request or connection.has_buffered:
            self._ready[connection] = None  # it is looked at next, whatever the selector says
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

    def _answer_next(self, connection: ClientConnection) -> None:
        """Send the answers whose wait is over, or else handle the next request."""
        if connection.unanswered and connection.is_due:
            self._answering.send_due(connection)
        elif connection.has_request:
            self._answering.handle_next(connection)
        elif connection.has_buffered and not connection.receive():
            self._drop(connection)
            return
        self._settle(connection)

    def changed(self, partition: Hashable) -> None:
        """Have the next `work` look again at the requests that wait for `partition` (`context.partition_key`)."""
        self._answering.changed[partition] = None

    def room_made(self) -> None:
        """Have the next `work` go on with the producers that wait for room in the storage."""
        self.published.room_made()

    def _look_at_waiting(self) -> None:
        """Look at the requests that wait for partitions which have changed: they may find enough now."""
        changed, self._answering.changed = self._answering.changed, {}
        for connection in self._delayed.waiting_for(changed):
            self._guarded(connection, partial(self._look_at, connection))

    def _look_at(self, connection: ClientConnection) -> None:
        if self._answering.look_at(connection):
            self._ready[connection] = None

    def _refuse(self, connection: ClientConnection, reason: str) -> None:
        self._tell(connection, "refused %s: %s", connection.peer, reason)

    def _look_at_deadlines(self, now: float) -> None:
        """Close the connections whose time is up. To look at all of them now and then is cheaper than a queue of deadlines."""
        for connection in list(self._connections):
            if connection.patience.deadline <= now:
                logger.info("closed %s: %s", connection.peer, connection.patience.reason())
                self._drop(connection)
        self._next_look = min((connection.patience.deadline for connection in self._connections), default=float("inf"))

    def _close_slow_holders(self, now: float) -> None:
        """While others wait for memory, close each connection whose transfer holds some and has taken `stall_timeout`."""
        for connection in list(self._connections):
            if connection.holds_memory and connection.patience.whole_deadline <= now:
                logger.info(
                    "closed %s, because other clients wait for the memory that it holds: %s",
                    connection.peer,
                    connection.patience.reason(),
                )
                self._drop(connection)

    def _tell(self, connection: ClientConnection, text: str, *details: object, level: int = logging.WARNING) -> None:
        """Write a line of the log about the end of a connection; what strangers do fills no log."""
        known = connection not in self._strangers
        if known or self._strangers.may_be_logged(connection.peer, level, self._clock()):
            logger.log(level, text, *details)

    def _drop(self, connection: ClientConnection) -> None:
        """Forget the connection everywhere, then close it."""
        self._connections.discard(connection)
        self._strangers.remove(connection)
        self._ready.pop(connection, None)
        self._held_back.pop(connection, None)
        self._delayed.remove(connection)
        try:
            if connection.events:
                self._selector.unregister(connection.socket)
        finally:
            connection.close()
