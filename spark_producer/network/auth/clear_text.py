"""Prevents passwords and tokens on connections without TLS to other machines, which a broker may advertise."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from spark_producer.common.addresses import format_address
from spark_producer.config.token_rules import is_loopback
from spark_producer.errors import AuthenticationFailed
from spark_producer.protocol import SaslCredentials


def require_loopback(login: SaslCredentials, host: str, port: int) -> SaslCredentials:
    """Return `login` for a loopback address; otherwise a login that fails before a secret is sent."""
    return (
        login
        if is_loopback(host)
        else _RejectedLogin(login.mechanism, login.user, login.given_by, format_address(host, port))
    )


@dataclass(frozen=True, slots=True)
class _RejectedLogin:
    mechanism: str
    user: str
    given_by: str
    address: str

    def start(self) -> Generator[bytes, bytes, None]:
        """Raise the error.

        Raises:
            AuthenticationFailed: always (fatal).
        """
        raise AuthenticationFailed(
            f"{self.mechanism} over SASL_PLAINTEXT would send the password or token in clear text to {self.address}, an address "
            "that the cluster advertises (advertised.listeners). What to do: set kafka.security.protocol to SASL_SSL, or "
            "allowPlaintextCredentials to true",
            fatal=True,
        )
