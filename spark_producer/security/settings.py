"""How to make connections secure, as frozen values: what was asked for, with references to secrets that are not resolved yet.

They compare by value, so that new credentials mean a new producer, and they can be pickled. Like secrets, they have no hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_producer.common.secret import Secret


@dataclass(frozen=True, slots=True)
class Store:
    """Certificates, and perhaps a key: in a file of any format, or as PEM text. At most one of `location` and `pem` is set."""

    location: str = ""
    """A file, or for certificates to trust also a directory of PEM files."""
    declared_type: str = ""
    """The format as the user declared it: JKS, PKCS12, PEM or empty. It is a hint; the first bytes of the file decide."""
    password: Secret | None = None
    """The password of the store, and of its key if that has none of its own."""
    pem: str = ""
    """The certificates as PEM text; the chain, if a key belongs to them."""
    key_pem: Secret | None = None
    """The private key as PEM text."""
    key_location: str = ""
    """The file of the private key, where `location` holds the chain alone (librdkafka's `ssl.key.location`)."""
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How to speak TLS."""

    trust: Store | None = None
    """The certificates to trust; None for those of the system."""
    identity: Store | None = None
    """The certificate and key to show to a broker that asks for one; None for none."""
    check_name: bool = True
    """Whether the certificate must be one for the host's name."""
    verify: bool = True
    """Whether the certificate is checked at all."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """IANA names; empty for the library's own choice."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Where OAUTHBEARER gets its tokens: by client credentials from an endpoint (RFC 6749, 4.4)."""

    token_endpoint: str
    client_id: str
    client_secret: Secret
    scope: str = ""
    urlencode_header: bool = False
    """Whether id and secret are form-encoded before they go into the header (RFC 6749, 2.3.1)."""
    trust: Store | None = None
    """The certificates that the endpoint's TLS is checked against; None for those of the system."""
    connect_timeout: float = 10.0
    read_timeout: float = 10.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 10.0
    """Seconds, as are those above."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """How to log in."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    username: str = ""
    password: Secret | None = None
    token_auth: bool = False
    """Whether name and password are the id and HMAC of a delegation token (SCRAM)."""
    extensions: tuple[tuple[str, str], ...] = ()
    """OAUTHBEARER's extensions (KIP-342)."""
    oidc: OidcSettings | None = None
    provider: str = ""
    """`module:function` that gives tokens, or `aws-msk-iam`."""
    provider_options: tuple[tuple[str, str], ...] = ()
    """What the JAAS entry of AWS says: awsProfileName, awsRoleArn, awsRoleSessionName."""
    refresh_window_factor: float = 0.8
    refresh_window_jitter: float = 0.05
    refresh_min_period: float = 60.0
    refresh_buffer: float = 300.0
    """When to get a new token before the old one ends (Kafka's `sasl.login.refresh.*`); seconds."""
    loopback_only: bool = False
    """Whether only this machine may be told the password or token, since it would cross a network in clear."""
    given_by: str = field(default="kafka.sasl.username and kafka.sasl.password", compare=False)
    """The options that hold name and password, for messages: advice names those that the user has set."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """What a connection needs beside an address. PLAINTEXT is the one with neither `tls` nor `sasl`."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    allowed_secrets: tuple[str, ...] = ()
    """What references may name: `env:PREFIX*`, `file:/mount/`; the environment's PYPRODUCER_SECRETS_ALLOW wins."""

    @property
    def protocol(self) -> str:
        """Kafka's name of it: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        tls = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{tls}" if self.sasl else tls
