"""TLS contexts: trusted certificates, own certificate, versions and cipher suites.

A context is not pickled: only settings are, and each process reads the files itself.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_producer.common.secret import Secret
from spark_producer.errors import TlsFailed
from spark_producer.security.cipher_suites import TLS_1_2, TLS_1_3, choose
from spark_producer.security.key_files import key_file
from spark_producer.security.pem import pem_text
from spark_producer.security.settings import Store, TlsSettings
from spark_producer.security.stores import KeyStoreEntry, TrustStore, load_identity, load_trust
from spark_producer.security.x509 import Certificate, read_certificate

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_MAX_PASSWORD_BYTES = 1024
"""Maximum bytes of a key's password in `ssl`, OpenSSL's PEM_BUFSIZE."""


@dataclass(frozen=True, slots=True)
class ContextInfo:
    """The properties of a context that messages show."""

    trust: str = "the system's certificates"
    trusted: int = 0
    """The number of trusted certificates; 0 for those of the system, which OpenSSL reads on demand."""
    identity: str = ""
    """The file of the own certificate; empty if there is none."""
    own: Certificate | None = None
    versions: tuple[str, ...] = (TLS_1_2, TLS_1_3)
    suites: tuple[str, ...] = ()


class TlsContext(ssl.SSLContext):
    """A context that keeps its properties for messages, since `ssl` does not expose them."""

    info: ContextInfo = ContextInfo()


def client_context(settings: TlsSettings, allowed: Sequence[str]) -> TlsContext:
    """Return a context for connections to brokers. Each call reads the files and resolves references to secrets.

    It does not use `ssl.create_default_context`, which since Python 3.13 rejects CAs that Java accepts (VERIFY_X509_STRICT). As
    in Java, a truststore may hold only the broker's own certificate (VERIFY_X509_PARTIAL_CHAIN).

    Raises:
        TlsFailed: a file cannot be read or used (fatal).
        ConfigError: protocols and cipher suites contradict each other, or a reference cannot be resolved.
    """
    context = TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    choice = _restrict(context, settings.protocols, settings.cipher_suites)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = settings.check_name and settings.verify
    context.verify_mode = ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE
    trust = load_trust(settings.trust, allowed) if settings.trust is not None else None
    if trust is not None:
        _load_trust(context, trust)
    elif settings.verify:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    identity = load_identity(settings.identity, allowed) if settings.identity is not None else None
    if identity is not None:
        _load_identity(context, identity)
    context.info = ContextInfo(
        trust=trust.origin if trust else ContextInfo().trust,
        trusted=len(trust.certificates) if trust else 0,
        identity=identity.origin if identity else "",
        own=read_certificate(identity.chain[0]) if identity else None,
        versions=choice,
        suites=settings.cipher_suites,
    )
    return context


def server_context(
    certificate: str, key: str, client_ca: str | None = None, key_password: Secret | None = None
) -> TlsContext:
    """Return a context for a listener, given the files of its chain, its key (may be the same file), and its clients' CAs.

    With `client_ca` a client must have a certificate that one of these has signed; otherwise none is requested.

    Raises:
        TlsFailed: a file cannot be read or used (fatal).
    """
    context = TlsContext(ssl.PROTOCOL_TLS_SERVER)
    versions = _restrict(context, TlsSettings().protocols, ())
    files = Store(location=certificate, key_location=key, key_password=key_password)
    identity = load_identity(files, (), ("certificate (--tls-cert)", "key (--tls-key)"))
    _load_identity(context, identity)
    trust = load_trust(Store(location=client_ca), (), "client CA (--tls-client-ca)") if client_ca is not None else None
    if trust is not None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_mode = ssl.CERT_REQUIRED
        _load_trust(context, trust)
    context.info = ContextInfo(
        trust=trust.origin if trust else "no certificate",
        trusted=len(trust.certificates) if trust else 0,
        identity=identity.origin,
        own=read_certificate(identity.chain[0]),
        versions=versions,
    )
    return context


def _restrict(context: TlsContext, protocols: Sequence[str], suites: Sequence[str]) -> tuple[str, ...]:
    choice = choose(protocols, suites)
    context.minimum_version = _VERSIONS[choice.versions[0]]
    context.maximum_version = _VERSIONS[choice.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION
    if choice.suites:
        try:
            context.set_ciphers(choice.suites)
        except ssl.SSLError as error:
            raise TlsFailed(
                f"this OpenSSL supports none of the cipher suites {', '.join(suites)}. Change ssl.cipher.suites",
                fatal=True,
            ) from error
    return choice.versions


def _load_trust(context: TlsContext, trust: TrustStore) -> None:
    for number, certificate in enumerate(trust.certificates, 1):
        try:
            context.load_verify_locations(cadata=certificate)
        except ssl.SSLError as error:
            raise TlsFailed(
                f"certificate {number} of {trust.origin} cannot be read: {error.reason or error}", fatal=True
            ) from error


def _load_identity(context: TlsContext, identity: KeyStoreEntry) -> None:
    """Load certificate and key. Without a password function OpenSSL would prompt on the terminal and block."""
    prompted = False

    def password() -> bytes:
        nonlocal prompted
        prompted = True
        return identity.key_password.reveal().encode() if identity.key_password else b""

    chain = "".join(pem_text("CERTIFICATE", certificate) for certificate in identity.chain)
    try:
        with key_file(Secret(identity.key.reveal() + chain)) as path:
            context.load_cert_chain(path, password=password)
    except ValueError as error:  # raised for a password that is too long; an SSLError is an OSError
        raise _unusable(identity, f"a key's password has at most {_MAX_PASSWORD_BYTES} bytes") from error
    except OSError as error:
        raise _unusable(
            identity, _load_problem(identity, getattr(error, "reason", None) or str(error), prompted)
        ) from error


def _load_problem(identity: KeyStoreEntry, reason: str, prompted: bool) -> str:
    if prompted and not identity.key_password:
        return "the key is encrypted. Set ssl.key.password"
    if "KEY_VALUES_MISMATCH" in reason:
        return "the key does not match the certificate; a file with a chain must begin with the certificate of the key"
    if prompted:
        return "ssl.key.password does not decrypt the key"
    return f"OpenSSL reports {reason}"


def _unusable(identity: KeyStoreEntry, rule: str) -> TlsFailed:
    return TlsFailed(f"the key and certificate of {identity.origin} cannot be used: {rule}", fatal=True)
