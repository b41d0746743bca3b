"""Cipher suites by their IANA names, which are Java's, as OpenSSL and the versions of TLS take them."""

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
"""The suites of TLS 1.2 with forward secrecy and authenticated encryption (RFC 5289, RFC 7905)."""

SUITES_OF_1_3: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""Python's `ssl` cannot choose among these."""


class TlsVersionsAndSuites(NamedTuple):
    """What a context is told: versions of TLS, and the suites of 1.2 as OpenSSL writes them; empty for its own choice."""

    versions: tuple[str, ...]
    suites: str


def choose(protocols: Sequence[str], suites: Sequence[str]) -> TlsVersionsAndSuites:
    """Return the versions and suites for a context, so that nothing is negotiated that was not named.

    Without a suite of a version, that version is left out, as in Java.

    Raises:
        ConfigError: a protocol or suite is unknown, no suite is left for the protocols, or some of TLS 1.3's are missing.
    """
    unknown = sorted({*protocols} - {TLS_1_2, TLS_1_3}) or sorted({*suites} - {*OPENSSL_NAMES} - SUITES_OF_1_3)
    if unknown or not protocols:
        raise ConfigError(
            f"TLS cannot use {', '.join(unknown) or 'no protocol'}: protocols are {TLS_1_2} and {TLS_1_3}, and cipher suites "
            f"are {', '.join([*OPENSSL_NAMES, *sorted(SUITES_OF_1_3)])} (ssl.enabled.protocols, ssl.cipher.suites)"
        )
    if not suites:
        return TlsVersionsAndSuites(tuple(sorted({*protocols})), "")
    older = [OPENSSL_NAMES[suite] for suite in suites if suite in OPENSSL_NAMES]
    newer = SUITES_OF_1_3 & {*suites}
    if newer and newer != SUITES_OF_1_3 and TLS_1_3 in protocols:
        raise ConfigError(
            f"ssl.cipher.suites names only {', '.join(sorted(newer))} of TLS 1.3, and Python's ssl always allows all three: name "
            f"{', '.join(sorted(SUITES_OF_1_3 - newer))} too, or set ssl.enabled.protocols to {TLS_1_2}"
        )
    versions = [version for version, found in ((TLS_1_2, older), (TLS_1_3, newer)) if found and version in protocols]
    if not versions:
        raise ConfigError(
            f"no suite of ssl.cipher.suites belongs to {', '.join(sorted(protocols))} (ssl.enabled.protocols)"
        )
    return TlsVersionsAndSuites(tuple(versions), ":".join(older))
