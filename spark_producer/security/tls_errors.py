"""Translates errors of TLS into messages with the cause and the side to change."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_producer.common.escape import for_log
from spark_producer.errors import TlsFailed
from spark_producer.security.contexts import ContextInfo
from spark_producer.security.x509 import Certificate


def _no_time() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Peer:
    """The peer of a stream, for messages."""

    name: str = "the peer"
    """As in "the certificate of …": an address, or "the client"."""
    host_from: str = ""
    """The source of the host name: `bootstrap.servers`, or the broker's `advertised.listeners`."""
    now: Callable[[], str] = _no_time
    """Returns the time of this machine, such as `2026-01-31 23:59:59 UTC`; empty if there is no clock."""


@dataclass(frozen=True, slots=True)
class HandshakePhase:
    """The progress of a stream when it failed."""

    host: str | None
    """The host name that the certificate must match."""
    info: ContextInfo
    chain: tuple[Certificate, ...] = ()
    """The certificate chain of the peer, its own certificate first."""
    established: bool = False
    """Whether the handshake was done."""
    answered: bool = False
    """Whether data of the peer was decrypted. With TLS 1.3 it rejects a certificate after the client's handshake."""
    received: bool = False
    """Whether any byte was received from the peer."""


_ALERT: Final = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)")

_EXPIRED: Final = 10
_NOT_YET: Final = 9
_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME: Final = frozenset({62, 64})
"""Codes of OpenSSL's x509_vfy.h; 62 is about DNS names, 64 about IP addresses."""

_ABOUT_CERTIFICATE: Final = frozenset(
    {
        "BAD_CERTIFICATE", "CERTIFICATE_REQUIRED", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED",
        "UNKNOWN_CA", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED", "DECRYPT_ERROR",
    }
)  # fmt: skip
_NOTHING_IN_COMMON: Final = frozenset(
    {
        "PROTOCOL_VERSION", "HANDSHAKE_FAILURE", "INSUFFICIENT_SECURITY", "UNSUPPORTED_PROTOCOL", "NO_CIPHERS_AVAILABLE",
        "NO_PROTOCOLS_AVAILABLE", "NO_SHARED_CIPHER", "WRONG_SSL_VERSION", "VERSION_TOO_LOW",
    }
)  # fmt: skip
NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})
"""OpenSSL's reasons for bytes from the peer that are not TLS."""


def client_tls_error(error: ssl.SSLError, peer: Peer, phase: HandshakePhase) -> TlsFailed:
    """Return `TlsFailed` for an error of a client's stream. It is fatal unless a retry may succeed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(_certificate(error, peer, phase), fatal=True)
    reason = error.reason or ""
    alert = _ALERT.fullmatch(reason)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) or reason == "UNEXPECTED_EOF_WHILE_READING":
        return TlsFailed(_closed(peer, phase), fatal=False, silent=not phase.received)
    if alert:
        return TlsFailed(_alert(alert[1], peer, phase), fatal=not phase.answered)
    if reason in _NOTHING_IN_COMMON:
        return TlsFailed(_nothing_in_common(f"OpenSSL reports {reason}", peer, phase), fatal=True)
    if reason in NOT_TLS and not phase.established:
        return TlsFailed(
            f"the response of {peer.name} is not TLS: the port expects plain text or another protocol. Check host, port and "
            "security.protocol",
            fatal=True,
        )
    return TlsFailed(f"TLS with {peer.name} failed: {for_log(reason or str(error))}", fatal=not phase.established)


def is_tls_error(error: BaseException | None) -> bool:
    """Return whether an error of a library has an error of TLS as its cause."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def server_tls_error(error: ssl.SSLError, peer: Peer) -> TlsFailed:
    """Return `TlsFailed` for an error of a server's stream."""
    if error.reason in NOT_TLS:
        return TlsFailed(
            f"{peer.name} does not use TLS ({for_log(error.reason)}), which this listener requires", fatal=False
        )
    return TlsFailed(f"TLS with {peer.name} failed: {for_log(error.reason or str(error))}", fatal=False)


def _certificate(error: ssl.SSLCertVerificationError, peer: Peer, phase: HandshakePhase) -> str:
    code = error.verify_code
    first = f"the certificate of {peer.name} cannot be trusted: "
    if code in _UNTRUSTED:
        issuer = f"'{phase.chain[-1].issuer}'" if phase.chain else "its issuer"
        count = phase.info.trusted
        count_text = f" ({count} certificate{'s' if count > 1 else ''})" if count else ""
        return (
            f"{first}it was issued by {issuer}, and that CA is not in {phase.info.trust}{count_text}. Set its certificate by "
            f"ssl.truststore.location or ssl.ca.location ({error.verify_message})"
        )
    if code in (_EXPIRED, _NOT_YET):
        return first + _validity(code, peer.now(), phase.chain)
    if code in _OTHER_NAME:
        names = ", ".join(phase.chain[0].names) if phase.chain else ""
        origin = f", a host of {peer.host_from}," if peer.host_from else ""
        return (
            f"{first}it is not for {phase.host!r}{origin} but for {names or 'no name at all'}. Connect by a name of the "
            "certificate, or issue a certificate for this name"
        )
    return f"{first}{for_log(error.verify_message)}"


def _validity(code: int, now: str, chain: tuple[Certificate, ...]) -> str:
    """Return the message for an expired certificate, or one that is not valid yet; times compare as texts."""
    clock = f"; this machine's clock is {now}" if now else ""
    if code == _EXPIRED:
        late = next((one for one in chain if now and one.not_after < now), chain[0] if chain else None)
        return f"{_certificate_name(late, chain)} expired{' on ' + late.not_after if late else ''}{clock}"
    early = next((one for one in chain if now and one.not_before > now), chain[0] if chain else None)
    return (
        f"{_certificate_name(early, chain)} is not valid before {early.not_before if early else 'a later date'}{clock}"
    )


def _certificate_name(found: Certificate | None, chain: tuple[Certificate, ...]) -> str:
    return "it" if found is None or found is chain[0] else f"that of its CA '{found.subject}'"


def _closed(peer: Peer, phase: HandshakePhase) -> str:
    if phase.established:
        return f"{peer.name} closed the TLS connection"
    if phase.received:
        return f"{peer.name} closed the connection during the TLS handshake"
    return (
        f"{peer.name} closed the connection at the TLS ClientHello: it may be a listener without TLS (then set "
        "security.protocol to PLAINTEXT or SASL_PLAINTEXT), or a proxy whose server is down"
    )


def _alert(alert: str, peer: Peer, phase: HandshakePhase) -> str:
    alert_text = f"(alert {alert.lower()})"
    if phase.answered:
        return f"{peer.name} ended the TLS connection {alert_text}"
    # A peer that has sent its certificate has agreed to version and suite: OpenSSL's TLS 1.2 servers report a missing client
    # certificate so.
    negotiated = alert == "HANDSHAKE_FAILURE" and phase.chain and not phase.established
    about_ours = negotiated or alert in _ABOUT_CERTIFICATE
    if about_ours and not phase.info.identity:
        return (
            f"{peer.name} requires a client certificate, and none is set {alert_text}. Set ssl.keystore.location, or "
            "ssl.certificate.location and ssl.key.location"
        )
    if about_ours:
        own = phase.info.own
        details = (
            f"'{own.subject}', issued by '{own.issuer}', valid until {own.not_after}"
            if own
            else "its details are unknown"
        )
        return f"{peer.name} rejected the certificate of {phase.info.identity} {alert_text}: {details}"
    if alert in _NOTHING_IN_COMMON and not phase.established:
        return _nothing_in_common(alert_text, peer, phase)
    return f"{peer.name} ended the TLS handshake {alert_text}"


def _nothing_in_common(detail: str, peer: Peer, phase: HandshakePhase) -> str:
    suites = ", ".join(phase.info.suites) or "the default ones"
    return (
        f"no TLS version or cipher suite in common with {peer.name} {detail}: this client has "
        f"{', '.join(phase.info.versions)} with {suites} (ssl.enabled.protocols, ssl.cipher.suites)"
    )
