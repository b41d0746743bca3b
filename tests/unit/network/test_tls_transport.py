"""What TLS adds to a connection: a handshake without spinning, records that a selector cannot see, alerts for the peer."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence

import pytest

from spark_producer.errors import ConnectionFailed, TlsFailed
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.tls_transport import READS_PER_CALL, RECEIVE_BYTES, TlsConnector, TlsTransport
from spark_producer.network.transport import resolve
from spark_producer.security import Store, TlsSettings
from spark_producer.security.contexts import client_context
from spark_producer.security.tls_stream import TlsStream
from tests.support.certificates import Certificates
from tests.unit.network.ways import DEADLINE, connect, establish, received, server_context, tls_way, wait_for
from tests.unit.security.memory_peer import MemoryPeer

SETTINGS = ConnectionSettings(bootstrap=())
MAX_CIPHERTEXT_BYTES = 260 * 1024
"""256 KiB, and what encryption adds to them."""
SMALL_BUFFERS = ConnectionSettings((), send_buffer_bytes=16 * 1024, receive_buffer_bytes=16 * 1024)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE)
        yield server


def connector(certificates: Certificates, identity: str = "") -> TlsConnector:
    trust = Store(location=str(certificates.ca))
    own = Store(location=str(certificates.file(f"{identity}.pem"))) if identity else None
    return TlsConnector(TlsSettings(trust=trust, identity=own))


@pytest.mark.covers("SEC44")
def test_a_handshake_that_is_held_does_not_spin(listener: socket.socket, certificates: Certificates) -> None:
    quiet_polls, most_events = 10, 10
    answer = threading.Event()
    context = server_context(certificates)

    def serve() -> None:
        accepted, _ = listener.accept()
        accepted.settimeout(DEADLINE)
        assert answer.wait(DEADLINE)
        context.wrap_socket(accepted, server_side=True).close()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    transport = connector(certificates)(resolve(*listener.getsockname())[0], SETTINGS)
    steps = [transport.step]
    quiet = events = 0
    done = False
    with selectors.DefaultSelector() as selector:
        selector.register(transport.fileno(), transport.wants)
        while not done:
            if selector.select(0.02):
                events += 1
                assert events < most_events, "it wants an event that is always there"
                done = transport.finish_connect()
                selector.modify(transport.fileno(), transport.wants)
                steps.append(transport.step)
            else:
                quiet += 1
            if quiet == quiet_polls:
                answer.set()
    server.join(DEADLINE)
    transport.close()
    assert quiet >= quiet_polls
    assert list(dict.fromkeys(steps)) == ["connecting", "TLS handshake"]


@pytest.mark.covers("SEC44")
def test_responses_in_one_tls_record_are_found_although_the_socket_is_silent(
    listener: socket.socket, certificates: Certificates
) -> None:
    transport, peer = connect(tls_way(certificates), listener, SETTINGS)
    answers = [bytes((i,)) * 20 for i in range(64)]
    with peer:
        peer.sendall(b"".join(answers))
        space = memoryview(bytearray(20))
        found: list[bytes] = []
        while len(found) < len(answers):
            assert transport.buffered or wait_for(transport, selectors.EVENT_READ)
            count = transport.receive_into(space)
            if count is not None:
                found.append(bytes(space[:count]))
                assert transport.buffered == (len(found) < len(answers)), f"after {len(found)} of {len(answers)}"
        assert found == answers
        assert transport.receive_into(space) is None
        transport.close()


@pytest.mark.covers("SEC33")
def test_records_of_one_byte_fill_the_space(listener: socket.socket, certificates: Certificates) -> None:
    transport, peer = connect(tls_way(certificates), listener, SETTINGS)
    sent = bytes(range(256)) * 8
    with peer:
        for at in range(len(sent)):
            peer.send(sent[at : at + 1])
        space = memoryview(bytearray(len(sent)))
        filled = calls = 0
        while filled < len(sent):
            filled += received(transport, space[filled:])
            calls += 1
        assert bytes(space) == sent
        assert calls < len(sent) // 10, "each call should take all that is there"
        transport.close()


class EndlessTcp:
    """The socket of a peer that never stops sending: there is always something to receive, a little of `said` at a time."""

    queued = 0
    wants = selectors.EVENT_WRITE

    def __init__(self, said: bytes, at_once: int) -> None:
        self.said = said
        self.at_once = at_once
        self.sent = bytearray()
        self.reads = 0

    def finish_connect(self) -> bool:
        return True

    def write(self, buffers: Sequence[bytes]) -> bool:
        self.sent += b"".join(buffers)
        return True

    def receive_into(self, space: memoryview) -> int | None:
        part, self.said = self.said[: self.at_once], self.said[self.at_once :]
        space[: len(part)] = part
        self.reads += 1
        return len(part) or None


HELLO_REQUEST = b"\x16\x03\x03\x00\x04\0\0\0\0"
"""OpenSSL's clients pass over any number of these within a handshake of TLS 1.2."""


@pytest.mark.covers("SEC33")
def test_a_handshake_that_never_ends_leaves_time_for_others(certificates: Certificates) -> None:
    tcp = EndlessTcp(HELLO_REQUEST * 1000, len(HELLO_REQUEST))
    stream = TlsStream(client_context(TlsSettings(trust=Store(location=str(certificates.ca))), ()), "localhost")
    transport = TlsTransport(tcp, stream)  # type: ignore[arg-type]
    assert not transport.finish_connect()
    assert tcp.reads <= READS_PER_CALL


@pytest.mark.covers("SEC33")
def test_messages_without_plaintext_leave_time_for_others(certificates: Certificates) -> None:
    """New tickets are such: a peer of TLS 1.3 may send any number of them."""
    context = server_context(certificates)
    context.num_tickets = 1000
    peer = MemoryPeer(context)
    stream = TlsStream(client_context(TlsSettings(trust=Store(location=str(certificates.ca))), ()), "localhost")
    tcp = EndlessTcp(b"", 1000)
    transport = TlsTransport(tcp, stream)  # type: ignore[arg-type]
    while not transport.finish_connect():
        exchange(peer, tcp)
    exchange(peer, tcp)
    peer.tls.write(b"the answer")
    tcp.said += peer.outgoing.read()
    tcp.reads = 0
    space = memoryview(bytearray(100))
    calls, count = 0, None
    while count is None:
        before, count = tcp.reads, transport.receive_into(space)
        calls += 1
        assert tcp.reads - before <= READS_PER_CALL
    assert calls > 1
    assert bytes(space[:count]) == b"the answer"


def exchange(peer: MemoryPeer, tcp: EndlessTcp) -> None:
    """Let the peer of a handshake read its input, and answer."""
    peer.incoming.write(bytes(tcp.sent))
    tcp.sent.clear()
    with contextlib.suppress(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    tcp.said += peer.outgoing.read()


@pytest.mark.covers("SEC44")
def test_a_buffer_is_held_until_it_is_encrypted_and_counted_until_it_is_sent(
    listener: socket.socket, certificates: Certificates
) -> None:
    transport, peer = connect(tls_way(certificates), listener, SMALL_BUFFERS)
    content = b"0123456789abcdef" * (1 << 16)
    data = bytearray(content)
    taken = bytearray()

    def read() -> None:
        while len(taken) < len(content):
            taken.extend(peer.recv(1 << 16))

    with peer:
        done = transport.write([data])
        assert not done
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        before = transport.queued
        while not done:
            if transport.queued > MAX_CIPHERTEXT_BYTES:  # some of it is not encrypted yet, so it must not change
                with pytest.raises(BufferError):
                    data.clear()
            assert wait_for(transport, selectors.EVENT_WRITE)
            done = transport.flush()
            assert transport.queued <= before
            before = transport.queued
        assert transport.queued == 0
        data.clear()
        reader.join(DEADLINE)
        assert taken == content
        transport.close()


@pytest.mark.covers("SEC44")
def test_ciphertext_that_waits_counts_as_queued(listener: socket.socket, certificates: Certificates) -> None:
    transport, peer = connect(tls_way(certificates), listener, SMALL_BUFFERS)
    data = bytearray(190_000)
    with peer:
        assert not transport.write([data])
        data.clear()  # all of it is encrypted
        assert transport.queued > 50_000
        transport.close()


@pytest.mark.covers("SEC44")
def test_one_call_takes_more_than_one_call_of_the_system(listener: socket.socket, certificates: Certificates) -> None:
    settings = ConnectionSettings((), receive_buffer_bytes=1 << 20)
    transport, peer = connect(tls_way(certificates), listener, settings)
    with peer:
        peer.sendall(bytes(200_000))
        space = memoryview(bytearray(200_000))
        filled = calls = 0
        while filled < len(space):
            filled += received(transport, space[filled:])
            calls += 1
        assert calls < 200_000 // RECEIVE_BYTES
        transport.close()


def test_what_arrived_before_an_error_comes_first(listener: socket.socket, certificates: Certificates) -> None:
    transport, peer = connect(tls_way(certificates), listener, SETTINGS)
    peer.sendall(b"answer")
    with socket.socket(fileno=peer.detach()) as raw:
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record that no key has made
        space = memoryview(bytearray(100))
        assert received(transport, space) == len(b"answer")
        with pytest.raises(TlsFailed, match=r"TLS with 127.*failed: "):
            received(transport, space)
    transport.close()


def test_closing_releases_what_is_queued(listener: socket.socket, certificates: Certificates) -> None:
    transport, peer = connect(tls_way(certificates), listener, SMALL_BUFFERS)
    data = bytearray(1 << 24)
    with peer:
        assert not transport.write([data])
        transport.close()
        data.clear()
        transport.close()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_closing_notifies_the_peer(version: str, listener: socket.socket, certificates: Certificates) -> None:
    transport, peer = connect(tls_way(certificates, version), listener, SETTINGS)
    assert isinstance(peer, ssl.SSLSocket)
    with peer:
        peer.suppress_ragged_eofs = False  # type: ignore[attr-defined]
        transport.close()
        assert peer.recv(1) == b""  # without close_notify it raises SSLEOFError


def test_closing_before_the_handshake_is_done_says_nothing(listener: socket.socket, certificates: Certificates) -> None:
    transport = connector(certificates)(resolve(*listener.getsockname())[0], SETTINGS)
    accepted, _ = listener.accept()
    with accepted:
        transport.close()
        accepted.settimeout(DEADLINE)
        assert accepted.recv(1) == b""


@pytest.mark.covers("SEC43")
def test_new_connections_use_a_certificate_that_was_renewed(
    listener: socket.socket, certificates: Certificates
) -> None:
    certificates.issue("renewed", ["client@example.org"], common_name="first")
    context = server_context(certificates, ask=True)
    open_transport = connector(certificates, "renewed")
    seen = []
    for name in ("first", "second"):
        certificates.issue("renewed", ["client@example.org"], common_name=name)
        way = tls_way(certificates)._replace(
            open=open_transport, serve=lambda accepted: context.wrap_socket(accepted, server_side=True)
        )
        transport, peer = connect(way, listener, SETTINGS)
        assert isinstance(peer, ssl.SSLSocket)
        with peer:
            subject = (peer.getpeercert() or {})["subject"]
            seen.append(dict(pair for group in subject for pair in group)["commonName"])  # type: ignore[misc]
        transport.close()
    assert seen == ["first", "second"]


def test_a_rejection_is_reported_though_a_write_fails_first(
    listener: socket.socket, certificates: Certificates
) -> None:
    """A broker that refuses a certificate of TLS 1.3 says so after our handshake, and closes while we write."""
    context = server_context(certificates, ask=True)
    refused = threading.Event()

    def serve() -> None:
        accepted, _ = listener.accept()
        accepted.settimeout(DEADLINE)
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(accepted, server_side=True)
        refused.set()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    transport = connector(certificates, "stranger")(resolve(*listener.getsockname())[0], SETTINGS)
    establish(transport)
    assert refused.wait(DEADLINE)
    with pytest.raises(
        TlsFailed, match=r"rejected the certificate of .*stranger.pem \(alert unknown_ca\).*CN=mallory"
    ) as raised:
        write_until_it_fails(transport)
    assert raised.value.fatal
    server.join(DEADLINE)
    transport.close()


def test_a_reset_before_the_first_response_may_be_a_rejection_whose_alert_was_lost(
    listener: socket.socket, certificates: Certificates
) -> None:
    transport, peer = connect(tls_way(certificates), listener, SETTINGS)
    reset(peer)
    message = (
        "broke: .* after the TLS handshake and before the first response: the broker may require a client certificate"
    )
    with pytest.raises(ConnectionFailed, match=message) as raised:
        received(transport, memoryview(bytearray(10)))
    assert vars(raised.value) == {"errno": errno.ECONNRESET}
    transport.close()


def test_a_reset_after_the_first_answer_is_no_more_than_that(
    listener: socket.socket, certificates: Certificates
) -> None:
    transport, peer = connect(tls_way(certificates), listener, SETTINGS)
    peer.sendall(b"answer")
    assert received(transport, memoryview(bytearray(10))) == len(b"answer")
    reset(peer)
    with pytest.raises(ConnectionFailed, match=r"broke: Connection reset by peer$"):
        received(transport, memoryview(bytearray(10)))
    transport.close()


def reset(peer: socket.socket) -> None:
    with socket.socket(fileno=peer.detach()) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def write_until_it_fails(transport: TlsTransport) -> None:
    for _ in range(1000):
        assert wait_for(transport, selectors.EVENT_WRITE)
        transport.write([b"request"])
    pytest.fail("the peer has closed long ago")


def test_a_connector_reports_an_error_of_its_files_as_fatal(
    listener: socket.socket, certificates: Certificates
) -> None:
    open_transport = TlsConnector(TlsSettings(trust=Store(location=str(certificates.home / "absent.pem"))))
    with pytest.raises(TlsFailed, match=r"cannot read .*absent.pem on this machine: No such file") as raised:
        open_transport(resolve(*listener.getsockname())[0], SETTINGS)
    assert raised.value.fatal


@pytest.mark.parametrize("host", ["", ".example.org", "a" * 64 + ".example.org"])
def test_a_host_that_no_certificate_can_name_is_reported(
    host: str, listener: socket.socket, certificates: Certificates
) -> None:
    address = resolve(*listener.getsockname())[0]._replace(host=host)
    with pytest.raises(TlsFailed, match="is not a valid name of a TLS server") as raised:
        connector(certificates)(address, SETTINGS)
    assert raised.value.fatal


@pytest.mark.covers("SEC23")
def test_a_peer_that_resets_at_our_first_bytes_is_tried_again(
    listener: socket.socket, certificates: Certificates
) -> None:
    """A plaintext listener closes with most of our ClientHello unread, which resets the connection."""
    transport = connector(certificates)(resolve(*listener.getsockname())[0], SETTINGS)
    assert wait_for(transport, transport.wants)
    assert not transport.finish_connect()
    accepted, _ = listener.accept()
    accepted.settimeout(DEADLINE)
    assert len(accepted.recv(4)) == 4
    accepted.close()
    assert wait_for(transport, transport.wants)
    with pytest.raises(TlsFailed, match="closed the connection at the TLS ClientHello: it may be a listener") as raised:
        transport.finish_connect()
    assert not raised.value.fatal
    transport.close()
