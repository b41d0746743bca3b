"""The options of security, as fields that `ProducerConfig` inherits: TLS (`ssl.*`), logins (`sasl.*`), and references to secrets.

The names are those of Kafka's Java clients; librdkafka's names of the same options are aliases. Options that only librdkafka has
keep its names; the few that Kafka does not have are named in camelCase.
"""

from __future__ import annotations

import dataclasses

from spark_producer.common.secret import Secret
from spark_producer.config.cloud_identities import AZURE_CLIENT_SECRET, AZURE_WORKLOAD_IDENTITY, CLOUD_PROVIDERS
from spark_producer.config.option import INT32_MAX, Option, option
from spark_producer.config.unsupported import KAFKA_PREFIX


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecurityOptions:
    """The options that make connections secure. Times are milliseconds, except where the name says seconds."""

    security_protocol: str = option(
        "PLAINTEXT",
        "`SSL` is TLS, `SASL_SSL` a login over TLS, `SASL_PLAINTEXT` a login that the network can read.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    ssl_truststore_location: str = option(
        "",
        "The certificates to trust: a file (PEM, PKCS12 or JKS), or a directory of PEM files; by default the system's (`probe`).",
        aliases=("ssl.ca.location",),
    )
    ssl_truststore_type: str = option(
        "", "`PEM`, `PKCS12` or `JKS`; the file's first bytes decide.", choices=("PEM", "PKCS12", "JKS"), empty=""
    )
    ssl_truststore_password: Secret | None = option(None, "Password of a truststore in PKCS12 or JKS.")
    ssl_truststore_certificates: str = option(
        "", "The certificates to trust, as PEM text, on one line too.", aliases=("ssl.ca.pem",)
    )
    ssl_keystore_location: str = option("", "The client's certificate, chain and key (PEM, PKCS12 or JKS).")
    ssl_keystore_type: str = option(
        "", "`PEM`, `PKCS12` or `JKS`; the file's first bytes decide.", choices=("PEM", "PKCS12", "JKS"), empty=""
    )
    ssl_keystore_password: Secret | None = option(None, "Password of a keystore in PKCS12 or JKS.")
    ssl_keystore_key: Secret | None = option(
        None, "The client's private key, as PEM text. Needs `ssl.keystore.certificate.chain`.", aliases=("ssl.key.pem",)
    )
    ssl_keystore_certificate_chain: str = option(
        "",
        "The client's certificate and chain, as PEM text. Needs `ssl.keystore.key`.",
        aliases=("ssl.certificate.pem",),
    )
    ssl_key_password: Secret | None = option(None, "Password of the client's private key.")
    ssl_certificate_location: str = option(
        "", "PEM file with the client's certificate and chain. Needs `ssl.key.location`."
    )
    ssl_key_location: str = option("", "PEM file with the client's private key. Needs `ssl.certificate.location`.")
    ssl_endpoint_identification_algorithm: str = option(
        "https",
        "`https`: a broker's certificate must be for the connection's host name. Empty or `none`: for any name, with a warning.",
        choices=("https", "none"),
        empty="none",
    )
    enable_ssl_certificate_verification: bool = option(
        True,
        "`false`: certificates are not checked, so that any server can pose as a broker, with a warning.",
    )
    ssl_enabled_protocols: str = option(
        "TLSv1.2,TLSv1.3", "TLS versions to offer: `TLSv1.2`, `TLSv1.3`; older ones are broken."
    )
    ssl_protocol: str = option(
        "TLSv1.3",
        "Newest TLS version to offer, whatever `ssl.enabled.protocols` says.",
        choices=("TLSv1.3", "TLSv1.2", "TLS"),
    )
    ssl_cipher_suites: str = option(
        "",
        "Cipher suites by IANA's names, separated by commas: ECDHE with AES-GCM or ChaCha20, and with TLS 1.3 its three.",
    )
    sasl_mechanism: str = option(
        "",
        "The login: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `AWS_MSK_IAM` (OAUTHBEARER with Amazon's tokens), "
        "or `GSSAPI` (Kerberos).",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"),
        empty="",
        aliases=("sasl.mechanisms",),
    )
    sasl_username: str = option("", "User of PLAIN and SCRAM.")
    sasl_password: Secret | None = option(None, "Password of PLAIN and SCRAM.")
    sasl_jaas_config: Secret | None = option(
        None,
        'Java\'s form of name and password: `….ScramLoginModule required username="…" password="…";`, and likewise for PLAIN, '
        "OAUTHBEARER, AWS_MSK_IAM and GSSAPI.",
    )
    sasl_kerberos_service_name: str = option(
        "", "The first part of the brokers' principals: `kafka` for `kafka/HOST@REALM`. GSSAPI needs it."
    )
    sasl_kerberos_principal: str = option(
        "", "The client's principal, which a keytab needs; without a keytab that of the ticket cache."
    )
    sasl_kerberos_keytab: str = option(
        "", "The keytab of the principal, on each machine; without it the ticket cache (KRB5CCNAME) is used."
    )
    sasl_kerberos_ticket_renew_window_factor: float = option(
        0.8, "Fraction of a ticket's lifetime after which it is renewed.", low=0.0, high=1.0
    )
    sasl_kerberos_ticket_renew_jitter: float = option(
        0.05, "Maximum random fraction that is added to that.", low=0.0, high=1.0
    )
    sasl_kerberos_min_time_before_relogin: int = option(
        60000, "Minimum wait between renewals of a ticket.", low=0, high=INT32_MAX
    )
    sasl_oauthbearer_method: str = option(
        "", "`oidc`: tokens of a token endpoint. Optional.", choices=("oidc",), empty=""
    )
    sasl_oauthbearer_token_endpoint_url: str = option(
        "",
        "The https address of the token endpoint (RFC 6749, client credentials); or `file:///path` of a file with a token, which "
        "`secretsAllow` must allow.",
    )
    sasl_oauthbearer_client_credentials_client_id: str = option(
        "", "Client id for the token endpoint.", aliases=("sasl.oauthbearer.client.id",)
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = option(
        None, "Client secret for the token endpoint.", aliases=("sasl.oauthbearer.client.secret",)
    )
    sasl_oauthbearer_scope: str = option("", "Scope of the tokens.")
    sasl_oauthbearer_header_urlencode: bool = option(
        False, "Whether client id and secret are form-encoded in the header (RFC 6749, 2.3.1)."
    )
    sasl_oauthbearer_extensions: str = option(
        "", "`name=value` pairs sent with the token, separated by commas (KIP-342)."
    )
    sasl_oauthbearer_token_provider: str = option(
        "",
        f"A cloud identity: {', '.join(f'`{name}`' for name in CLOUD_PROVIDERS)}; or a Python function `module:function`, "
        "imported where connections are made, that returns a token, its end in milliseconds since 1970, and perhaps extensions.",
        name="oauthTokenProvider",
        former_names=("sasl.oauthbearer.token.provider",),
    )
    sasl_oauthbearer_azure_tenant_id: str = option(
        "",
        f"The Entra tenant of `{AZURE_CLIENT_SECRET}` and `{AZURE_WORKLOAD_IDENTITY}`; by default AZURE_TENANT_ID in the "
        "environment.",
        name="azureTenantId",
    )
    https_ca_location: str = option(
        "",
        "The certificates to trust at the token endpoint: a PEM file or directory; by default the system's.",
    )
    https_ca_pem: str = option("", "The same as PEM text.")
    sasl_login_callback_handler_class: str = option(
        "",
        "Kafka's `OAuthBearerLoginCallbackHandler` (a token endpoint), Amazon's (AWS_MSK_IAM) or Google's "
        "`GcpLoginCallbackHandler`; for other classes give `oauthTokenProvider`.",
    )
    sasl_client_callback_handler_class: str = option(
        "",
        "Amazon's `IAMClientCallbackHandler` (AWS_MSK_IAM) alone.",
    )
    sasl_login_connect_timeout_ms: int = option(
        10000, "Maximum wait for a connection to the token endpoint.", low=1, high=INT32_MAX
    )
    sasl_login_read_timeout_ms: int = option(
        10000, "Maximum wait for a response of the token endpoint.", low=1, high=INT32_MAX
    )
    sasl_login_retry_backoff_ms: int = option(
        100, "First pause before a retry at the token endpoint; doubles with each failure.", low=0, high=INT32_MAX
    )
    sasl_login_retry_backoff_max_ms: int = option(
        10000, "Maximum pause before a retry at the token endpoint.", low=0, high=INT32_MAX
    )
    sasl_login_refresh_window_factor: float = option(
        0.8, "Fraction of a token's lifetime after which it is refreshed.", low=0.5, high=1.0
    )
    sasl_login_refresh_window_jitter: float = option(
        0.05, "Maximum random fraction that is added to that.", low=0.0, high=0.25
    )
    sasl_login_refresh_min_period_seconds: int = option(60, "Minimum seconds between refreshes.", low=0, high=900)
    sasl_login_refresh_buffer_seconds: int = option(
        300, "Minimum seconds before a token's end at which it is refreshed.", low=0, high=3600
    )
    allow_plaintext_credentials: bool = option(
        False,
        "`true`: PLAIN and OAUTHBEARER work over `SASL_PLAINTEXT` to other machines, where the network can read secrets.",
        name="allowPlaintextCredentials",
        former_names=("allow.plaintext.credentials",),
    )
    secrets_allow: str = option(
        "",
        "What references to secrets may name, separated by commas: `env:PREFIX*`, `file:/mount/`; nothing by default. "
        "PYPRODUCER_SECRETS_ALLOW in the environment overrides it.",
        name="secretsAllow",
        former_names=("secrets.allow",),
    )


def display_name(field: str) -> str:
    """Return the name of an option for messages, with its aliases: `kafka.sasl.mechanism (or kafka.sasl.mechanisms)`."""
    option: Option = SecurityOptions.__dataclass_fields__[field].metadata["option"]
    name = option.name or KAFKA_PREFIX + field.replace("_", ".")
    others = " or ".join(KAFKA_PREFIX + alias for alias in option.aliases)
    return f"{name} (or {others})" if others else name


def changed_fields(config: SecurityOptions) -> list[str]:
    """Return the fields that are not at their defaults, in the order of the table."""
    fields = dataclasses.fields(SecurityOptions)
    return [field.name for field in fields if getattr(config, field.name) != field.default]
