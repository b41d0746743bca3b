"""The security settings of connections as frozen values, with references to secrets that are not resolved yet.

They compare by value, so that new credentials need a new producer, and can be pickled. Like secrets, they have no hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_producer.common.secret import Secret


@dataclass(frozen=True, slots=True)
class Store:
    """Certificates, and possibly a key, in a file of any format or as PEM text. At most one of `location` and `pem` is set."""

    location: str = ""
    """A file, or a directory of PEM files for trusted certificates."""
    declared_type: str = ""
    """The declared format: JKS, PKCS12, PEM or empty. It is ignored: the first bytes of the file decide."""
    password: Secret | None = None
    """The password of the store, and of its key unless `key_password` is set."""
    pem: str = ""
    """The certificates as PEM text; with a key, its certificate chain."""
    key_pem: Secret | None = None
    """The private key as PEM text."""
    key_location: str = ""
    """The file of the private key, if `location` has only the chain (librdkafka's `ssl.key.location`)."""
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The settings of TLS."""

    trust: Store | None = None
    """The trusted certificates; None for those of the system."""
    identity: Store | None = None
    """The client certificate and its key; None for none."""
    check_name: bool = True
    """Whether the certificate must match the host name."""
    verify: bool = True
    """Whether the certificate is verified at all."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """IANA names; empty for OpenSSL's default."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The token endpoint of OAUTHBEARER and its client credentials (RFC 6749, 4.4), or the client of a cloud identity."""

    token_endpoint: str
    """The URL; `file:///path` of a file with a token; or empty for a cloud identity, whose library knows its endpoint."""
    client_id: str
    client_secret: Secret
    scope: str = ""
    urlencode_header: bool = False
    """Whether the id and secret are form-encoded in the header (RFC 6749, 2.3.1)."""
    trust: Store | None = None
    """The trusted certificates for the endpoint; None for those of the system."""
    connect_timeout: float = 10.0
    read_timeout: float = 10.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 10.0
    """Minimum and maximum backoff in seconds, as are the timeouts."""
    tenant: str = ""
    """The tenant of Microsoft Entra; empty for that of the environment."""


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The identity of a Kerberos login: a principal with its keytab, or the owner of a ticket cache."""

    service: str
    """The first part of the brokers' principals, such as kafka of kafka/HOST@REALM."""
    principal: str = ""
    """The client's principal; empty for that of the ticket cache."""
    keytab: str = ""
    """The file with its keys; empty for a ticket cache."""
    ticket_cache: str = ""
    """The ticket cache, such as a file; empty for the default one of Kerberos (KRB5CCNAME)."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The settings of a login."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI."""
    username: str = ""
    password: Secret | None = None
    token_auth: bool = False
    """Whether the name and password are the id and HMAC of a delegation token (SCRAM)."""
    extensions: tuple[tuple[str, str], ...] = ()
    """OAUTHBEARER's extensions (KIP-342)."""
    kerberos: KerberosSettings | None = None
    oidc: OidcSettings | None = None
    provider: str = ""
    """The token provider: `module:function`, or the name of a cloud identity."""
    provider_options: tuple[tuple[str, str], ...] = ()
    """The options of the JAAS entry for AWS: awsProfileName, awsRoleArn, awsRoleSessionName."""
    refresh_window_factor: float = 0.8
    refresh_window_jitter: float = 0.05
    refresh_min_period: float = 60.0
    refresh_buffer: float = 300.0
    """When to get a new token before the current one expires, in seconds (Kafka's `sasl.login.refresh.*`); or a new ticket."""
    loopback_only: bool = False
    """Whether the password or token may only be sent to loopback addresses, since it would cross a network in clear text."""
    given_by: str = field(default="kafka.sasl.username and kafka.sasl.password", compare=False)
    """The options with the user name and password that the user has set, for messages."""

    @property
    def has_token_file(self) -> bool:
        """Whether tokens come from a file."""
        return self.oidc is not None and self.oidc.token_endpoint.startswith("file:")


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """The security settings of a connection. PLAINTEXT has neither `tls` nor `sasl`."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    allowed_secrets: tuple[str, ...] = ()
    """The rules for references: `env:PREFIX*`, `file:/mount/`; PYPRODUCER_SECRETS_ALLOW in the environment overrides them."""

    @property
    def protocol(self) -> str:
        """The security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        tls = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{tls}" if self.sasl else tls
