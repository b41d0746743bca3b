"""The settings of the secure listener: what contradicts itself is refused, with the way out."""

from __future__ import annotations

from typing import Any

import pytest

from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from spark_producer.errors import ConfigError, TlsFailed

SOME = Users({"ada": "pw"})


def test_by_default_everybody_may_connect_in_clear() -> None:
    security = BrokerSecurity()
    assert (security.protocol, security.tls, security.sasl) == ("PLAINTEXT", False, False)


def test_a_protocol_is_written_in_any_case_and_the_strongest_mechanism_comes_first() -> None:
    security = BrokerSecurity("sasl_ssl", certificate="x.pem", users=SOME)
    assert (security.protocol, security.tls, security.sasl) == ("SASL_SSL", True, True)
    assert security.mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "TLS"}, "security protocol 'TLS'"),
        ({"protocol": "SSL"}, "needs a certificate"),
        ({"protocol": "SASL_SSL", "users": SOME}, "needs a certificate"),
        ({"protocol": "SASL_PLAINTEXT", "users": SOME, "certificate": "x"}, "of no use with SASL_PLAINTEXT"),
        ({"key": "x"}, "of no use with PLAINTEXT"),
        ({"client_ca": "x"}, "of no use with PLAINTEXT"),
        ({"users": SOME}, "SASL_SSL"),
        ({"protocol": "SSL", "certificate": "x", "mechanisms": ("PLAIN",)}, "of no use with SSL"),
        ({"max_session_ms": 1}, "of no use with PLAINTEXT"),
        ({"protocol": "SASL_PLAINTEXT", "users": SOME, "mechanisms": ("GSSAPI",)}, "SASL mechanism 'GSSAPI'"),
        ({"protocol": "SASL_PLAINTEXT"}, "there are no users. Give users"),
        ({"protocol": "SASL_PLAINTEXT", "users": Users({})}, "there are no users. Give users"),
        (
            {"protocol": "SASL_PLAINTEXT", "users": SOME, "mechanisms": ("OAUTHBEARER",)},
            "are of no use with OAUTHBEARER",
        ),
        ({"protocol": "SASL_PLAINTEXT", "users": SOME, "max_session_ms": -1}, "max_session_ms is -1"),
    ],
)
def test_contradictions(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerSecurity(**settings)


def test_unsigned_tokens_are_taken_on_the_loopback_only(caplog: pytest.LogCaptureFixture) -> None:
    tokens = BrokerSecurity("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",))
    with pytest.raises(ConfigError, match="listen on a loopback"):
        LocalBroker(host="0.0.0.0", advertised=("here", 1), security=tokens)
    with LocalBroker(security=tokens):
        assert "everyone on this machine can log in as any user" in caplog.text


def test_passwords_in_clear_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with LocalBroker(host="0.0.0.0", advertised=("here", 1), security=BrokerSecurity("SASL_PLAINTEXT", users=SOME)):
        assert "PLAIN without TLS" in caplog.text


def test_an_unreadable_certificate_fails_before_the_broker_listens() -> None:
    with pytest.raises(TlsFailed, match=r"none\.pem"):
        LocalBroker(security=BrokerSecurity("SSL", certificate="none.pem"))
