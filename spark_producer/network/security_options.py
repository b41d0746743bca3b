"""Builds the security settings of connections from the options: trusted certificates, client certificate, and login."""

from __future__ import annotations

from spark_producer.common.addresses import format_address
from spark_producer.common.secret import Secret
from spark_producer.config import ConnectionOptions, jaas
from spark_producer.config.cloud_identities import AZURE_PROVIDERS, GOOGLE_PROVIDER
from spark_producer.config.references import is_reference
from spark_producer.config.sasl_rules import Credentials, credentials
from spark_producer.config.security_rules import has_login, has_tls
from spark_producer.config.tls_rules import protocols_and_suites
from spark_producer.config.token_rules import is_loopback
from spark_producer.errors import ConfigError
from spark_producer.network.addresses import parse_bootstrap_servers
from spark_producer.security import KerberosSettings, OidcSettings, SaslSettings, SecuritySettings, Store, TlsSettings

PROBE = "probe"
"""librdkafka's value of `ssl.ca.location` for the certificates of the system."""


def security_settings(config: ConnectionOptions) -> SecuritySettings:
    """Return the security settings for the options.

    References to secrets are not resolved, except one that is the whole `sasl.jaas.config`.

    Raises:
        ConfigError: options contradict each other; a password or token would cross a network in clear text; or the reference
            in `sasl.jaas.config` cannot be resolved.
    """
    allowed = tuple(entry.strip() for entry in config.secrets_allow.split(",") if entry.strip())
    login = _login(config, allowed) if has_login(config) else None
    if login is not None and _is_for_loopback(config, login):
        _check_loopback(config, login)
    return SecuritySettings(
        tls=_tls(config) if has_tls(config) else None,
        sasl=None if login is None else _sasl(config, login),
        allowed_secrets=allowed,
    )


def _login(config: ConnectionOptions, allowed: tuple[str, ...]) -> Credentials:
    """Return the credentials. A `sasl.jaas.config` that is a reference is resolved now; references within it at each login."""
    text = config.sasl_jaas_config
    if text is None or not is_reference(text.reveal()):
        return credentials(config, text)
    from spark_producer.security.references import resolve

    return credentials(config, Secret(resolve(text, allowed, name=jaas.NAME)), references=False)


def _tls(config: ConnectionOptions) -> TlsSettings:
    protocols, suites = protocols_and_suites(config)
    verify = config.enable_ssl_certificate_verification
    return TlsSettings(
        trust=_store(
            location="" if config.ssl_truststore_location == PROBE else config.ssl_truststore_location,
            declared_type=config.ssl_truststore_type,
            password=config.ssl_truststore_password,
            pem=config.ssl_truststore_certificates,
        ),
        identity=_store(
            location=config.ssl_keystore_location or config.ssl_certificate_location,
            declared_type=config.ssl_keystore_type,
            password=config.ssl_keystore_password,
            pem=config.ssl_keystore_certificate_chain,
            key_pem=config.ssl_keystore_key,
            key_location=config.ssl_key_location,
            key_password=config.ssl_key_password,
        ),
        check_name=verify and config.ssl_endpoint_identification_algorithm == "https",
        verify=verify,
        protocols=protocols,
        cipher_suites=suites,
    )


def _store(
    *,
    location: str,
    pem: str,
    declared_type: str = "",
    password: Secret | None = None,
    key_pem: Secret | None = None,
    key_location: str = "",
    key_password: Secret | None = None,
) -> Store | None:
    """Return the store; None if there is neither a file nor a PEM text."""
    if not location and not pem:
        return None
    return Store(location, declared_type, password, pem, key_pem, key_location, key_password)


def _sasl(config: ConnectionOptions, login: Credentials) -> SaslSettings:
    if login.mechanism == "GSSAPI":
        return _ticket_login(config, login)
    return SaslSettings(
        mechanism=login.mechanism,
        username=login.username,
        password=login.password,
        token_auth=login.token_auth,
        extensions=login.extensions,
        oidc=_oidc(config, login),
        provider=login.provider,
        provider_options=login.provider_options,
        refresh_window_factor=config.sasl_login_refresh_window_factor,
        refresh_window_jitter=config.sasl_login_refresh_window_jitter,
        refresh_min_period=float(config.sasl_login_refresh_min_period_seconds),
        refresh_buffer=float(config.sasl_login_refresh_buffer_seconds),
        loopback_only=_is_for_loopback(config, login),
        given_by=login.given_by,
    )


def _ticket_login(config: ConnectionOptions, login: Credentials) -> SaslSettings:
    return SaslSettings(
        mechanism=login.mechanism,
        username=login.username,
        kerberos=KerberosSettings(login.service, login.username, login.keytab, login.ticket_cache),
        refresh_window_factor=config.sasl_kerberos_ticket_renew_window_factor,
        refresh_window_jitter=config.sasl_kerberos_ticket_renew_jitter,
        refresh_min_period=config.sasl_kerberos_min_time_before_relogin / 1000,
        refresh_buffer=0.0,
        given_by=login.given_by,
    )


def _oidc(config: ConnectionOptions, login: Credentials) -> OidcSettings | None:
    named = login.provider in AZURE_PROVIDERS or login.provider == GOOGLE_PROVIDER
    if not named and not config.sasl_oauthbearer_token_endpoint_url:
        return None
    return OidcSettings(
        token_endpoint=config.sasl_oauthbearer_token_endpoint_url,
        client_id=login.client_id,
        client_secret=login.client_secret or Secret(""),
        scope=login.scope,
        tenant=config.sasl_oauthbearer_azure_tenant_id,
        urlencode_header=config.sasl_oauthbearer_header_urlencode,
        trust=_store(location=config.https_ca_location, pem=config.https_ca_pem),
        connect_timeout=config.sasl_login_connect_timeout_ms / 1000,
        read_timeout=config.sasl_login_read_timeout_ms / 1000,
        retry_backoff=config.sasl_login_retry_backoff_ms / 1000,
        retry_backoff_max=config.sasl_login_retry_backoff_max_ms / 1000,
    )


def _is_for_loopback(config: ConnectionOptions, login: Credentials) -> bool:
    """Return whether the login is allowed on the loopback address only, since it would send a secret in clear text.

    SCRAM does not send the password, nor Kerberos a key; the other mechanisms send it, or a token.
    """
    if config.security_protocol != "SASL_PLAINTEXT" or config.allow_plaintext_credentials:
        return False
    return not login.mechanism.startswith(("SCRAM", "GSSAPI"))


def _check_loopback(config: ConnectionOptions, login: Credentials) -> None:
    for host, port in parse_bootstrap_servers(config.bootstrap_servers):
        if not is_loopback(host):
            secret = "the password" if login.mechanism == "PLAIN" else "the token"
            raise ConfigError(
                f"{login.mechanism} over SASL_PLAINTEXT would send {secret} in clear text to {format_address(host, port)}. Set "
                "kafka.security.protocol to SASL_SSL, or allowPlaintextCredentials to true"
            )
