"""The rules of TLS: certificates and keys (as in Kafka's DefaultSslEngineFactory), protocol versions, cipher suites."""

from __future__ import annotations

from spark_producer.config.security_table import SecurityOptions, display_name
from spark_producer.errors import ConfigError

TLS12, TLS13 = "TLSv1.2", "TLSv1.3"
SUITES_13 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
SUITES_12 = (
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
)
"""The suites of TLS 1.2 with forward secrecy and authenticated encryption (RFC 5289, RFC 7905)."""


def check_tls(config: SecurityOptions) -> None:
    """Check the options of TLS against each other.

    Raises:
        ConfigError: one is missing, or two contradict each other.
    """
    _check_trust(config)
    _check_identity(config)
    protocols_and_suites(config)


def _check_trust(config: SecurityOptions) -> None:
    _not_both(config, "ssl_truststore_location", "ssl_truststore_certificates")
    _text_is_pem(config, "ssl_truststore_certificates", "ssl_truststore_type")
    if config.ssl_truststore_password:
        _needs(config, "ssl_truststore_password", "ssl_truststore_location")
        _pem_has_no_password(config.ssl_truststore_type, "ssl_truststore")


def _check_identity(config: SecurityOptions) -> None:
    for first, second in (
        ("ssl_keystore_key", "ssl_keystore_certificate_chain"),
        ("ssl_certificate_location", "ssl_key_location"),
    ):
        for one, other in ((first, second), (second, first)):
            if getattr(config, one):
                _needs(config, one, other)
    _not_both(config, "ssl_keystore_location", "ssl_keystore_key")
    _not_both(config, "ssl_keystore_location", "ssl_certificate_location")
    _not_both(config, "ssl_keystore_key", "ssl_key_location")
    _text_is_pem(config, "ssl_keystore_key", "ssl_keystore_type")
    if config.ssl_keystore_password:
        _needs(config, "ssl_keystore_password", "ssl_keystore_location")
        _pem_has_no_password(config.ssl_keystore_type, "ssl_keystore")
    elif config.ssl_keystore_location and config.ssl_keystore_type in ("JKS", "PKCS12"):
        raise ConfigError(
            f"kafka.ssl.keystore.location is a {config.ssl_keystore_type} keystore, which needs kafka.ssl.keystore.password. Set "
            "it"
        )
    keys = ("ssl_keystore_location", "ssl_keystore_key", "ssl_key_location")
    if config.ssl_key_password and not any(getattr(config, key) for key in keys):
        raise ConfigError(
            f"kafka.ssl.key.password is set, but no key. Set one of {', '.join(display_name(key) for key in keys)}, or drop it"
        )


def _not_both(config: SecurityOptions, one: str, other: str) -> None:
    if getattr(config, one) and getattr(config, other):
        raise ConfigError(f"{display_name(one)} and {display_name(other)} are both set. Drop one of them")


def _needs(config: SecurityOptions, one: str, other: str) -> None:
    if not getattr(config, other):
        raise ConfigError(f"{display_name(one)} needs {display_name(other)}, which is not set. Set both, or neither")


def _text_is_pem(config: SecurityOptions, text: str, declared: str) -> None:
    if getattr(config, text) and getattr(config, declared) not in ("", "PEM"):
        raise ConfigError(
            f"{display_name(text)} is PEM text, but {display_name(declared)} is {getattr(config, declared)}. Drop one of them"
        )


def _pem_has_no_password(declared: str, store: str) -> None:
    if declared == "PEM":
        raise ConfigError(
            f"{display_name(store + '_password')} is set, but {display_name(store + '_type')} is PEM, which has none. "
            "Set kafka.ssl.key.password for an encrypted key"
        )


def protocols_and_suites(config: SecurityOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the versions of TLS to offer, oldest first, and the cipher suites to offer (none: the library's choice).

    A version without any of the listed suites is left out.

    Raises:
        ConfigError: a version or suite is unknown, no version is left, or suites of TLS 1.3 are missing.
    """
    protocols = _protocols(config)
    suites = tuple(dict.fromkeys(name.upper() for name in _listed(config.ssl_cipher_suites)))
    if not suites:
        return protocols, ()
    for name in suites:
        if name not in SUITES_12 + SUITES_13:
            raise ConfigError(
                f"kafka.ssl.cipher.suites contains {name!r}; the supported suites are {', '.join(SUITES_13 + SUITES_12)}"
            )
    if TLS13 in protocols and not set(SUITES_13) <= set(suites):
        raise ConfigError(
            f"kafka.ssl.cipher.suites leaves out suites of TLS 1.3, which cannot be switched off. Name all of "
            f"{', '.join(SUITES_13)}, or set kafka.ssl.enabled.protocols to {TLS12}"
        )
    if not set(suites) & set(SUITES_12):
        protocols = tuple(version for version in protocols if version != TLS12)
    if not protocols:
        raise ConfigError(
            f"kafka.ssl.cipher.suites has no suite of {TLS12}, the only enabled version of TLS. Add one, or enable {TLS13}"
        )
    return protocols, suites


def _protocols(config: SecurityOptions) -> tuple[str, ...]:
    known = {version.lower(): version for version in (TLS12, TLS13)}
    enabled = _listed(config.ssl_enabled_protocols)
    for name in enabled:
        if name.lower() not in known:
            raise ConfigError(
                f"kafka.ssl.enabled.protocols contains {name!r}; the supported versions are {TLS12} and {TLS13}"
            )
    chosen = {known[name.lower()] for name in enabled}
    if not chosen:
        raise ConfigError(f"kafka.ssl.enabled.protocols is empty. Name {TLS12}, {TLS13} or both")
    if config.ssl_protocol == TLS12:
        chosen.discard(TLS13)
        if not chosen:
            raise ConfigError(
                f"kafka.ssl.protocol is {TLS12}, the newest version to offer, but kafka.ssl.enabled.protocols has only {TLS13}. "
                "Change one of them"
            )
    return tuple(version for version in known.values() if version in chosen)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
