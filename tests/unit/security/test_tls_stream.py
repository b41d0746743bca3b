"""A TLS stream in memory: any pieces of ciphertext, both sides, ends with and without close_notify."""

from __future__ import annotations

import ssl

import pytest

from spark_producer.errors import TlsFailed
from spark_producer.security import Store, TlsSettings
from spark_producer.security.contexts import client_context, server_context
from spark_producer.security.tls_errors import Peer
from spark_producer.security.tls_stream import TlsStream
from tests.support.certificates import Certificates
from tests.unit.security.memory_peer import MemoryPeer, read_some, server, shake

VERSIONS = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])


def client_stream(certificates: Certificates, version: str = "TLSv1.3", identity: str = "") -> TlsStream:
    own = Store(location=str(certificates.file(f"{identity}.pem"))) if identity else None
    settings = TlsSettings(trust=Store(location=str(certificates.ca)), identity=own, protocols=(version,))
    return TlsStream(client_context(settings, ()), "localhost")


def python_client(certificates: Certificates, identity: str = "") -> MemoryPeer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.ca)
    if identity:
        context.load_cert_chain(certificates.file(f"{identity}.pem"))
    return MemoryPeer(context, "localhost")


def server_stream(certificates: Certificates, ask: bool) -> TlsStream:
    files = str(certificates.file("broker.crt")), str(certificates.file("broker.key"))
    context = server_context(*files, str(certificates.ca) if ask else None)
    return TlsStream(context, None, server_side=True, peer=Peer("the client at 10.0.0.1:5"))


@pytest.mark.covers("SEC33")
@VERSIONS
def test_ciphertext_may_come_byte_by_byte(certificates: Certificates, version: str) -> None:
    client, peer = client_stream(certificates, version), server(certificates)
    pieces: list[bytes] = []
    while not (client.established and peer.established):
        client.handshake()
        peer.incoming.write(client.take_outgoing())
        if not peer.established:
            try:
                peer.tls.do_handshake()
                peer.established = True
            except ssl.SSLWantReadError:
                pieces.clear()
        for byte in peer.outgoing.read():
            client.feed(bytes((byte,)))
            if not client.established:
                client.handshake()
    peer.tls.write(b"answer")
    found = b""
    for byte in peer.outgoing.read():
        assert read_some(client) is None
        assert not client.buffered
        client.feed(bytes((byte,)))
        found = read_some(client) or b"" if client.buffered else b""
        if found:
            break
    assert found == b"answer"


@VERSIONS
def test_large_plaintext_comes_out_as_it_went_in(certificates: Certificates, version: str) -> None:
    client, peer = client_stream(certificates, version), server(certificates)
    shake(client, peer)
    content = bytes(range(256)) * 4000
    client.write(content)
    peer.turn(client)
    assert peer.read() == content
    peer.send(content, client)
    assert read_some(client, len(content)) == content


def test_one_read_takes_all_records_and_says_whether_more_is_there(certificates: Certificates) -> None:
    client, peer = client_stream(certificates), server(certificates)
    shake(client, peer)
    for number in range(100):
        peer.send(bytes((number,)), client)
    assert client.buffered
    assert read_some(client, 60) == bytes(range(60))
    assert client.buffered
    assert read_some(client, 60) == bytes(range(60, 100))
    assert not client.buffered
    assert read_some(client) is None


@pytest.mark.parametrize("polite", [True, False], ids=["close_notify", "silent"])
def test_an_end_is_0_with_and_without_close_notify(certificates: Certificates, polite: bool) -> None:
    """Kafka's brokers close without close_notify."""
    client, peer = client_stream(certificates), server(certificates)
    shake(client, peer)
    peer.send(b"last", client)
    if polite:
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.unwrap()
        client.feed(peer.outgoing.read())
    else:
        client.feed_eof()
    assert read_some(client, 4) == b"last"
    assert client.buffered
    assert read_some(client) == b""
    assert read_some(client) == b""


def test_closing_says_so_to_the_peer(certificates: Certificates) -> None:
    client, peer = client_stream(certificates), server(certificates)
    shake(client, peer)
    client.close()
    peer.incoming.write(client.take_outgoing())
    assert peer.tls.read(1) == b""


def test_closing_a_stream_that_failed_or_never_began_raises_nothing(certificates: Certificates) -> None:
    client = client_stream(certificates)
    client.close()
    client = client_stream(certificates)
    client.handshake()
    client.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(TlsFailed):
        client.handshake()
    client.close()


@pytest.mark.parametrize(("ask", "name"), [(True, "alice"), (False, None)])
def test_a_server_knows_the_name_of_a_client_whose_certificate_it_has_checked(
    certificates: Certificates, ask: bool, name: str | None
) -> None:
    stream, client = server_stream(certificates, ask), python_client(certificates, "client")
    shake(stream, client)
    assert stream.peer_name() == name
    client.send(b"request", stream)
    assert read_some(stream) == b"request"
    stream.write(b"answer")
    client.turn(stream)
    assert client.read() == b"answer"


@pytest.mark.parametrize("identity", ["", "stranger"])
def test_a_server_names_the_client_that_it_refuses(certificates: Certificates, identity: str) -> None:
    stream, client = server_stream(certificates, True), python_client(certificates, identity)
    with pytest.raises(TlsFailed, match=r"TLS with the client at 10\.0\.0\.1:5 failed: ") as raised:
        shake(stream, client)
    assert not raised.value.fatal


def test_a_server_is_not_hurt_by_what_is_no_tls(certificates: Certificates) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x16\x03\x01\xff\xff" + bytes(70000)):
        stream = server_stream(certificates, False)
        stream.feed(data)
        with pytest.raises(TlsFailed, match="the client at"):
            stream.handshake()


def test_a_client_without_tls_gets_the_alert_of_kafkas_brokers(certificates: Certificates) -> None:
    stream = server_stream(certificates, False)
    stream.feed(bytes.fromhex("0000001700120004000000010000"))  # how ApiVersions begins
    with pytest.raises(TlsFailed, match=r"the client at 10\.0\.0\.1:5 does not use TLS \(WRONG_VERSION_NUMBER\)"):
        stream.handshake()
    assert stream.take_outgoing() == bytes.fromhex("15030300020250")
