"""The ways in: the client settings for each listener of a secured Kafka, in the names that librdkafka and ours share.

Owns: settings that work. Must not know: which client takes them.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.read_back import Row, read_topic
from tests.support.secured_kafka import PASSWORD, USER, SecuredKafka

TOKEN_SECONDS = 3600


@dataclass(frozen=True)
class Way:
    """A listener and the settings of a client; `{NAME}` in a value becomes the path of a file of the certificates."""

    listener: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def address(self, secured: SecuredKafka) -> str:
        """Return the address of its listener."""
        return secured.address(self.listener)

    def options(self, secured: SecuredKafka) -> dict[str, str]:
        """The settings with the paths of this cluster."""
        return {
            name: secured.file(value[1:-1]) if value.startswith("{") and value.endswith("}") else value
            for name, value in self.settings.items()
        }


TLS = {"security.protocol": "SSL", "ssl.ca.location": "{ca.pem}"}
CLIENT = {"ssl.certificate.location": "{client.crt}", "ssl.key.location": "{client.key}"}
CLIENT_RSA = {"ssl.certificate.location": "{client-rsa.crt}", "ssl.key.location": "{client-rsa.key}"}


def login(protocol: str, mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
    """Return the settings of a login by name and password."""
    trust = {"ssl.ca.location": "{ca.pem}"} if protocol == "SASL_SSL" else {}
    named = {"security.protocol": protocol, "sasl.mechanism": mechanism} | trust
    return named if mechanism == "OAUTHBEARER" else named | {"sasl.username": user, "sasl.password": password}


WAYS = {
    "tls-rsa": Way("TLS", TLS),
    "tls-ec": Way("TLSEC", TLS),
    "tls-1.3": Way("TLSNEW", TLS),
    "tls-ip-san": Way("TLSIP", TLS),
    "mtls-ec": Way("MTLS", TLS | CLIENT),
    "mtls-rsa": Way("MTLS", TLS | CLIENT_RSA),
    "sasl_ssl-plain": Way("SASLSSL", login("SASL_SSL", "PLAIN")),
    "sasl_ssl-scram-256": Way("SASLSSL", login("SASL_SSL", "SCRAM-SHA-256")),
    "sasl_ssl-scram-512": Way("SASLSSL", login("SASL_SSL", "SCRAM-SHA-512")),
    "sasl_ssl-oauthbearer": Way("SASLSSL", login("SASL_SSL", "OAUTHBEARER")),
    "sasl_plaintext-plain": Way("SASLPLAIN", login("SASL_PLAINTEXT", "PLAIN")),
    "sasl_plaintext-scram-512": Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-512")),
    "reauthenticating": Way("REAUTH", login("SASL_PLAINTEXT", "SCRAM-SHA-256")),
    "reauthenticating-tls": Way("REAUTHTLS", login("SASL_SSL", "SCRAM-SHA-512")),
}
"""With each of them USER, or anybody by TLS, writes and reads."""


def unsigned_token(
    user: str = USER, seconds: float = TOKEN_SECONDS, begun: float = 0.0, claim: str = "sub"
) -> tuple[str, float]:
    """A JWT that brokers take which check no signature (Kafka's OAuthBearerUnsecuredValidatorCallbackHandler), and its end
    in seconds since 1970; it begins `begun` seconds ago."""
    now = time.time()
    claims = {claim: user, "iat": now - begun, "exp": now + seconds}

    def packed(content: Mapping[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    return f"{packed({'alg': 'none'})}.{packed(claims)}.", now + seconds


def for_librdkafka(way: Way, secured: SecuredKafka) -> dict[str, Any]:
    """A way as settings of confluent-kafka, which takes tokens from a function."""
    with_token = way.settings.get("sasl.mechanism") == "OAUTHBEARER"
    return {
        "bootstrap.servers": way.address(secured),
        "log_level": 0,
        **way.options(secured),
        **({"oauth_cb": lambda _: unsigned_token()} if with_token else {}),
    }


def read_by_librdkafka(
    secured: SecuredKafka, topic: str, way: str = "tls-rsa", expected: int | None = None
) -> list[Row]:
    """The whole topic, read by a foreign client through a secured listener."""
    settings = for_librdkafka(WAYS[way], secured)
    return read_topic(settings["bootstrap.servers"], topic, client="confluent", expected=expected, **settings)
