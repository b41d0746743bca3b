"""The fault proxy does what its methods say, shown with plain sockets against an echo server."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.proxy import Cut, Direction, FaultProxy

TO_BROKER, TO_CLIENT = Direction.TO_BROKER, Direction.TO_CLIENT


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (chunk := connection.recv(count - len(data))):
        data += chunk
    return data


def request(api_key: int, correlation: int, body: bytes = b"body") -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api_key, 0, correlation) + body


def response(correlation: int) -> bytes:
    return struct.pack(">ii", 8, correlation) + b"done"


class Server:
    """Echoes chunks, or answers Kafka frames with their correlation id."""

    def __init__(self, frames: bool) -> None:
        self._pieces: list[bytes] = []
        self.half_closed = threading.Event()
        self._frames = frames
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    @property
    def received(self) -> bytes:
        """All bytes, of all connections."""
        return b"".join(self._pieces)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := self._next(connection):
                    self._pieces.append(data)
                    connection.sendall(response(struct.unpack_from(">i", data, 8)[0]) if self._frames else data)
                self.half_closed.set()
            except (OSError, struct.error):  # cut, perhaps inside a frame
                return

    def _next(self, connection: socket.socket) -> bytes:
        if not self._frames:
            return connection.recv(65_536)
        start = receive(connection, 4)
        return start + receive(connection, struct.unpack(">i", start)[0]) if start else b""


@pytest.fixture
def echo() -> Iterator[Server]:
    server = Server(frames=False)
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Server) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", echo.port, frames=False) as running:
        yield running


@pytest.fixture
def framed() -> Iterator[FaultProxy]:
    server = Server(frames=True)
    with FaultProxy("127.0.0.1", server.port) as running:
        yield running
    server.close()


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=10)


def test_forwards_both_ways_and_passes_the_end_on(proxy: FaultProxy, echo: Server) -> None:
    payload = bytes(range(256)) * 4096
    with connect(proxy) as connection:
        threading.Thread(target=connection.sendall, args=(payload,), daemon=True).start()
        assert receive(connection, len(payload)) == payload
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert echo.half_closed.wait(10)
    proxy.wait_for_connections(0)
    assert proxy.accepted == 1


@pytest.mark.parametrize("direction", list(Direction))
def test_cut_after_some_bytes_resets(proxy: FaultProxy, echo: Server, direction: Direction) -> None:
    proxy.cut_after(5, direction)
    with connect(proxy) as connection:
        connection.sendall(b"0123456789")
        with pytest.raises(ConnectionResetError):
            receive(connection, 11)
    proxy.wait_for_connections(0)
    if direction is TO_BROKER:
        assert echo.received in (b"01234", b""), "a reset may overtake bytes that the receiver has not read yet"
    else:
        assert echo.received == b"0123456789"
    with connect(proxy) as connection:
        connection.sendall(b"again")
        assert receive(connection, 5) == b"again"


def test_cut_counts_over_chunks_and_can_close_cleanly(proxy: FaultProxy) -> None:
    proxy.cut_after(7, TO_CLIENT, Cut.CLOSE)
    with connect(proxy) as connection:
        connection.sendall(b"0123")
        assert receive(connection, 4) == b"0123"
        connection.sendall(b"4567")
        assert receive(connection, 4) == b"456"
        assert connection.recv(1) == b""


def test_cut_now(proxy: FaultProxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_half_close_leaves_the_other_direction(proxy: FaultProxy, echo: Server) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"
        proxy.half_close(TO_CLIENT)
        assert connection.recv(1) == b""
        connection.sendall(b"yz")
        connection.shutdown(socket.SHUT_WR)
        assert echo.half_closed.wait(10)
    assert echo.received == b"xyz"


def test_half_close_of_a_connection_that_its_client_has_just_reset(proxy: FaultProxy) -> None:
    """While nothing is read from the client, the proxy has not noticed that it is gone."""
    with connect(proxy) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"
        proxy.pause(TO_BROKER)
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.sendall(bytes(64 * 1024 * 1024))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    proxy.half_close(TO_CLIENT)
    proxy.resume(TO_BROKER)
    proxy.wait_for_connections(0)


def test_swallow_then_heal(proxy: FaultProxy, echo: Server) -> None:
    with connect(proxy) as connection:
        proxy.swallow(TO_CLIENT)
        connection.sendall(b"lost")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.wait_for_received(TO_CLIENT, 4, 10)
        assert echo.received == b"lost"
        proxy.heal()
        connection.settimeout(10)
        connection.sendall(b"kept")
        assert receive(connection, 4) == b"kept"


def test_pause_keeps_the_bytes(proxy: FaultProxy) -> None:
    proxy.pause(TO_CLIENT)
    with connect(proxy) as connection:
        connection.sendall(b"later")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(10)
        proxy.resume(TO_CLIENT)
        assert receive(connection, 5) == b"later"


def test_delay_changes_no_bytes(proxy: FaultProxy) -> None:
    proxy.delay(0.05)
    with connect(proxy) as connection:
        connection.sendall(b"slow")
        assert receive(connection, 4) == b"slow"


def test_injected_garbage_arrives(proxy: FaultProxy, echo: Server) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"
        proxy.inject(b"\xff\xfe", TO_CLIENT)
        assert receive(connection, 2) == b"\xff\xfe"


def test_refuse_and_listen_again_on_the_same_port(proxy: FaultProxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as connection:
        connection.sendall(b"back")
        assert receive(connection, 4) == b"back"


def test_no_target_is_a_closed_connection() -> None:
    with FaultProxy("127.0.0.1", 1, frames=False) as proxy, connect(proxy) as connection:
        assert connection.recv(1) == b""


def test_frames_are_counted_by_api(framed: FaultProxy) -> None:
    with connect(framed) as connection:
        connection.sendall(request(18, 1) + request(0, 2) + request(0, 3))
        assert receive(connection, 36) == response(1) + response(2) + response(3)
    assert framed.requests == {18: 1, 0: 2}
    assert framed.received == {TO_BROKER: 48, TO_CLIENT: 36}
    framed.wait_for_requests(0, 2)
    with pytest.raises(TimeoutError, match="requests of API 3"):
        framed.wait_for_requests(3, 1, timeout=0.01)


def test_lost_response_cuts_after_the_earlier_ones(framed: FaultProxy) -> None:
    framed.lose_response(0, how=Cut.CLOSE)
    with connect(framed) as connection:
        connection.sendall(request(18, 1) + request(0, 2))
        assert receive(connection, 24) == response(1)
    with connect(framed) as connection:
        connection.sendall(request(0, 2))
        assert receive(connection, 12) == response(2)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_cuts_at_random_take_their_share_of_one_api(framed: FaultProxy, share: float) -> None:
    framed.cut_at_random(0, share, seed=1)
    cut = 0
    for number in range(40):
        with connect(framed) as connection:
            connection.sendall(request(18, number) + request(0, number))
            try:
                answers = receive(connection, 24)
            except ConnectionResetError:
                answers = b""
            assert response(number).startswith(answers[:12])
            cut += answers != 2 * response(number)
    assert cut == 40 * share or (share == 0.5 and 10 < cut < 30)


def test_cuts_at_random_come_before_and_after_the_broker_has_the_request() -> None:
    server = Server(frames=True)
    with FaultProxy("127.0.0.1", server.port) as proxy:
        proxy.cut_at_random(0, 1.0, seed=1)
        for number in range(40):
            with connect(proxy) as connection:
                connection.sendall(request(0, number))
                with suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
        proxy.wait_for_connections(0)
    server.close()
    whole = sum(request(0, number) in server.received for number in range(40))
    assert 5 < whole < 20, "a third before the request, inside it, and instead of its response"
    assert len(server.received) > whole * len(request(0, 0)), "parts of requests"


def test_a_dropped_response_leaves_the_connection(framed: FaultProxy) -> None:
    framed.drop_response(0)
    with connect(framed) as connection:
        connection.sendall(request(0, 1) + request(18, 2) + request(0, 3))
        assert receive(connection, 24) == response(2) + response(3)


def test_a_copy_can_be_sent_again_later(framed: FaultProxy) -> None:
    framed.copy_requests(26)
    with connect(framed) as connection:
        connection.sendall(request(26, 1) + request(0, 2))
        assert receive(connection, 24) == response(1) + response(2)
    assert framed.copies == {26: [request(26, 1)]}
    assert framed.send_again(request(26, 1)) == response(1)[4:]
    framed.heal()
    assert framed.copies == {}


def test_lost_request_never_arrives(framed: FaultProxy) -> None:
    framed.lose_request(0)
    with connect(framed) as connection:
        connection.sendall(request(0, 2))
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert framed.requests == {0: 1}
