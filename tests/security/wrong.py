"""Wrong settings of security: the settings, the error that each must raise, and the text that names the cause.

Owns: the table. Must not know: by which way a client takes the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_producer.errors import AuthenticationFailed, SecurityError, TlsFailed
from tests.security.ways import TLS, Way, login
from tests.support.secured_kafka import USER


@dataclass(frozen=True)
class Wrong:
    """One wrong setting."""

    way: Way
    error: type[SecurityError]
    patterns: Sequence[str]
    """Regular expressions, without regard to case; the message holds something for each of them."""


def _shown(name: str) -> dict[str, str]:
    return {"ssl.certificate.location": f"{{{name}.crt}}", "ssl.key.location": f"{{{name}.key}}"}


WRONG_PASSWORD = "wrong-pw-4410"

WRONG = {
    # SEC20: two sides with different protocols
    "plaintext to a TLS port": Wrong(Way("TLS"), SecurityError, ["TLS", r"\bSSL\b"]),
    "TLS to a plaintext port": Wrong(Way("CLIENT", TLS), TlsFailed, ["ClientHello|handshake", "plaintext"]),
    "no login at a SASL port": Wrong(Way("SASLPLAIN"), SecurityError, ["SASL"]),
    "TLS alone at a SASL_SSL port": Wrong(Way("SASLSSL", TLS), SecurityError, ["SASL"]),
    "a login at a plaintext port": Wrong(
        Way("CLIENT", login("SASL_PLAINTEXT", "SCRAM-SHA-512")), AuthenticationFailed, ["PLAINTEXT", "SASL"]
    ),
    "a login at a TLS port": Wrong(Way("TLS", login("SASL_SSL", "SCRAM-SHA-512")), AuthenticationFailed, [r"\bSSL\b"]),
    # SEC21
    "a mechanism that is off": Wrong(
        Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-256")),
        AuthenticationFailed,
        ["SCRAM-SHA-256", r"PLAIN\b", "SCRAM-SHA-512"],
    ),
    # SEC22
    "a wrong password of PLAIN": Wrong(
        Way("SASLSSL", login("SASL_SSL", "PLAIN", password=WRONG_PASSWORD)),
        AuthenticationFailed,
        [USER, "PLAIN", r"127\.0\.0\.1:\d+", "Invalid username or password"],
    ),
    "a wrong password of SCRAM": Wrong(
        Way("SASLSSL", login("SASL_SSL", "SCRAM-SHA-512", password=WRONG_PASSWORD)),
        AuthenticationFailed,
        [USER, "SCRAM-SHA-512", r"127\.0\.0\.1:\d+", "invalid credentials"],
    ),
    "an unknown user": Wrong(
        Way("SASLSSL", login("SASL_SSL", "SCRAM-SHA-256", user="stranger")),
        AuthenticationFailed,
        ["stranger", "SCRAM-SHA-256", "invalid credentials"],
    ),
    # SEC23
    "a token that has ended": Wrong(
        Way(
            "SASLSSL",
            login("SASL_SSL", "OAUTHBEARER") | {"oauthTokenProvider": "tests.security.ours:old_token"},
        ),
        AuthenticationFailed,
        ["OAUTHBEARER", "invalid_token"],
    ),
    "a token without a user": Wrong(
        Way(
            "SASLSSL",
            login("SASL_SSL", "OAUTHBEARER") | {"oauthTokenProvider": "tests.security.ours:nameless_token"},
        ),
        AuthenticationFailed,
        ["OAUTHBEARER", "invalid_token"],
    ),
    # SEC24
    "an unknown CA": Wrong(
        Way("TLS", TLS | {"ssl.ca.location": "{stranger-ca.pem}"}),
        TlsFailed,
        ["issue|CA", r"stranger-ca\.pem", r"\b1\b"],
    ),
    "the system's CAs": Wrong(
        Way("TLS", {"security.protocol": "SSL"}), TlsFailed, ["issue|CA", "truststore|ssl.ca.location"]
    ),
    # SEC25
    "an expired certificate": Wrong(Way("EXPIRED", TLS), TlsFailed, ["expired", r"\d{4}-\d\d-\d\d"]),
    "a certificate of the future": Wrong(Way("NOTYET", TLS), TlsFailed, ["not yet|not valid", r"\d{4}-\d\d-\d\d"]),
    # SEC26
    "a certificate for another name": Wrong(Way("OTHERNAME", TLS), TlsFailed, [r"127\.0\.0\.1", r"kafka\.example"]),
    # SEC27
    "no client certificate": Wrong(Way("MTLS", TLS), TlsFailed, [r"ssl\.keystore"]),
    "a client certificate of another CA": Wrong(
        Way("MTLS", TLS | _shown("client-stranger")), TlsFailed, ["certificate", USER, "stranger"]
    ),
    "a client certificate that has expired": Wrong(
        Way("MTLS", TLS | _shown("client-expired")), TlsFailed, ["certificate", USER, "expired|until|ended"]
    ),
    "a version of TLS that the broker does not speak": Wrong(
        Way("TLSNEW", TLS | {"ssl.enabled.protocols": "TLSv1.2"}), TlsFailed, [r"ssl\.enabled\.protocols|TLSv1\.2"]
    ),
    "suites that the broker does not speak": Wrong(
        Way(
            "TLS",
            TLS | {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
        ),
        TlsFailed,
        [r"ssl\.cipher\.suites|suite"],
    ),
}
"""Each must be reported within two seconds, although `max.block.ms` allows a minute."""
