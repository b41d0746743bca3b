"""A network that breaks and holds connections at each step of a handshake and a login, and one that stands in the middle."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from spark_producer import Producer
from spark_producer.errors import AuthenticationFailed, PyProducerError
from tests.security import ours
from tests.security.ways import WAYS, Way, login
from tests.support.proxy import Cut, Direction
from tests.support.secured_kafka import PASSWORD, SecuredKafka

SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS = 17, 36, 18
QUICKLY = {"linger.ms": "0", "reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "100"}
HANDSHAKE_RECORD = 0x16
SILENCE_MS = 3000


@pytest.mark.covers("SEC34")
@pytest.mark.parametrize("how", Cut)
@pytest.mark.parametrize("count", [1, 5, 100, 1000, 1500, 1900, 2200])
def test_a_handshake_or_login_that_is_cut_at_any_byte_is_tried_again(
    secured_4: SecuredKafka, topic: str, count: int, how: Cut
) -> None:
    secured_4.create_topic(topic, 1)
    secured_4.proxies["REAUTHTLS"].cut_after(count, Direction.TO_CLIENT, how)
    with Producer(ours.settings(WAYS["reauthenticating-tls"], secured_4, more=QUICKLY)) as producer:
        assert producer.send(topic, "0").result(ours.SECONDS).offset == 0


@pytest.mark.covers("SEC34")
@pytest.mark.parametrize("lost", ["request", "response"])
@pytest.mark.parametrize("api", [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_a_login_that_loses_a_message_is_tried_again(secured: SecuredKafka, topic: str, api: int, lost: str) -> None:
    secured.create_topic(topic, 1)
    proxy = secured.proxies["REAUTH"]
    (proxy.lose_request if lost == "request" else proxy.lose_response)(api)
    before = proxy.requests[api]
    with Producer(ours.settings(WAYS["reauthenticating"], secured, more=QUICKLY)) as producer:
        assert producer.send(topic, "0").result(ours.SECONDS).offset == 0
    assert proxy.requests[api] >= before + 2


@pytest.mark.covers("SEC34")
@pytest.mark.parametrize(
    ("listener", "step"), [("TLSPROXY", "TLS"), ("REAUTHTLS", "TLS"), ("REAUTH", "ApiVersions|SASL|login")]
)
def test_silence_ends_at_its_deadline_and_names_the_step(
    secured_4: SecuredKafka, topic: str, listener: str, step: str
) -> None:
    way = {"TLSPROXY": Way("TLSPROXY", WAYS["tls-rsa"].settings), "REAUTHTLS": WAYS["reauthenticating-tls"]}
    more = {"max.block.ms": str(SILENCE_MS), "socket.connection.setup.timeout.ms": "1000", "request.timeout.ms": "1000"}
    config = ours.settings(way.get(listener, WAYS["reauthenticating"]), secured_4, more=more)
    secured_4.proxies[listener].swallow(Direction.TO_BROKER)
    with pytest.raises(PyProducerError, match=step), ours.soon():
        ours.write(config, topic, 1)


@pytest.mark.covers("SEC38")
def test_a_broker_that_offers_less_never_gets_the_password(secured: SecuredKafka, topic: str) -> None:
    """The listener has PLAIN, to which a careless client would fall back."""
    proxy = secured.proxies["REAUTH"]
    with_scram = Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-256"))
    proxied = dict(ours.settings(with_scram, secured)) | {"bootstrap.servers": proxy.address}
    host, port = secured.address("SASLPLAIN").split(":")
    at, proxy.target = proxy.target, (host, int(port))
    before = proxy.requests[SASL_AUTHENTICATE]
    try:
        with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256"):
            ours.write(proxied, topic, 1)
    finally:
        proxy.target = at
    assert proxy.requests[SASL_AUTHENTICATE] == before


class Eavesdropper:
    """A listener that keeps what clients say first, and then answers with `said`, or closes."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        """Return its address."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        """End the thread."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(ours.SECONDS)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(0.5)
                try:
                    self.received.append(peer.recv(65_536))
                    peer.sendall(self._said)
                    while self._said and (more := peer.recv(65_536)):
                        self.received[-1] += more
                except OSError:
                    continue


ANSWERS = {
    "EOF": b"",
    "a plaintext broker's answer": bytes.fromhex("0000000a 00000001 0023 00000000"),
    "an alert": bytes.fromhex("15 0303 0002 02 28"),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a demand for STARTTLS": b"220 ready\r\n",
}


@pytest.fixture(params=ANSWERS)
def eavesdropper(request: pytest.FixtureRequest) -> Iterator[Eavesdropper]:
    """One answer of each kind that a peer without TLS may send."""
    found = Eavesdropper(ANSWERS[request.param])
    yield found
    found.close()


@pytest.mark.covers("SEC39")
def test_nothing_but_a_handshake_goes_out_to_a_peer_without_tls(
    secured_4: SecuredKafka, topic: str, eavesdropper: Eavesdropper
) -> None:
    config = ours.settings(
        Way("SASLSSL", login("SASL_SSL", "PLAIN")), secured_4, more=QUICKLY | {"max.block.ms": "1500"}
    )
    with pytest.raises(PyProducerError), ours.soon():
        ours.write(config | {"bootstrap.servers": eavesdropper.address}, topic, 1)
    assert eavesdropper.received
    assert {said[0] for said in eavesdropper.received if said} <= {HANDSHAKE_RECORD, 0x15}
    assert not any(PASSWORD.encode() in said or b"app" in said for said in eavesdropper.received)
