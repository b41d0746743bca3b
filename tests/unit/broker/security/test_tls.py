"""TLS of the listener: through it as without it, half handshakes, plain text at its door, and certificates that change."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from spark_producer.broker.security.unauthenticated import LOGIN_TIMEOUT_S
from spark_producer.common.error_codes import Code
from spark_producer.protocol import API_VERSIONS, FETCH, METADATA, PRODUCE, SASL_HANDSHAKE, messages
from tests.fakes.raw_client import RawClient
from tests.unit.broker.batches import make_batch
from tests.unit.broker.security.secured_broker import HOST, PairedBroker, PairedClient, log_in, over_tls

EVERYTHING = messages.MetadataRequest()
MIB = 1024 * 1024


@pytest.fixture
def broker(files: Path) -> Iterator[LocalBroker]:
    with LocalBroker(security=BrokerSecurity("SSL", files / "broker.pem")) as running:
        running.create_topic("t", 1, {"max.message.bytes": str(8 * MIB)})
        yield running


@pytest.fixture
def client(broker: LocalBroker, files: Path) -> Iterator[RawClient]:
    with over_tls(RawClient(broker.port), files / "ca.pem") as connected:
        yield connected


@pytest.fixture
def paired(tmp_path: Path, files: Path) -> Iterator[PairedBroker]:
    made = PairedBroker(tmp_path / "data", BrokerSecurity("SSL", files / "broker.pem"))
    yield made
    made.close()


def produced(size: int) -> messages.ProduceRequest:
    partition = messages.ProducePartition(0, make_batch(size=size))
    topic = messages.ProduceTopic("t", partition_data=(partition,))
    return messages.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))


def test_large_requests_and_answers(client: RawClient) -> None:
    sizes = (100, 16_384, 70_000, 600_000, 5 * MIB)
    for offset, size in enumerate(sizes):
        (topic,) = client.ask(PRODUCE, produced(size)).responses
        assert (topic.partition_responses[0].error_code, topic.partition_responses[0].base_offset) == (0, offset)
    wanted = messages.FetchPartition(0, fetch_offset=0, partition_max_bytes=20 * MIB)
    response = client.ask(
        FETCH, messages.FetchRequest(max_bytes=20 * MIB, topics=(messages.FetchTopic("t", partitions=(wanted,)),))
    )
    records = response.responses[0].partitions[0].records
    assert records is not None
    assert len(records) == sum(sizes)


def test_many_requests_in_one_record_do_not_stall(client: RawClient) -> None:
    """The socket is not readable any more while most of them wait, decrypted, for their turn."""
    whole = b"".join(client.frame(API_VERSIONS, messages.ApiVersionsRequest()) for _ in range(300))
    assert len(whole) < 16_384
    client.socket.sendall(whole)
    assert [client.receive(API_VERSIONS)[0] for _ in range(300)] == list(range(1, 301))


def test_records_of_one_byte(client: RawClient) -> None:
    for byte in client.frame(METADATA, EVERYTHING):
        client.socket.sendall(bytes([byte]))
    assert client.receive(METADATA)[1].brokers


def test_unread_responses_wait_for_their_client(files: Path, tmp_path: Path) -> None:
    """They fill the buffers of both sides; then the broker stops reading, and continues once there is space."""
    count = 5000
    with (
        LocalBroker(security=BrokerSecurity("SSL", files / "broker.pem")) as broker,
        over_tls(RawClient(broker.port), files / "ca.pem") as client,
        over_tls(RawClient(broker.port), files / "ca.pem") as other,
    ):
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client.socket.sendall(b"".join(client.frame(API_VERSIONS, messages.ApiVersionsRequest()) for _ in range(count)))
        assert other.ask(METADATA, EVERYTHING).brokers
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)  # else each 8 kB wait for a delayed ACK
        assert [client.receive(API_VERSIONS)[0] for _ in range(count)] == list(range(1, count + 1))


@pytest.mark.covers("SEC39")
def test_a_tls_listener_never_speaks_plain_text(broker: LocalBroker, client: RawClient) -> None:
    with RawClient(broker.port) as plain:
        for written in (plain.frame(API_VERSIONS, messages.ApiVersionsRequest()), plain.frame(METADATA, EVERYTHING)):
            with RawClient(broker.port) as fresh:
                fresh.socket.sendall(written)
                received = _everything_from(fresh.socket)
            assert received[:1] in (b"", b"\x15"), "a TLS alert, and no response"
            assert len(received) <= 7
    assert client.ask(METADATA, EVERYTHING).brokers


@pytest.mark.covers("SEC39")
def test_old_protocols_of_tls_are_refused(broker: LocalBroker, files: Path) -> None:
    context = ssl.create_default_context(cafile=str(files / "ca.pem"))
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with RawClient(broker.port) as raw, pytest.raises(ssl.SSLError):
        context.wrap_socket(raw.socket, server_hostname=HOST)


@pytest.mark.covers("SEC35")
@pytest.mark.parametrize("begin", [b"", b"\x16", bytes.fromhex("160301020001"), bytes.fromhex("1603010004010000c0")])
def test_half_a_handshake_ends_in_time(paired: PairedBroker, begin: bytes) -> None:
    client = paired.connect()
    client.socket.sendall(begin)
    paired.turns()
    assert _open(client)
    paired.now += LOGIN_TIMEOUT_S
    paired.turns()
    assert client.is_closed_by_peer()


@pytest.mark.covers("SEC35")
@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x16\x03\x01\xff\xff" + bytes(100)])
def test_what_is_no_tls_closes_the_connection(
    paired: PairedBroker, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            client = paired.connect()
            client.socket.sendall(sent)
            paired.turns(3)
            assert _everything_from(client.socket)[:2] == b"\x15\x03", (
                "an alert: who speaks plain text knows what this is"
            )
    assert len(paired.clients) == 0
    assert len(caplog.records) == 1
    assert "TLS" in caplog.text


def test_the_name_in_a_clients_certificate_is_the_users(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    security = BrokerSecurity("SSL", files / "broker.pem", client_ca=files / "ca.pem")
    with caplog.at_level(logging.INFO), LocalBroker(security=security) as broker:
        with over_tls(RawClient(broker.port), files / "ca.pem", files / "client.pem") as client:
            assert client.ask(METADATA, EVERYTHING).brokers
        assert " as 'ada'" in caplog.text
        with RawClient(broker.port) as raw, pytest.raises((ssl.SSLError, ConnectionError)):
            over_tls(raw, files / "ca.pem").ask(METADATA, EVERYTHING)


def test_a_certificate_of_another_ca_is_refused(files: Path, tmp_path: Path) -> None:
    trustme.CA().issue_cert(common_name="ada").private_key_and_cert_chain_pem.write_to_path(tmp_path / "other.pem")
    security = BrokerSecurity("SSL", files / "broker.pem", client_ca=files / "ca.pem")
    with (
        LocalBroker(security=security) as broker,
        RawClient(broker.port) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        over_tls(raw, files / "ca.pem", tmp_path / "other.pem").ask(METADATA, EVERYTHING)


def test_with_sasl_the_user_is_who_logs_in(files: Path, users: Users, caplog: pytest.LogCaptureFixture) -> None:
    security = BrokerSecurity("SASL_SSL", files / "broker.pem", client_ca=files / "ca.pem", users=users)
    with (
        caplog.at_level(logging.INFO),
        LocalBroker(security=security) as broker,
        over_tls(RawClient(broker.port), files / "ca.pem", files / "client.pem") as client,
    ):
        log_in(client, "PLAIN", "bob", "bobs")
        assert client.ask(METADATA, EVERYTHING).brokers
    assert " as 'bob'" in caplog.text


@pytest.mark.covers("SEC35")
def test_the_handshake_of_tls_is_no_login(files: Path, users: Users) -> None:
    with (
        LocalBroker(security=BrokerSecurity("SASL_SSL", files / "broker.pem", users=users)) as broker,
        over_tls(RawClient(broker.port), files / "ca.pem") as client,
    ):
        client.send(METADATA, EVERYTHING)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            client.receive_frame()


def serial_of(port: int, ca: Path) -> str:
    """The serial number of the certificate that the broker shows."""
    with over_tls(RawClient(port), ca) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        found = client.socket.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


@pytest.mark.covers("SEC43")
def test_new_connections_use_new_certificates(
    ca: trustme.CA, files: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def issue() -> None:
        issued = ca.issue_cert(HOST)
        issued.private_key_pem.write_to_path(key)
        issued.cert_chain_pems[0].write_to_path(own)

    issue()
    security = BrokerSecurity("SSL", own, key)
    with LocalBroker(security=security) as broker, over_tls(RawClient(broker.port), files / "ca.pem") as old:
        before = serial_of(broker.port, files / "ca.pem")
        assert serial_of(broker.port, files / "ca.pem") == before
        issue()
        after = serial_of(broker.port, files / "ca.pem")
        assert after != before
        assert old.ask(METADATA, EVERYTHING).brokers, "open connections go on"
        with caplog.at_level(logging.WARNING):
            own.write_text("-----BEGIN CERTIFICATE-----\nhalf")
            assert serial_of(broker.port, files / "ca.pem") == after, "what cannot be used changes nothing"
            assert serial_of(broker.port, files / "ca.pem") == after
            own.unlink()
            assert serial_of(broker.port, files / "ca.pem") == after
        warnings = [line for line in caplog.messages if "cannot be used; the previous ones stay" in line]
        assert len(warnings) == 2, "one line for each change"
        shutil.copy(files / "broker.pem", own)
        shutil.copy(files / "broker.pem", key)
        assert serial_of(broker.port, files / "ca.pem") not in (before, after)


def test_a_plain_listener_never_imports_ssl() -> None:
    code = (
        "import sys; from spark_producer.broker import LocalBroker; LocalBroker().close(); "
        "print([name for name in sys.modules if name == 'ssl' or name.startswith('spark_producer.security')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_login_needs_no_tls(users: Users) -> None:
    with (
        LocalBroker(security=BrokerSecurity("SASL_PLAINTEXT", users=users)) as broker,
        RawClient(broker.port) as client,
    ):
        assert client.ask(SASL_HANDSHAKE, messages.SaslHandshakeRequest("PLAIN")).error_code == Code.NONE


def _open(client: PairedClient) -> bool:
    try:
        return client.socket.recv(1) != b""
    except BlockingIOError:
        return True


def _everything_from(sock: socket.socket) -> bytes:
    """Return the broker's bytes until it closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(4096):
            received += piece
    return received
