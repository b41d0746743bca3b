"""The settings of the broker's secure listener, as one frozen and consistent value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_producer.broker.security.users import Users
from spark_producer.errors import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols."""

PASSWORD_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The password mechanisms, the strongest first: clients are offered them in this order."""

TOKEN_MECHANISM: Final = "OAUTHBEARER"
"""The mechanism of unsigned tokens, which anybody can write. It is for tests on one machine."""

MECHANISMS: Final = (*PASSWORD_MECHANISMS, TOKEN_MECHANISM)


@dataclass(frozen=True)
class BrokerSecurity:
    """The security of the broker's listener: TLS, SASL and users.

    protocol: one of Kafka's security protocols, in any case.
    certificate: PEM file of the broker's certificate chain; read again when it changes, as the two below.
    key: PEM file of its private key, without a password; None if it is in the file of the certificate.
    client_ca: PEM file of the CAs of clients' certificates: then every client must have one, and with SSL its common name is the
        user.
    users: the users of SCRAM and PLAIN.
    mechanisms: the enabled SASL mechanisms; by default SCRAM-SHA-512, SCRAM-SHA-256 and PLAIN. OAUTHBEARER takes unsigned tokens,
        so it requires a loopback address.
    max_session_ms: milliseconds after which clients must re-authenticate (Kafka's `connections.max.reauth.ms`); 0 for never.

    Raises:
        ConfigError: a setting is unknown, missing, or of no use with this protocol.
    """

    protocol: str = "PLAINTEXT"
    certificate: Path | str | None = None
    key: Path | str | None = None
    client_ca: Path | str | None = None
    users: Users | None = None
    mechanisms: tuple[str, ...] = ()
    max_session_ms: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", self.protocol.upper())
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"unknown security protocol {self.protocol!r}. Use one of {', '.join(PROTOCOLS)}")
        self._check_tls()
        if self.sasl:
            object.__setattr__(self, "mechanisms", tuple(self.mechanisms) or PASSWORD_MECHANISMS)
            self._check_sasl()
        elif self.users is not None or self.mechanisms or self.max_session_ms:
            raise ConfigError(
                f"users, mechanisms and max_session_ms are of no use with {self.protocol}. "
                "Set the security protocol to SASL_SSL (or SASL_PLAINTEXT)"
            )

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        """Whether clients must log in."""
        return self.protocol.startswith("SASL")

    def _check_tls(self) -> None:
        if self.tls and self.certificate is None:
            raise ConfigError(f"{self.protocol} needs a certificate. Give the PEM file of one, and of its private key")
        if not self.tls and (self.certificate or self.key or self.client_ca):
            raise ConfigError(
                f"certificate, key and client CA are of no use with {self.protocol}. "
                "Set the security protocol to SSL or SASL_SSL"
            )

    def _check_sasl(self) -> None:
        unknown = [name for name in self.mechanisms if name not in MECHANISMS]
        if unknown:
            raise ConfigError(f"unsupported SASL mechanism {unknown[0]!r}. Use one of {', '.join(MECHANISMS)}")
        by_password = [name for name in self.mechanisms if name in PASSWORD_MECHANISMS]
        if by_password and not self.users:
            raise ConfigError(
                f"{', '.join(by_password)}: there are no users. Give users (--users FILE), or choose other mechanisms"
            )
        if not by_password and self.users is not None:
            raise ConfigError(
                f"users are of no use with {', '.join(self.mechanisms)}, which has no passwords. Leave them out"
            )
        if self.max_session_ms < 0:
            raise ConfigError(f"max_session_ms is {self.max_session_ms}: it must be 0 (for no limit) or positive")
