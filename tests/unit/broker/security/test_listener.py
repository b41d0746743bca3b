"""The secure listener as its peers meet it: what hostile ones may do, and when others are served. The clock is set by hand."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from spark_producer.broker.security.unauthenticated import (
    LOGIN_TIMEOUT_S,
    MAX_FRAME_BYTES,
    MAX_UNAUTHENTICATED,
    MIN_DISPLACED_AGE_S,
    REFUSAL_DELAY_S,
)
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    API_VERSIONS,
    CREATE_TOPICS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    AnyApi,
    messages,
)
from tests.fakes.raw_client import RawClient
from tests.unit.broker.security.secured_broker import PASSWORD, PairedBroker, PairedClient, log_in, over_tls

HANDSHAKE = messages.SaslHandshakeRequest("PLAIN")
RIGHT = messages.SaslAuthenticateRequest(b"\0ada\0" + PASSWORD.encode())
WRONG = messages.SaslAuthenticateRequest(b"\0ada\0wrong")
VERSIONS = messages.ApiVersionsRequest()
EVERYTHING = messages.MetadataRequest()


@pytest.fixture
def paired(tmp_path: Path, users: Users) -> Iterator[PairedBroker]:
    made = PairedBroker(tmp_path / "data", BrokerSecurity("SASL_PLAINTEXT", users=users, max_session_ms=60_000))
    yield made
    made.close()


def logged_in(broker: PairedBroker, peer: str = "10.0.0.1:5000") -> PairedClient:
    client = broker.connect(peer)
    client.socket.sendall(client.frame(SASL_HANDSHAKE, HANDSHAKE) + client.frame(SASL_AUTHENTICATE, RIGHT))
    broker.turns()
    client.receive(SASL_HANDSHAKE)
    assert client.receive(SASL_AUTHENTICATE)[1].error_code == Code.NONE
    return client


def is_served(broker: PairedBroker, client: PairedClient) -> bool:
    client.send(METADATA, EVERYTHING)
    broker.turns()
    try:
        client.receive(METADATA)
    except ConnectionError:
        return False
    return True


def is_open(client: PairedClient) -> bool:
    """Return whether the broker has neither sent anything nor closed."""
    try:
        assert client.socket.recv(1) == b"", "the broker sent bytes"
    except BlockingIOError:
        return True
    return False


def test_a_whole_login_in_one_write_is_answered_in_order(paired: PairedBroker) -> None:
    client = paired.connect()
    client.socket.sendall(
        client.frame(API_VERSIONS, VERSIONS)
        + client.frame(SASL_HANDSHAKE, HANDSHAKE)
        + client.frame(SASL_AUTHENTICATE, RIGHT)
        + client.frame(METADATA, EVERYTHING)
    )
    paired.turns()
    apis: list[AnyApi] = [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA]
    assert [client.receive(api)[0] for api in apis] == [1, 2, 3, 4]


def test_a_login_may_come_one_byte_at_a_time(paired: PairedBroker) -> None:
    client = paired.connect()
    for byte in client.frame(SASL_HANDSHAKE, HANDSHAKE) + client.frame(SASL_AUTHENTICATE, RIGHT):
        client.socket.sendall(bytes([byte]))
        paired.turns(2)
    assert client.receive(SASL_HANDSHAKE)[1].error_code == Code.NONE
    assert client.receive(SASL_AUTHENTICATE)[1].error_code == Code.NONE


@pytest.mark.covers("SEC35")
@pytest.mark.parametrize(
    "sent",
    [
        lambda client: client.frame(METADATA, EVERYTHING),
        lambda client: client.frame(PRODUCE, messages.ProduceRequest()),
        lambda client: client.frame(SASL_AUTHENTICATE, RIGHT),
        lambda client: client.frame(API_VERSIONS, VERSIONS) + client.frame(METADATA, EVERYTHING),
        lambda client: client.frame(SASL_HANDSHAKE, HANDSHAKE) + client.frame(METADATA, EVERYTHING),
        lambda client: client.frame(SASL_HANDSHAKE, HANDSHAKE) + client.frame(API_VERSIONS, VERSIONS),
        lambda client: 2 * client.frame(API_VERSIONS, VERSIONS),
        lambda client: 2 * client.frame(SASL_HANDSHAKE, HANDSHAKE),
    ],
    ids=[
        "metadata",
        "produce",
        "authenticate",
        "versions, metadata",
        "handshake, metadata",
        "handshake, versions",
        "versions twice",
        "handshake twice",
    ],
)
def test_a_message_out_of_order_closes_the_connection_without_a_response(
    paired: PairedBroker, sent: Callable[[PairedClient], bytes]
) -> None:
    client, other = paired.connect(), logged_in(paired)
    written = sent(client)
    client.socket.sendall(written)
    paired.turns()
    (first,) = struct.unpack(">i", written[:4])
    if first + 4 < len(written):
        client.receive_frame()  # the legal part has a response
    assert is_open(client), "the refusal has its pause"
    paired.now += REFUSAL_DELAY_S
    paired.turns()
    assert client.is_closed_by_peer()
    assert is_served(paired, other)


@pytest.mark.covers("SEC35")
@pytest.mark.parametrize("size", [2**31 - 1, -1, -(2**31), MAX_FRAME_BYTES + 1])
def test_frames_of_impossible_sizes_close_the_connection(paired: PairedBroker, size: int) -> None:
    client = paired.connect()
    client.socket.sendall(struct.pack(">i", size))
    paired.turns()
    assert client.is_closed_by_peer()
    assert paired.clients.budget.held == 0


@pytest.mark.covers("SEC35")
def test_after_the_login_frames_may_be_large(paired: PairedBroker) -> None:
    client = logged_in(paired)
    client.socket.sendall(struct.pack(">i", MAX_FRAME_BYTES + 1))
    paired.turns()
    assert is_open(client)


@pytest.mark.covers("SEC35")
def test_a_large_request_right_after_the_login_counts_as_authenticated(paired: PairedBroker) -> None:
    client = paired.connect()
    login = client.frame(SASL_HANDSHAKE, HANDSHAKE) + client.frame(SASL_AUTHENTICATE, RIGHT)
    client.socket.sendall(login + struct.pack(">i", MAX_FRAME_BYTES + 1))
    paired.turns()
    client.receive(SASL_HANDSHAKE)
    client.receive(SASL_AUTHENTICATE)
    client.socket.sendall(b"more")
    paired.turns()
    assert is_open(client)


@pytest.mark.covers("SEC35")
def test_who_is_silent_for_ten_seconds_is_closed(paired: PairedBroker) -> None:
    known = logged_in(paired)
    silent, busy = paired.connect(), paired.connect()
    paired.now += LOGIN_TIMEOUT_S - 0.1
    busy.socket.sendall(busy.frame(SASL_HANDSHAKE, HANDSHAKE)[:-1])
    paired.turns()
    assert is_open(silent)
    assert paired.clients.next_deadline() == pytest.approx(paired.now + 0.1)
    paired.now += 0.1
    paired.turns()
    assert silent.is_closed_by_peer()
    assert busy.is_closed_by_peer(), "bytes now and then are no login"
    assert is_served(paired, known)


@pytest.mark.covers("SEC35")
def test_a_hundred_strangers_at_a_time(paired: PairedBroker) -> None:
    known = logged_in(paired)
    strangers = [paired.connect() for _ in range(MAX_UNAUTHENTICATED)]
    refused = paired.connect()
    assert refused.is_closed_by_peer()
    first = strangers[0]
    first.socket.sendall(first.frame(SASL_HANDSHAKE, HANDSHAKE) + first.frame(SASL_AUTHENTICATE, RIGHT))
    paired.turns()
    first.receive(SASL_HANDSHAKE)
    first.receive(SASL_AUTHENTICATE)
    next_one = paired.connect()
    assert is_open(next_one), "another connection is allowed again"
    assert is_open(strangers[-1])
    assert is_served(paired, known)
    strangers[1].socket.close()
    paired.turns()
    assert is_open(paired.connect())


def test_one_host_cannot_keep_all_others_from_logging_in(paired: PairedBroker) -> None:
    strangers = [paired.connect("10.0.0.1:5000") for _ in range(MAX_UNAUTHENTICATED)]
    assert is_served(paired, logged_in(paired, "10.0.0.2:5000"))
    assert strangers[0].is_closed_by_peer()
    assert all(is_open(each) for each in strangers[1:])


def test_silent_connections_do_not_keep_others_of_their_host_from_logging_in(paired: PairedBroker) -> None:
    """All clients on the loopback address are of one host."""
    strangers = [paired.connect("127.0.0.1:5000") for _ in range(MAX_UNAUTHENTICATED)]
    assert paired.connect("127.0.0.1:5000").is_closed_by_peer(), "they have had no time to log in"
    paired.now += MIN_DISPLACED_AGE_S
    assert is_served(paired, logged_in(paired, "127.0.0.1:5000"))
    assert strangers[0].is_closed_by_peer()
    assert all(is_open(each) for each in strangers[1:])


@pytest.mark.covers("SEC35")
def test_a_refusal_comes_after_a_pause_in_which_others_are_served(paired: PairedBroker) -> None:
    client, other = paired.connect(), logged_in(paired)
    client.socket.sendall(client.frame(SASL_HANDSHAKE, HANDSHAKE) + client.frame(SASL_AUTHENTICATE, WRONG))
    paired.turns()
    client.receive(SASL_HANDSHAKE)
    assert is_served(paired, other)
    paired.now += REFUSAL_DELAY_S - 0.001
    paired.turns()
    assert is_open(client)
    paired.now += 0.001
    paired.turns()
    response = client.receive(SASL_AUTHENTICATE)[1]
    assert response.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()


def test_a_disabled_mechanism_is_refused_with_the_enabled_ones(paired: PairedBroker) -> None:
    client = paired.connect()
    client.send(SASL_HANDSHAKE, messages.SaslHandshakeRequest("GSSAPI"))
    paired.turns()
    paired.now += REFUSAL_DELAY_S
    paired.turns()
    response = client.receive(SASL_HANDSHAKE)[1]
    on = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    assert (response.error_code, tuple(response.mechanisms)) == (Code.UNSUPPORTED_SASL_MECHANISM, on)
    assert client.is_closed_by_peer()


@pytest.mark.covers("SEC35")
def test_peers_that_are_refused_do_not_fill_the_log(paired: PairedBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            client = paired.connect(f"10.0.0.{number % 2}:{number}")
            client.socket.sendall(client.frame(SASL_HANDSHAKE, HANDSHAKE) + client.frame(SASL_AUTHENTICATE, WRONG))
            paired.turns()
            paired.now += REFUSAL_DELAY_S
            paired.turns()
            client.socket.close()
    assert len(caplog.records) == 2
    assert "its login by PLAIN failed" in caplog.text
    assert "wrong" not in caplog.text


@pytest.mark.covers("SEC35")
def test_the_name_of_a_user_adds_no_line_to_the_log_and_does_not_fill_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    security = BrokerSecurity("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",))
    with caplog.at_level(logging.INFO), LocalBroker(security=security) as broker, RawClient(broker.port) as client:
        log_in(client, "OAUTHBEARER", "ada\nWARNING all is lost \x1b[31m" + "x" * 10_000)
    assert "as 'ada\\nWARNING all is lost \\x1b[31mx" in caplog.text
    assert max(len(record.getMessage()) for record in caplog.records) < 500


def test_the_request_after_the_end_of_a_session_is_not_processed(paired: PairedBroker) -> None:
    client, other = logged_in(paired), logged_in(paired)
    paired.now += 60.0
    client.send(CREATE_TOPICS, messages.CreateTopicsRequest((messages.CreatableTopic("made", 1, 1),)))
    paired.turns()
    paired.now += REFUSAL_DELAY_S
    paired.turns()
    assert client.is_closed_by_peer()
    assert [topic.name for topic in paired.store] == []
    other.socket.sendall(other.frame(SASL_HANDSHAKE, HANDSHAKE) + other.frame(SASL_AUTHENTICATE, RIGHT))
    paired.turns()
    other.receive(SASL_HANDSHAKE)
    response = other.receive(SASL_AUTHENTICATE)[1]
    assert (response.error_code, response.session_lifetime_ms) == (Code.NONE, 60_000), "a login after it is taken"
    assert is_served(paired, other)


def test_a_second_login_too_early_is_answered_and_the_session_goes_on(paired: PairedBroker) -> None:
    client = logged_in(paired)
    both = client.frame(SASL_HANDSHAKE, HANDSHAKE) + client.frame(SASL_AUTHENTICATE, RIGHT)
    client.socket.sendall(both + both)
    paired.turns()
    codes = []
    for _ in range(2):
        codes += [client.receive(SASL_HANDSHAKE)[1].error_code, client.receive(SASL_AUTHENTICATE)[1].error_code]
    assert codes == [Code.NONE, Code.NONE, Code.ILLEGAL_SASL_STATE, Code.ILLEGAL_SASL_STATE]
    assert is_served(paired, client)


def test_requests_and_a_login_in_one_write_are_answered_in_order(paired: PairedBroker) -> None:
    client = logged_in(paired)
    client.socket.sendall(
        client.frame(METADATA, EVERYTHING)
        + client.frame(SASL_HANDSHAKE, HANDSHAKE)
        + client.frame(SASL_AUTHENTICATE, RIGHT)
        + client.frame(METADATA, EVERYTHING)
    )
    paired.turns()
    apis: list[AnyApi] = [METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA]
    assert [client.receive(api)[0] for api in apis] == [3, 4, 5, 6]


def test_a_login_where_there_is_none_is_out_of_place() -> None:
    with LocalBroker() as broker, RawClient(broker.port) as client:
        listed = {
            key.api_key: (key.min_version, key.max_version) for key in client.ask(API_VERSIONS, VERSIONS).api_keys
        }
        assert (listed[SASL_HANDSHAKE.key], listed[SASL_AUTHENTICATE.key]) == ((0, 1), (0, 2))
        refused = client.ask(SASL_HANDSHAKE, HANDSHAKE)
        assert (refused.error_code, refused.mechanisms) == (Code.ILLEGAL_SASL_STATE, ())
        assert client.ask(SASL_AUTHENTICATE, RIGHT).error_code == Code.ILLEGAL_SASL_STATE
        assert client.ask(METADATA, EVERYTHING).brokers


@pytest.mark.covers("SEC39")
def test_tls_at_a_listener_that_speaks_plain_text_gets_nothing(users: Users) -> None:
    with (
        LocalBroker(security=BrokerSecurity("SASL_PLAINTEXT", users=users)) as broker,
        RawClient(broker.port) as client,
    ):
        client.socket.sendall(bytes.fromhex("16030100c4010000c003"))
        assert client.is_closed_by_peer()


@pytest.mark.covers("SEC39")
def test_plain_text_at_a_listener_of_tls_gets_the_alert_of_kafkas_brokers(users: Users, files: Path) -> None:
    with (
        LocalBroker(security=BrokerSecurity("SASL_SSL", files / "broker.pem", users=users)) as broker,
        RawClient(broker.port) as client,
    ):
        client.socket.sendall(bytes.fromhex("000000110012000400000001000361646100"))
        assert client.socket.recv(100) == bytes.fromhex("15030300020250")
        assert client.is_closed_by_peer()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_every_mechanism_through_tls(users: Users, files: Path, mechanism: str) -> None:
    on = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    security = BrokerSecurity("SASL_SSL", files / "broker.pem", users=users, mechanisms=on)
    with LocalBroker(security=security) as broker, over_tls(RawClient(broker.port), files / "ca.pem") as client:
        log_in(client, mechanism)
        assert client.ask(METADATA, EVERYTHING).brokers


@pytest.mark.covers("SEC40")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_broker_shows_no_password(mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a right nor a wrong one, in no line of the log and no `repr`."""
    security = BrokerSecurity("SASL_PLAINTEXT", users=Users({"ada": "canary-right"}))
    with caplog.at_level(logging.DEBUG), LocalBroker(security=security) as broker:
        with RawClient(broker.port) as client:
            log_in(client, mechanism, "ada", "canary-right")
            assert client.ask(METADATA, EVERYTHING).brokers
        with RawClient(broker.port) as client, pytest.raises(AssertionError):
            log_in(client, mechanism, "ada", "canary-wrong")
        shown = f"{broker!r} {security!r} {vars(security)!r}"
    assert "its login by" in caplog.text
    assert "canary" not in caplog.text + shown
