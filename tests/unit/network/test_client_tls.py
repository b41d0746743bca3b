"""A client over TLS: the order of set-up, bytes that no selector announces, and handshakes that fail or hang."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from spark_producer.errors import ConnectionFailed, KafkaTimeout, PyProducerError, TlsFailed
from spark_producer.network.client import READS_PER_POLL
from spark_producer.network.fatal_errors import MIN_CLOSES
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.transport import ResolvedAddress, TcpTransport
from spark_producer.protocol import METADATA, Buffer, messages
from spark_producer.security import SecuritySettings, Store, TlsSettings
from tests.fakes.client_driver import Clock, Driver
from tests.fakes.login_scripts import PLAIN_LOGIN, serve, take_login, want_login
from tests.fakes.scripted_server import DEADLINE, Peer, Script, ScriptedServer
from tests.support.certificates import Certificates
from tests.unit.network.ways import server_context

Drive = Callable[..., Driver]


def trusting(certificates: Certificates, *, login: bool = False) -> SecuritySettings:
    tls = TlsSettings(trust=Store(location=str(certificates.ca)))
    return SecuritySettings(tls=tls, sasl=PLAIN_LOGIN.sasl if login else None)


def over_tls(certificates: Certificates, then: Script, name: str = "broker") -> Script:
    context = server_context(certificates, name)

    def script(peer: Peer) -> None:
        peer.use_tls(context)
        then(peer)

    return script


def ask(driver: Driver, tag: object) -> None:
    driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=tag)


def until_hopeless(driver: Driver) -> PyProducerError | None:
    driver.poll_until(
        lambda: not driver.client.ready(-1) and driver.client.fatal_error() is not None, "the client to give up"
    )
    return driver.client.fatal_error()


@pytest.mark.covers("SEC1")
@pytest.mark.parametrize("login", [False, True], ids=["SSL", "SASL_SSL"])
def test_requests_go_over_tls_after_the_login(drive: Drive, certificates: Certificates, login: bool) -> None:
    def answers(peer: Peer) -> None:
        peer.negotiate()
        while True:
            peer.answer(peer.read(), messages.MetadataResponse())

    with ScriptedServer(over_tls(certificates, serve() if login else answers)) as server:
        driver = drive([server.address], security=trusting(certificates, login=login), max_in_flight=50)
        driver.until_ready()
        for tag in range(50):
            ask(driver, tag)
        done = driver.until_completed(50)
        assert [(row.tag, row.error) for row in done] == [(tag, None) for tag in range(50)]


@pytest.mark.covers("SEC28")
def test_a_reauthentication_goes_over_tls(drive: Drive, clock: Clock, certificates: Certificates) -> None:
    def script(peer: Peer) -> None:
        peer.negotiate()
        take_login(peer, 100_000)
        take_login(peer)
        peer.answer(peer.read(), messages.MetadataResponse())
        peer.wait_for_close()

    with ScriptedServer(over_tls(certificates, script)) as server:
        driver = drive([server.address], security=trusting(certificates, login=True))
        driver.until_ready()
        clock.advance(100)
        driver.until_ready()
        ask(driver, "tag")
        assert driver.until_completed()[0].error is None


@pytest.mark.covers("SEC44")
def test_answers_that_no_selector_announces_are_read(drive: Drive) -> None:
    """Once the client has read as often as it may in one poll, the rest of a record lies in the transport."""
    opened: list[Hoarder] = []

    def open_hoarder(address: ResolvedAddress, settings: ConnectionSettings) -> Hoarder:
        opened.append(Hoarder(address, settings))
        return opened[-1]

    count = 3 * READS_PER_POLL

    def all_at_once(peer: Peer) -> None:
        peer.negotiate()
        for request in [peer.read() for _ in range(count)]:
            peer.answer(request, messages.MetadataResponse(cluster_id="x" * 30_000))
        peer.wait_for_close()

    with ScriptedServer(all_at_once) as server:
        driver = drive([server.address], open_transport=open_hoarder, max_in_flight=count)
        driver.until_ready()
        opened[0].least = count * 30_000
        for tag in range(count):
            ask(driver, tag)
        assert [done.tag for done in driver.until_completed(count)] == list(range(count))
        assert opened[0].hidden > 0


class Hoarder:
    """A connection that takes all there is from its socket and gives it out later, as TLS gives the rest of a record.

    Nothing is given before `least` bytes are there.
    """

    def __init__(self, address: ResolvedAddress, settings: ConnectionSettings) -> None:
        self._tcp = TcpTransport(address, settings)
        self._taken = bytearray()
        self.wants = self._tcp.wants
        self.step = self._tcp.step
        self.hidden = 0
        self.least = 0

    @property
    def queued(self) -> int:
        return self._tcp.queued

    @property
    def buffered(self) -> bool:
        self.hidden += bool(self._taken)
        return bool(self._taken)

    def fileno(self) -> int:
        return self._tcp.fileno()

    def finish_connect(self) -> bool:
        return self._tcp.finish_connect()

    def write(self, buffers: Iterable[Buffer]) -> bool:
        return self._tcp.write(buffers)

    def flush(self) -> bool:
        return self._tcp.flush()

    def receive_into(self, space: memoryview) -> int | None:
        more = bytearray(1 << 20)
        while count := self._tcp.receive_into(memoryview(more)):
            self._taken += more[:count]
        if len(self._taken) < max(self.least, 1):
            return count
        self.least = 0
        given = min(len(self._taken), len(space))
        space[:given] = self._taken[:given]
        del self._taken[:given]
        return given

    def close(self) -> None:
        self._tcp.close()


@pytest.mark.covers("SEC34")
def test_a_peer_that_is_silent_in_the_handshake_is_given_up_and_the_step_is_named(
    drive: Drive, clock: Clock, certificates: Certificates
) -> None:
    with ScriptedServer(lambda peer: peer.wait_for_close()) as server:
        driver = drive([server.address], security=trusting(certificates), connection_setup_timeout=10)
        driver.client.ready(-1)
        node = driver.client._nodes.find(-1)
        assert node is not None
        transport = node.transport
        assert transport is not None
        driver.poll_until(lambda: transport.step != TcpTransport.step, "the handshake")
        clock.advance(30)
        assert driver.until_disconnected() == [-1]
        error = driver.client.last_error(-1)
        assert isinstance(error, KafkaTimeout)
        assert "the TLS handshake with" in str(error)
        assert "socket.connection.setup.timeout.ms" in str(error)
        assert driver.client.fatal_error() is None


@pytest.mark.covers("SEC21")
def test_a_peer_that_answers_without_tls_ends_every_wait(drive: Drive, certificates: Certificates) -> None:
    def http(peer: Peer) -> None:
        peer.socket.recv(10_000)
        peer.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.wait_for_close()

    with ScriptedServer(http) as server:
        error = until_hopeless(drive([server.address], security=trusting(certificates)))
        assert isinstance(error, TlsFailed)


@pytest.mark.covers("SEC27")
def test_a_certificate_that_is_not_trusted_ends_every_wait_when_all_addresses_have_failed(
    drive: Drive, certificates: Certificates
) -> None:
    addresses: list[ResolvedAddress] = []

    def twice(host: str, port: int) -> list[ResolvedAddress]:
        found = ResolvedAddress(host, port, socket.AF_INET, (host, port))
        addresses[:] = [found, found._replace(socket_address=("127.0.0.2", port))]
        return addresses

    security = SecuritySettings(tls=TlsSettings(trust=Store(location=str(certificates.other_ca))))
    with ScriptedServer(over_tls(certificates, want_login), host="0.0.0.0") as server:
        driver = drive([("127.0.0.1", server.port)], security=security, resolver=twice)
        error = until_hopeless(driver)
        assert isinstance(error, TlsFailed)
        assert "cannot be trusted" in str(error)
        assert server.accepted == 2, "both addresses were tried, and each once"


@pytest.mark.covers("SEC27")
def test_files_that_cannot_be_used_end_every_wait(drive: Drive) -> None:
    security = SecuritySettings(tls=TlsSettings(trust=Store(location="/not/there.pem")))
    driver = drive([("127.0.0.1", 1), ("127.0.0.1", 2)], security=security)
    for node in (-1, -2):
        assert driver.client.fatal_error() is None
        assert not driver.client.ready(node)
    error = driver.client.fatal_error()
    assert isinstance(error, TlsFailed)
    assert "/not/there.pem" in str(error)


@pytest.mark.covers("SEC22")
def test_no_login_over_tls_at_a_listener_that_wants_one(drive: Drive, certificates: Certificates) -> None:
    with ScriptedServer(over_tls(certificates, want_login)) as server:
        security = trusting(certificates)
        driver = drive([server.address], security=security, reconnect_backoff=0, reconnect_backoff_max=0)
        for tag in range(MIN_CLOSES):
            driver.until_ready()
            ask(driver, tag)
            driver.until_completed()
        assert "set kafka.security.protocol to SASL_SSL, and" in str(driver.client.fatal_error())


def closes(peer: Peer) -> None:
    """Close as Kafka's listeners without TLS do, which take a ClientHello for a request that is too large."""
    peer.socket.recv(65_536)


@pytest.mark.covers("SEC20")
def test_a_listener_that_keeps_closing_connections_at_our_first_message_has_no_tls(
    drive: Drive, certificates: Certificates
) -> None:
    with ScriptedServer(closes) as server:
        driver = drive([server.address], security=trusting(certificates), reconnect_backoff=0, reconnect_backoff_max=0)
        error = until_hopeless(driver)
        assert isinstance(error, TlsFailed)
        assert error.fatal
        assert "closed the connection at the TLS ClientHello" in str(error)
        assert server.accepted == MIN_CLOSES


@pytest.mark.covers("SEC20")
def test_a_listener_that_closes_two_connections_at_our_first_message_may_have_tls(
    drive: Drive, certificates: Certificates
) -> None:
    with ScriptedServer(closes, closes, over_tls(certificates, serve())) as server:
        security = trusting(certificates, login=True)
        driver = drive([server.address], security=security, reconnect_backoff=0, reconnect_backoff_max=0)
        driver.until_ready()
        assert driver.client.fatal_error() is None
        assert server.accepted == 3


@pytest.mark.covers("SEC34")
def test_a_reset_after_an_answer_ends_the_connection_and_fails_what_is_in_flight(
    drive: Drive, certificates: Certificates
) -> None:
    def resets(peer: Peer) -> None:
        peer.negotiate()
        peer.answer(peer.read(), messages.MetadataResponse())
        peer.read()
        peer.reset()

    with ScriptedServer(over_tls(certificates, resets)) as server:
        driver = drive([server.address], security=trusting(certificates))
        driver.until_ready()
        ask(driver, "a")
        assert driver.until_completed()[0].error is None  # before the reset, which would overtake it
        ask(driver, "b")
        error = driver.until_completed()[0].error
        assert isinstance(error, ConnectionFailed)
        assert "before the first answer" not in str(error)
        assert error.__cause__ is not error


@pytest.mark.covers("SEC44")
@pytest.mark.parametrize("following", ["the end", "an error"])
def test_data_after_a_response_is_not_waited_for(drive: Drive, certificates: Certificates, following: str) -> None:
    """A peer may close TLS or send an alert in one segment with a response, and leave TCP open: no selector event follows."""
    may_end = threading.Event()

    def one_segment(peer: Peer) -> None:
        tls = MemoryServer(peer.socket, server_context(certificates))
        peer.socket = cast(socket.socket, tls)
        peer.negotiate()
        request, _ = peer.read(), peer.read()
        tls.hold()
        peer.answer(request, messages.MetadataResponse())
        tls.release(tls.close_notify() if following == "the end" else b"\x17\x03\x03\x00\x20" + bytes(32))
        assert may_end.wait(DEADLINE), "the client waited for the socket"

    with ScriptedServer(one_segment) as server:
        driver = drive([server.address], security=trusting(certificates))
        driver.until_ready()
        for tag in "ab":
            ask(driver, tag)
        done = driver.until_completed(2)
        may_end.set()
        wanted = ConnectionFailed if following == "the end" else TlsFailed
        assert [(row.tag, type(row.error)) for row in done] == [("a", type(None)), ("b", wanted)]


class MemoryServer:
    """The server's side of TLS by hand, in the place of a socket: it decides what goes into one segment."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext) -> None:
        self._raw = raw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._held = False
        self._retried(self._tls.do_handshake)
        self._flush()

    def recv_into(self, space: memoryview) -> int:
        data = self._retried(lambda: self._tls.read(len(space)))
        space[: len(data)] = data
        return len(data)

    def sendall(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush()

    def hold(self) -> None:
        self._held = True

    def release(self, more: bytes) -> None:
        held = self._outgoing.read()
        self._raw.sendall(held + more)

    def close_notify(self) -> bytes:
        held = self._outgoing.read()
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        return held + self._outgoing.read()

    def shutdown(self, how: int) -> None:
        self._raw.shutdown(how)

    def close(self) -> None:
        self._raw.close()

    def _flush(self) -> None:
        if not self._held:
            self._raw.sendall(self._outgoing.read())

    def _retried(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._flush()
                self._incoming.write(self._raw.recv(65_536))
