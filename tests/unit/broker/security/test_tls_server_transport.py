"""TLS between a connection and its socket: full buffers, ciphertext that waits, plaintext that waits."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSecurity
from spark_producer.broker.connections.connection import ClientConnection
from spark_producer.broker.connections.connection_timeouts import ConnectionTimeouts
from spark_producer.broker.memory.budget import ConnectionMemory
from spark_producer.broker.transport import TlsServerTransport
from spark_producer.protocol import METADATA, messages
from spark_producer.security.contexts import server_context
from spark_producer.security.tls_stream import TlsStream
from tests.unit.broker.security.secured_broker import HOST, PairedBroker

KIB = 1024
MIB = 1024 * KIB


class TlsPeer:
    """The client's end of a pair of sockets, with TLS; nothing waits."""

    def __init__(self, sock: socket.socket, ca: Path) -> None:
        self.socket = sock
        self.stream = TlsStream(ssl.create_default_context(cafile=str(ca)), HOST)

    def handshake(self) -> bool:
        self._take()
        done = self.stream.handshake()
        self.socket.sendall(self.stream.take_outgoing())
        return done

    def send(self, data: bytes) -> None:
        self.stream.write(data)
        self.socket.sendall(self.stream.take_outgoing())

    def received(self) -> bytes:
        """Return all bytes that have arrived."""
        found, space = b"", memoryview(bytearray(256 * KIB))
        while self._take():
            while count := self.stream.read_into(space):
                found += bytes(space[:count])
        return found

    def _take(self) -> bool:
        try:
            data = self.socket.recv(256 * KIB)
        except BlockingIOError:
            return False
        self.stream.feed(data)
        return bool(data)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        yield ours, theirs


@pytest.fixture
def peer(pair: tuple[socket.socket, socket.socket], files: Path) -> TlsPeer:
    return TlsPeer(pair[1], files / "ca.pem")


@pytest.fixture
def wire(pair: tuple[socket.socket, socket.socket], peer: TlsPeer, files: Path) -> TlsServerTransport:
    """After the handshake."""
    certificate = str(files / "broker.pem")
    made = TlsServerTransport(pair[0], TlsStream(server_context(certificate, certificate), None, server_side=True))
    assert made.peer_name is None
    assert not made.buffered
    space = memoryview(bytearray(10))
    while not peer.handshake() or not made.established:
        with pytest.raises(BlockingIOError):
            made.recv_into(space)
    peer.received()
    return made


def test_what_the_socket_does_not_take_waits_and_nothing_more_is_encrypted(
    wire: TlsServerTransport, peer: TlsPeer
) -> None:
    data = bytes(range(256)) * (16 * KIB)
    rest, got, most_unsent, blocked = memoryview(data), b"", 0, 0
    while rest or wire.unsent:
        try:
            if rest:
                rest = rest[wire.sendmsg([rest[:100], rest[100:]]) :]
        except BlockingIOError:
            blocked += 1
        most_unsent = max(most_unsent, wire.unsent)
        if blocked:
            got += peer.received()
            wire.flush()
    got += peer.received()
    assert got == data
    assert blocked
    assert 0 < most_unsent < 257 * KIB


def test_small_buffers_are_joined_and_large_ones_cut(wire: TlsServerTransport, peer: TlsPeer) -> None:
    small = [memoryview(b"x" * 1000)] * 500
    assert wire.sendmsg(small) == 256 * KIB
    assert drained(wire, peer) == b"x" * 256 * KIB
    assert wire.sendmsg([memoryview(b"y" * MIB), *small]) == 256 * KIB
    assert drained(wire, peer) == b"y" * 256 * KIB
    assert wire.sendmsg([memoryview(b"z")]) == 1
    assert wire.sendmsg([memoryview(b"a"), memoryview(b"b")]) == 2
    assert drained(wire, peer) == b"zab"


def drained(wire: TlsServerTransport, peer: TlsPeer) -> bytes:
    """Return the bytes until the transport has none left to send."""
    got = b""
    while not wire.flush():
        got += peer.received()
    return got + peer.received()


class ScriptedStream(TlsStream):
    """TLS that has something to send whenever it is asked, as after an update of keys."""

    def __init__(self) -> None:
        self.outgoing: list[bytes] = []

    def take_outgoing(self) -> bytes:
        return self.outgoing.pop(0) if self.outgoing else b""


def test_tls_messages_come_after_waiting_ciphertext(pair: tuple[socket.socket, socket.socket]) -> None:
    stream = ScriptedStream()
    wire = TlsServerTransport(pair[0], stream)
    stream.outgoing = [b"a" * MIB]
    assert not wire.flush()
    stream.outgoing = [b"b" * 100]
    assert not wire.flush()
    assert wire.unsent
    got = b""
    while not wire.flush():
        got += pair[1].recv(MIB)
    while len(got) < MIB + 100:
        got += pair[1].recv(MIB)
    assert got == b"a" * MIB + b"b" * 100


def test_the_clients_end_is_an_end_in_every_state(
    pair: tuple[socket.socket, socket.socket], wire: TlsServerTransport, peer: TlsPeer
) -> None:
    peer.send(b"last bytes")
    pair[1].shutdown(socket.SHUT_WR)
    space = memoryview(bytearray(4))
    assert [wire.recv_into(space) for _ in range(4)] == [4, 4, 2, 0]


def test_a_connection_hands_out_no_request_while_ciphertext_waits(
    pair: tuple[socket.socket, socket.socket], wire: TlsServerTransport, peer: TlsPeer
) -> None:
    budget: ConnectionMemory[ClientConnection] = ConnectionMemory(256 * MIB)
    connection = ClientConnection(pair[0], "peer", MIB, budget, ConnectionTimeouts(600, 30), tls=wire)
    peer.send(struct.pack(">i", 4) + b"next")
    assert connection.receive()
    assert connection.has_request
    connection.send([bytes(512 * KIB)])
    assert wire.unsent, "of the first slice; a socket takes less at once"
    while connection._unsent:
        peer.received()
        connection.send_more()
    assert wire.unsent, "of the last slice"
    assert connection.wants_to_send
    assert budget.responses == wire.unsent
    assert not connection.has_request
    while connection.wants_to_send:
        peer.received()
        connection.send_more()
    assert connection.has_request
    assert budget.responses == 0
    connection.close()


def test_what_is_decrypted_already_is_read_without_waiting_for_the_socket(tmp_path: Path, files: Path) -> None:
    """The frame reader has no space for a whole record, and the socket has no more bytes."""
    broker = PairedBroker(tmp_path / "data", BrokerSecurity("SSL", files / "broker.pem"))
    raw = broker.connect()
    peer = TlsPeer(raw.socket, files / "ca.pem")
    while not peer.handshake():
        broker.turns(2)
    first, second = (_padded(raw.frame(METADATA, messages.MetadataRequest()), size) for size in (60_000, 30_000))
    peer.send(first[:40_000])
    broker.turns()
    peer.send(first[40_000:] + second)
    broker.turns()
    responses = peer.received()
    (size,) = struct.unpack_from(">i", responses)
    assert len(responses) == 2 * (4 + size)
    broker.close()


def _padded(frame: bytes, size: int) -> bytes:
    """A request with bytes after its body, which brokers ignore."""
    return struct.pack(">i", size) + frame[4:] + bytes(size - len(frame) + 4)
