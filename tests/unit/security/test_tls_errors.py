"""Each thing that can be wrong with TLS, on either side, has words of its own that say what to change."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest

from spark_producer.errors import TlsFailed
from spark_producer.security import Store, TlsSettings
from spark_producer.security.contexts import client_context
from spark_producer.security.tls_errors import Peer
from spark_producer.security.tls_stream import TlsStream
from tests.support.certificates import Certificates
from tests.unit.security.memory_peer import MemoryPeer, read_some, server, shake

HOST = "localhost"
VERSIONS = pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLS 1.2", "TLS 1.3"]
)
CLOCK = "2026-05-04 03:02:01 UTC"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of brokers with each defect."""
    made = Certificates(tmp_path_factory.mktemp("odd"))
    made.issue("broker")
    made.issue("expired", days=(-30, -2))
    made.issue("early", days=(2, 30))
    made.issue("elsewhere", ["kafka.example.org", "*.example.net", "10.1.2.3"])
    made.issue("untrusted", trusted=False)
    return made


def stream(certificates: Certificates, host: str = HOST, identity: str = "", **more: object) -> TlsStream:
    trust = Store(location=str(certificates.ca))
    own = Store(location=str(certificates.file(f"{identity}.pem"))) if identity else None
    settings = TlsSettings(trust=trust, identity=own, **more)  # type: ignore[arg-type]
    peer = Peer("broker:9093", "the brokers' advertised.listeners", lambda: CLOCK)
    return TlsStream(client_context(settings, ()), host, peer=peer)


def failure(client: TlsStream, peer: MemoryPeer) -> TlsFailed:
    """Return a client's error for a connection that fails in the handshake, or at the first read after it."""
    with pytest.raises(TlsFailed) as raised:
        shake_and_read(client, peer)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.fatal) == (str(raised.value), raised.value.fatal)
    peer.turn(client)  # the peer gets an alert
    assert peer.error is not None
    return raised.value


def shake_and_read(client: TlsStream, peer: MemoryPeer) -> None:
    shake(client, peer)
    read_some(client)


@pytest.mark.covers("SEC20")
@VERSIONS
def test_an_unknown_ca_is_named_beside_what_is_trusted(odd: Certificates, version: ssl.TLSVersion) -> None:
    reported = failure(stream(odd), server(odd, "untrusted", version=version))
    assert reported.fatal
    for text in (
        "broker:9093",
        "issued by 'O=stranger, OU=another CA",
        f"not in {odd.ca} (1 certificate)",
        "truststore",
    ):
        assert text in str(reported)


@pytest.mark.covers("SEC20")
def test_a_certificate_that_signed_itself_is_one_of_an_unknown_ca(odd: Certificates, tmp_path: Path) -> None:
    peer = server(odd, "untrusted")
    client = TlsStream(client_context(TlsSettings(), ()), HOST)
    assert "that CA is not in the system's certificates. Set its certificate" in str(failure(client, peer))


@pytest.mark.covers("SEC20")
@VERSIONS
@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("expired", ["it expired on 20", " UTC; this machine's clock is "]),
        ("early", ["it is not valid before 20", "this machine's clock is "]),
    ],
)
def test_dates_are_shown_beside_our_clock(
    odd: Certificates, version: ssl.TLSVersion, name: str, texts: list[str]
) -> None:
    reported = failure(stream(odd), server(odd, name, version=version))
    assert reported.fatal
    for text in [*texts, CLOCK]:
        assert text in str(reported)


@pytest.mark.covers("SEC20")
@VERSIONS
@pytest.mark.parametrize("host", ["other.example.org", "127.0.0.2", "::1"])
def test_the_error_for_another_name_has_the_names_of_the_certificate(
    odd: Certificates, version: ssl.TLSVersion, host: str
) -> None:
    reported = failure(stream(odd, host), server(odd, "elsewhere", version=version))
    assert reported.fatal
    assert f"not for '{host}', a host of the brokers' advertised.listeners, but for " in str(reported)
    assert "kafka.example.org, *.example.net, 10.1.2.3" in str(reported)


@pytest.mark.covers("SEC21")
@VERSIONS
def test_the_error_for_a_client_without_a_certificate_says_to_set_one(
    odd: Certificates, version: ssl.TLSVersion
) -> None:
    reported = failure(stream(odd), server(odd, ask=True, version=version))
    assert reported.fatal
    assert "broker:9093 requires a client certificate, and none is set (alert " in str(reported)
    assert "ssl.keystore.location" in str(reported)


@pytest.mark.covers("SEC21")
@VERSIONS
def test_a_certificate_that_is_refused_is_described(
    odd: Certificates, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    odd.issue("client", ["c@example.org"], common_name="mallory", trusted=False)
    reported = failure(stream(odd, identity="client"), server(odd, ask=True, version=version))
    assert reported.fatal
    assert f"broker:9093 rejected the certificate of {odd.file('client.pem')} (alert unknown_ca): 'O=" in str(reported)
    assert "CN=mallory', issued by 'O=stranger, OU=another CA', valid until 20" in str(reported)


@pytest.mark.covers("SEC22")
def test_no_version_in_common_names_ours(odd: Certificates) -> None:
    reported = failure(stream(odd, protocols=("TLSv1.2",)), server(odd, version=ssl.TLSVersion.TLSv1_3))
    assert reported.fatal
    assert "(alert protocol_version): this client has TLSv1.2 with the default ones (ssl.enabled.protocols" in str(
        reported
    )


@pytest.mark.covers("SEC22")
def test_no_cipher_suite_in_common_names_ours(odd: Certificates) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    peer = server(odd, version=ssl.TLSVersion.TLSv1_2, suites="ECDHE-ECDSA-AES128-GCM-SHA256")
    reported = failure(stream(odd, cipher_suites=(suite,)), peer)
    assert reported.fatal
    assert f"(alert handshake_failure): this client has TLSv1.2 with {suite}" in str(reported)


@pytest.mark.covers("SEC23")
def test_an_end_at_our_first_bytes_may_be_a_plaintext_listener_and_is_tried_again(odd: Certificates) -> None:
    client = stream(odd)
    assert not client.handshake()
    client.feed_eof()
    with pytest.raises(
        TlsFailed, match="broker:9093 closed the connection at the TLS ClientHello: it may be a listener"
    ) as raised:
        client.handshake()
    assert not raised.value.fatal


@pytest.mark.covers("SEC23")
def test_an_end_in_the_midst_of_the_handshake_is_tried_again(odd: Certificates) -> None:
    client, peer = stream(odd), server(odd, version=ssl.TLSVersion.TLSv1_2)
    assert not client.handshake()
    peer.turn(client)
    assert not client.handshake()
    client.feed_eof()
    with pytest.raises(TlsFailed, match="broker:9093 closed the connection during the TLS handshake") as raised:
        client.handshake()
    assert not raised.value.fatal


@pytest.mark.covers("SEC23")
def test_a_goodbye_in_the_handshake_is_an_end_like_another(odd: Certificates) -> None:
    client = stream(odd)
    assert not client.handshake()
    client.feed(b"\x15\x03\x03\0\x02\x01\0")  # close_notify, as a broker sends it that stops
    with pytest.raises(TlsFailed, match="broker:9093 closed the connection during the TLS handshake") as raised:
        client.handshake()
    assert not raised.value.fatal


@pytest.mark.covers("SEC23")
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", bytes(8)])
def test_a_peer_that_does_not_speak_tls_is_reported_as_such(odd: Certificates, answer: bytes) -> None:
    client = stream(odd)
    assert not client.handshake()
    client.feed(answer)
    with pytest.raises(TlsFailed, match="broker:9093 is not TLS: the port expects plain text") as raised:
        client.handshake()
    assert raised.value.fatal


def test_an_alert_after_the_first_answer_ends_the_connection_and_no_more(odd: Certificates) -> None:
    client, peer = stream(odd), server(odd)
    shake(client, peer)
    peer.send(b"answer", client)
    assert read_some(client) == b"answer"
    peer.incoming.write(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record that no key has made
    with pytest.raises(ssl.SSLError):
        peer.tls.read(1)
    client.feed(peer.outgoing.read())
    with pytest.raises(TlsFailed, match=r"broker:9093 ended the TLS connection \(alert bad_record_mac\)") as raised:
        read_some(client)
    assert not raised.value.fatal
    with pytest.raises(TlsFailed):
        read_some(client)


def test_a_write_after_an_alert_after_the_response_reports_the_alert(odd: Certificates) -> None:
    client, peer = stream(odd), server(odd)
    shake(client, peer)
    peer.tls.write(b"answer")
    peer.incoming.write(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ssl.SSLError):
        peer.tls.read(1)
    client.feed(peer.outgoing.read())
    assert read_some(client) == b"answer"
    with pytest.raises(TlsFailed, match=r"broker:9093 ended the TLS connection \(alert bad_record_mac\)"):
        client.write(b"the next request")


def test_what_arrived_before_an_alert_is_read_first(odd: Certificates) -> None:
    client, peer = stream(odd), server(odd)
    shake(client, peer)
    peer.send(b"answer", client)
    peer.incoming.write(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ssl.SSLError):
        peer.tls.read(1)
    client.feed(peer.outgoing.read())
    assert read_some(client) == b"answer"
    assert client.buffered
    with pytest.raises(TlsFailed):
        read_some(client)
