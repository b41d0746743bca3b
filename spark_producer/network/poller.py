"""The selector of all sockets of a client, whose wait any thread can end."""

from __future__ import annotations

import contextlib
import selectors
import socket

from spark_producer.network.node import NodeConnection

MAX_WAIT_S = 3600.0
"""Maximum wait in seconds, since a selector does not accept an infinite one."""


class Poller:
    """A selector, and a pair of sockets that wakes it. Only the polling thread uses it, except for `wake`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)

    def watch(self, node: NodeConnection, descriptor: int, events: int) -> None:
        """Set the events of a node's socket to wait for."""
        if not node.watched:
            self._selector.register(descriptor, events, node)
        elif events != node.watched:
            self._selector.modify(descriptor, events, node)
        node.watched = events

    def forget(self, node: NodeConnection, descriptor: int) -> None:
        """Remove a node's socket, before it is closed."""
        if node.watched:
            self._selector.unregister(descriptor)
        node.watched = 0

    def wait(self, seconds: float) -> list[tuple[NodeConnection, int]]:
        """Wait up to `seconds`, or not at all below 0. Return the nodes with events, and these events."""
        ready = self._selector.select(max(0.0, min(seconds, MAX_WAIT_S)))
        found = [(key.data, mask) for key, mask in ready if key.data is not None]
        if len(found) < len(ready):
            self._drain()
        return found

    def wake(self) -> None:
        """Make the current wait, or the next one, return at once. It is thread-safe."""
        try:
            self._wake_writer.send(b"\0")
        except OSError:
            return  # the socket is full of wake-ups, or closed

    def close(self) -> None:
        """Close the selector and its own sockets, not those of nodes."""
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._wake_reader.recv(4096)) == 4096:  # fewer bytes mean that none are left
                continue
