from __future__ import annotations

import os
import pickle
import selectors
import socket
import threading
from collections.abc import Iterator

import pytest

from spark_producer.errors import ConnectionFailed
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.transport import IOV_MAX, ResolvedAddress, resolve
from tests.support.certificates import Certificates
from tests.unit.network.ways import DEADLINE, Way, connect, plain_way, received, tls_way, wait_for

SYSTEMS_OWN = ConnectionSettings(bootstrap=())
"""with the buffers that the system gives"""


@pytest.fixture(params=["plain", "TLS 1.2", "TLS 1.3"])
def way(request: pytest.FixtureRequest, certificates: Certificates) -> Way:
    """Every test of this file is one of what carries plain bytes, and of what encrypts them."""
    kind: str = request.param
    return plain_way() if kind == "plain" else tls_way(certificates, kind.replace(" ", "v"))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE)
        yield server


def read_all(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(1 << 20)
        assert part
        data += part
    return bytes(data)


@pytest.mark.covers("SEC44")
def test_more_buffers_than_one_sendmsg_takes_arrive_in_order(way: Way, listener: socket.socket) -> None:
    transport, peer = connect(way, listener, SYSTEMS_OWN)
    with peer:
        buffers = [bytes((i % 256,)) * (i % 7) for i in range(3 * IOV_MAX + 5)]
        assert transport.write(buffers)
        assert read_all(peer, sum(map(len, buffers))) == b"".join(buffers)
        transport.close()


@pytest.mark.covers("SEC44")
def test_partial_writes_go_on_where_they_stopped(way: Way, listener: socket.socket) -> None:
    transport, peer = connect(
        way, listener, ConnectionSettings((), send_buffer_bytes=16 * 1024, receive_buffer_bytes=16 * 1024)
    )
    buffers = [bytes((i % 251,)) * 10_007 for i in range(100)]
    expected = b"".join(buffers)
    found: list[bytes] = []
    with peer:
        reader = threading.Thread(target=lambda: found.append(read_all(peer, len(expected))), daemon=True)
        done = transport.write(buffers)
        assert not done
        assert transport.queued > len(expected) // 2
        reader.start()
        while not done:
            assert wait_for(transport, selectors.EVENT_WRITE)
            done = transport.flush()
        assert transport.queued == 0
        reader.join(DEADLINE)
        transport.close()
    assert found == [expected]


@pytest.mark.covers("SEC44")
def test_options_reach_the_socket(way: Way, listener: socket.socket) -> None:
    transport, peer = connect(way, listener, ConnectionSettings((), send_buffer_bytes=32 * 1024))
    with peer, socket.fromfd(transport.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
        assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert same.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (32 * 1024, 64 * 1024)  # Linux doubles it
        assert not os.get_blocking(transport.fileno())
        transport.close()


@pytest.mark.covers("SEC44")
def test_receiving_distinguishes_no_bytes_from_the_end(way: Way, listener: socket.socket) -> None:
    transport, peer = connect(way, listener, SYSTEMS_OWN)
    space = memoryview(bytearray(10))
    assert transport.receive_into(space) is None
    peer.sendall(b"abc")
    assert received(transport, space) == 3
    peer.close()
    assert received(transport, space) == 0
    transport.close()
    transport.close()


@pytest.mark.covers("SEC44")
def test_a_refused_connection_names_the_address_and_survives_pickling(way: Way) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        transport = way.open(resolve("127.0.0.1", port)[0], SYSTEMS_OWN)
        assert (transport.wants, transport.step) == (selectors.EVENT_WRITE, "connecting")
        assert wait_for(transport, transport.wants)
        with pytest.raises(ConnectionFailed, match=f"cannot connect to 127.0.0.1:{port}: Connection refused") as raised:
            transport.finish_connect()
        transport.close()
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_an_address_says_its_name_and_its_number() -> None:
    assert str(ResolvedAddress("kafka", 9092, socket.AF_INET, ("10.0.0.1", 9092))) == "kafka:9092 (10.0.0.1)"
    assert str(ResolvedAddress("::1", 9092, socket.AF_INET6, ("::1", 9092, 0, 0))) == "[::1]:9092"


@pytest.mark.parametrize("port", [0, -1, 65_536, 99_999, 2**31 - 1])
def test_a_number_that_is_no_port_is_not_cut_off_to_one(port: int) -> None:
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}: the port must be from 1 to 65535"):
        resolve("127.0.0.1", port)
