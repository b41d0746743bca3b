"""A peer that repeats the secret that it was sent: no error and no log shows it, in whatever coding and wherever it is cut."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Iterator

import pytest

from spark_producer import Producer
from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from spark_producer.broker.security import mechanisms
from spark_producer.common.escape import MAX_LENGTH
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, broker_error
from spark_producer.network.auth.token_endpoint import fetch_token
from spark_producer.protocol import Connection
from spark_producer.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from spark_producer.security.sasl_login import sasl_login
from spark_producer.security.settings import OidcSettings, SaslSettings
from spark_producer.security.token import Token
from tests.fakes.token_endpoint import Reply, TokenEndpoint
from tests.support.secret_codings import CODINGS, PASSWORD, USER, pieces, shows
from tests.unit.protocol.test_connection import answer, asked, feed, versions_body

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjE3fQ.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"
VERSIONS = {3: (0, 13), 17: (0, 1), 18: (0, 4), 36: (0, 2)}


class OneToken:
    """A source with one token."""

    def token(self) -> Token:
        return Token(Secret(TOKEN))

    def refused(self, token: Token) -> bool:
        return False

    def accepted(self, token: Token) -> None:
        """Do nothing."""


def refused_login(mechanism: str, secret: str, answers: list[SaslAuthenticateResponse]) -> str:
    """The error of a login whose steps are answered so; the last answer is the refusal."""
    sasl = SaslSettings(mechanism, USER, Secret(secret))
    connection: Connection[str] = Connection("lab", credentials=sasl_login(sasl, [], tokens=OneToken()))
    connection.start()
    for body in (versions_body(VERSIONS), SaslHandshakeResponse(0, (mechanism,)), *answers):
        feed(connection, answer(asked(connection)[0], body))
    assert isinstance(connection.fault, AuthenticationFailed)
    return str(connection.fault)


def refusal(text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(58, text, b"", 0)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_refused_password_is_not_shown(mechanism: str, coding: str) -> None:
    encoded = CODINGS[coding](PASSWORD)
    assert not shows(refused_login(mechanism, PASSWORD, [refusal(f"'{encoded}' is wrong")]), encoded)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_refused_token_is_not_shown(coding: str) -> None:
    encoded = CODINGS[coding](TOKEN)
    for reason in (json.dumps({"status": f"no {encoded}"}), json.dumps({"status": "x", "scope": encoded}), encoded):
        said = SaslAuthenticateResponse(0, "", reason.encode(), 0)
        assert not shows(refused_login("OAUTHBEARER", TOKEN, [said, refusal(encoded)]), encoded)


@pytest.mark.parametrize("coding", ["plain", "base64"])
def test_scram_shows_no_password_of_the_error_within_its_messages(coding: str) -> None:
    encoded = CODINGS[coding]("pass.word-of-ann")
    said = SaslAuthenticateResponse(0, "", f"e=no {encoded}".encode(), 0)
    assert not shows(refused_login("SCRAM-SHA-256", "pass.word-of-ann", [said]), encoded)


@pytest.mark.parametrize("length", range(MAX_LENGTH - 20, MAX_LENGTH + 1))
def test_no_piece_is_shown_of_a_password_through_which_a_message_is_cut(length: int) -> None:
    shown = refused_login("PLAIN", "Q7ZJXVWK2q9#", [refusal("." * length + "Q7ZJXVWK2q9#" + "." * 400)])
    assert not pieces("Q7ZJXVWK2q9#", 3) & pieces(shown, 3)


def test_what_a_broker_says_later_shows_no_password_either() -> None:
    refused_login("PLAIN", PASSWORD, [refusal("no")])
    for encoded in (coding(PASSWORD) for coding in CODINGS.values()):
        assert not shows(str(broker_error(42, "topic 't'", f"policy: {encoded} is wrong")), encoded)


@pytest.fixture
def endpoint() -> Iterator[Callable[[bytes], TokenEndpoint]]:
    made: list[TokenEndpoint] = []

    def make(body: bytes) -> TokenEndpoint:
        made.append(TokenEndpoint(lambda _: Reply(401, (body,)), None))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("urlencode", [False, True])
@pytest.mark.parametrize("coding", CODINGS)
def test_a_token_endpoint_shows_no_secret_of_the_client(
    coding: str, urlencode: bool, endpoint: Callable[[bytes], TokenEndpoint]
) -> None:
    encoded = CODINGS[coding](PASSWORD)
    body = json.dumps({"error": f"no {encoded}", "error_description": "." * 290 + encoded}).encode()
    oidc = OidcSettings(
        endpoint(body).url, USER, Secret(PASSWORD), urlencode_header=urlencode, connect_timeout=20, read_timeout=20
    )
    with pytest.raises(AuthenticationFailed) as refused:
        fetch_token(oidc, (), now=0.0)
    assert "HTTP 401" in str(refused.value)
    assert not shows(str(refused.value), encoded)


def test_a_producer_and_its_log_show_no_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def echo(_users: Users) -> Generator[bytes, bytes, None]:
        password = (yield b"").split(b"\0")[2].decode()
        raise mechanisms.AuthenticationRefused(
            f"'{password}', {CODINGS['base64 of PLAIN'](password)}\x1b[31m\u202e is wrong"
        )

    monkeypatch.setattr(mechanisms, "plain", echo)
    caplog.set_level(logging.DEBUG, "pyproducer")
    security = BrokerSecurity("SASL_PLAINTEXT", users=Users({USER: "pw"}), mechanisms=("PLAIN",))
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    with LocalBroker(security=security) as broker:
        options |= {"bootstrap.servers": broker.bootstrap_servers, "sasl.password": PASSWORD}
        with pytest.raises(AuthenticationFailed) as refused, Producer(options) as producer:
            producer.send("t", b"v").result(20)
    said = str(refused.value) + "".join(record.getMessage() for record in caplog.records if record.name == "pyproducer")
    assert r"'***', ***\x1b[31m\u202e is wrong" in said
    assert not any(shows(said, coding(PASSWORD)) for coding in CODINGS.values())
