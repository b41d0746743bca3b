"""The broker's end of one connection: its memory is free as soon as it is closed."""

from __future__ import annotations

import gc
import socket
import struct
import tracemalloc
from collections.abc import Iterator

import pytest

from spark_producer.broker.connections.connection import ClientConnection
from spark_producer.broker.connections.connection_timeouts import ConnectionTimeouts
from spark_producer.broker.memory.budget import ConnectionMemory

MIB = 1024 * 1024


@pytest.fixture
def traced() -> Iterator[None]:
    """Memory is traced, and circles of objects are not looked for."""
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("traced")
def test_a_frame_that_never_came_whole_and_an_answer_that_was_not_taken_are_freed_at_once() -> None:
    budget: ConnectionMemory[ClientConnection] = ConnectionMemory(256 * MIB)
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(4):
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        connection = ClientConnection(ours, "peer", 100 * MIB, budget, ConnectionTimeouts(600, 30))
        peer.sendall(struct.pack(">i", 50 * MIB) + bytes(1000))
        assert connection.receive()
        connection.send([bytes(4 * MIB)])
        assert connection.wants_to_send
        held, _ = tracemalloc.get_traced_memory()
        assert held - before > 5 * MIB
        peer.close()
        connection.close()
        del connection
    assert budget.held == 0
    left, _ = tracemalloc.get_traced_memory()
    assert left - before < MIB / 8
