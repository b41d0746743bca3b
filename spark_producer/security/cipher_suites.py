"""Cipher suites: the names of IANA and Java, and their mapping to OpenSSL's names and TLS versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from spark_producer.errors import ConfigError

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"

OPENSSL_NAMES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""OpenSSL's names of the TLS 1.2 suites with forward secrecy and authenticated encryption (RFC 5289, RFC 7905)."""

SUITES_OF_1_3: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""The suites of TLS 1.3, all of which Python's `ssl` always enables."""


class TlsVersionsAndSuites(NamedTuple):
    """The TLS versions of a context, and its TLS 1.2 suites in OpenSSL's syntax; empty for OpenSSL's default."""

    versions: tuple[str, ...]
    suites: str


def choose(protocols: Sequence[str], suites: Sequence[str]) -> TlsVersionsAndSuites:
    """Return the versions and suites for a context, so that only the given ones can be negotiated.

    A version without a suite is disabled, as in Java.

    Raises:
        ConfigError: a protocol or suite is unknown, no suite matches the protocols, or only some suites of TLS 1.3 are given.
    """
    unknown = sorted({*protocols} - {TLS_1_2, TLS_1_3}) or sorted({*suites} - {*OPENSSL_NAMES} - SUITES_OF_1_3)
    if unknown or not protocols:
        raise ConfigError(
            f"TLS does not support {', '.join(unknown) or 'an empty list of protocols'}: supported are the protocols {TLS_1_2} "
            f"and {TLS_1_3}, and the cipher suites {', '.join([*OPENSSL_NAMES, *sorted(SUITES_OF_1_3)])} "
            "(ssl.enabled.protocols, ssl.cipher.suites)"
        )
    if not suites:
        return TlsVersionsAndSuites(tuple(sorted({*protocols})), "")
    older = [OPENSSL_NAMES[suite] for suite in suites if suite in OPENSSL_NAMES]
    newer = SUITES_OF_1_3 & {*suites}
    if newer and newer != SUITES_OF_1_3 and TLS_1_3 in protocols:
        raise ConfigError(
            f"ssl.cipher.suites has only {', '.join(sorted(newer))} of TLS 1.3, and Python's ssl always allows all three. Add "
            f"{', '.join(sorted(SUITES_OF_1_3 - newer))}, or set ssl.enabled.protocols to {TLS_1_2}"
        )
    versions = [version for version, found in ((TLS_1_2, older), (TLS_1_3, newer)) if found and version in protocols]
    if not versions:
        raise ConfigError(
            f"no suite of ssl.cipher.suites belongs to {', '.join(sorted(protocols))} (ssl.enabled.protocols)"
        )
    return TlsVersionsAndSuites(tuple(versions), ":".join(older))
