"""Reads certificates and keys from files of any format, or from text, into the bytes that a TLS context needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError, TlsFailed
from spark_producer.security.iterations import iterations_problem
from spark_producer.security.jks import MAGIC, JavaKeyStore, ProtectedKey, decrypt_key, read_jks
from spark_producer.security.pem import CERTIFICATE_LABELS, KEY_LABELS, PemBlock, der_of, pem_blocks
from spark_producer.security.pkcs12 import Pkcs12Store, read_pkcs12
from spark_producer.security.references import resolve
from spark_producer.security.settings import Store

MAX_STORE_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of one file; all CAs of a system have about 200 kB."""

MAX_CERTIFICATES: Final = 10_000
"""Maximum number of certificates in a store. Systems trust about 150; OpenSSL's time grows with the square."""

_JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"


class TrustStore(NamedTuple):
    """Trusted certificates in DER, and their file, for messages."""

    certificates: tuple[bytes, ...]
    origin: str


class KeyStoreEntry(NamedTuple):
    """A certificate chain in DER, and its private key as PEM, which may be encrypted."""

    chain: tuple[bytes, ...]
    key: Secret
    key_password: Secret | None
    origin: str


class StoreContents(NamedTuple):
    """The contents of one file: the certificates that it has as a truststore, and its key with the chain, if there is one."""

    certificates: tuple[bytes, ...] = ()
    chain: tuple[bytes, ...] = ()
    key: Secret | None = None
    protected: ProtectedKey | None = None
    """The encrypted key of a Java key store, which may have its own password."""


class FileContent:
    """The bytes of a file, wrapped so that a traceback with local variables does not show them: they may hold a private key."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def load_trust(
    store: Store, allowed: Sequence[str], option: str = "ssl.truststore.location (or ssl.ca.location)"
) -> TrustStore:
    """Return the trusted certificates of `store`. Errors name `option` as the source of the file name.

    Raises:
        TlsFailed: a file cannot be read, is damaged, or has no certificate (fatal).
        ConfigError: a reference to a secret cannot be resolved.
    """
    if store.pem:
        return TrustStore(
            _checked(_pem(Secret(store.pem), "ssl.truststore.certificates").certificates, store), "the PEM text"
        )
    path = Path(store.location)
    password = _resolved(store.password, allowed, "ssl.truststore.password")
    with _prefixing_errors(option):
        files = sorted(trusted_files(path)) if path.is_dir() else [path]
        found = [certificate for file in files for certificate in _contents(file, password).certificates]
    return TrustStore(_checked(tuple(found), store), str(path))


def load_identity(
    store: Store,
    allowed: Sequence[str],
    options: tuple[str, str] = ("ssl.certificate.location", "ssl.key.location"),
) -> KeyStoreEntry:
    """Return the certificate and key of `store`. Errors name the one of the `options` that has the file.

    Raises:
        TlsFailed: a file cannot be read, is damaged, or has no key or no certificate (fatal).
        ConfigError: a reference to a secret cannot be resolved.
    """
    password = _resolved(store.password, allowed, "ssl.keystore.password")
    key_password = _resolved(store.key_password, allowed, "ssl.key.password") or password
    origin = store.location or "the PEM text"
    if store.location:
        with _prefixing_errors(options[0] if store.key_location else "ssl.keystore.location"):
            contents = _contents(Path(store.location), password)
    else:
        contents = _pem(Secret(store.pem), "ssl.keystore.certificate.chain")
    key = contents.key
    if store.key_location:
        if store.key_location != store.location:
            origin = f"{origin} and {store.key_location}"
        with _prefixing_errors(options[1]):
            key = _contents(Path(store.key_location), password).key
    elif store.key_pem:
        origin = f"{origin} and ssl.keystore.key"
        key = _key_of(_resolved(store.key_pem, allowed, "ssl.keystore.key"), "ssl.keystore.key")
    elif contents.protected is not None:
        key = decrypt_key(contents.protected, origin, key_password)
    if key is None:
        advice = "Add it to the keystore, or set ssl.key.location or ssl.keystore.key"
        if options[1] != "ssl.key.location":  # the embedded broker, which has no keystore
            advice = f"Give its file as {options[1]}"
        raise TlsFailed(f"no private key in {origin}. {advice}", fatal=True)
    if not contents.chain:
        raise TlsFailed(f"no certificate for the private key in {origin}. Add it, before those of the CAs", fatal=True)
    return KeyStoreEntry(_checked(contents.chain, store), key, key_password, origin)


def trusted_files(directory: Path) -> list[Path]:
    """Return the files of a directory of certificates, except hidden ones, which mounted Kubernetes secrets have."""
    try:
        return [path for path in directory.iterdir() if path.name[0] != "." and path.is_file()]
    except OSError as error:
        raise _unreadable(directory, error) from error


def _contents(path: Path, password: Secret | None) -> StoreContents:
    """Return the contents of one file. Its first bytes decide on the format, not its name or the declared type."""
    content = _read(path)
    start = content.data[:4]
    if start == MAGIC:
        return _java(read_jks(content.data, str(path), password))
    if start == _JCEKS_MAGIC:
        raise TlsFailed(
            f"{path} is a JCEKS key store, which is not supported: convert it with keytool -importkeystore -srckeystore {path} "
            "-srcstoretype JCEKS -deststoretype PKCS12 -destkeystore FILE.p12",
            fatal=True,
        )
    if b"-----BEGIN " in content.data:
        return _pem(Secret(content.data.decode("utf-8", "replace")), str(path))
    if start[:1] == b"\x30" and start[1:2] >= b"\x80":
        return _pkcs12(read_pkcs12(content.data, str(path), password))
    raise TlsFailed(f"{path} is neither PEM, JKS nor PKCS12", fatal=True)


def _java(store: JavaKeyStore) -> StoreContents:
    """Return the contents of a Java key store. As in Java, the first certificate of each key is trusted too."""
    first = store.keys[0] if store.keys else None
    own = tuple(key.chain[0] for key in store.keys if key.chain)
    return StoreContents(store.certificates + own, first.chain if first else (), None, first)


def _pkcs12(store: Pkcs12Store) -> StoreContents:
    own = (store.certificate,) if store.certificate is not None else ()
    return StoreContents(own + store.others, own + store.others if store.key is not None else (), store.key)


def _read(path: Path) -> FileContent:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would block until it has a writer
            raise TlsFailed(f"{path} is not a regular file", fatal=True)
        with path.open("rb") as file:
            content = FileContent(file.read(MAX_STORE_BYTES + 1))
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(content.data) > MAX_STORE_BYTES:
        raise TlsFailed(
            f"{path} is too large: it has more than {MAX_STORE_BYTES} bytes, the maximum of a key store", fatal=True
        )
    return content


def _pem(text: Secret, origin: str) -> StoreContents:
    certificates = []
    key = None
    for block in pem_blocks(text.reveal()):
        if block.label in CERTIFICATE_LABELS:
            try:
                certificates.append(der_of(block))
            except ValueError as error:
                raise TlsFailed(f"certificate {len(certificates) + 1} of {origin}: {error}", fatal=True) from error
        elif block.label in KEY_LABELS and key is None:
            key = _openable(block, origin)
    return StoreContents(tuple(certificates), tuple(certificates), key)


def _openable(block: PemBlock, origin: str) -> Secret:
    if block.label == "ENCRYPTED PRIVATE KEY":
        try:
            problem = iterations_problem(der_of(block))
        except ValueError as error:
            problem = str(error)
        if problem:
            raise TlsFailed(f"the private key of {origin} cannot be used: {problem}", fatal=True)
    return Secret(block.text)


def _key_of(text: Secret | None, origin: str) -> Secret:
    key = _pem(text, origin).key if text else None
    if key is None:
        raise ConfigError(f"{origin} has no private key in PEM (-----BEGIN PRIVATE KEY-----)")
    return key


def _checked(certificates: tuple[bytes, ...], store: Store) -> tuple[bytes, ...]:
    if not certificates:
        raise TlsFailed(
            f"no certificate in {store.location or 'the PEM text of the truststore'}, so that nothing could be trusted "
            "(ssl.truststore.location, ssl.ca.location)",
            fatal=True,
        )
    if len(certificates) > MAX_CERTIFICATES:
        raise TlsFailed(
            f"{store.location or 'the PEM text'} has {len(certificates)} certificates; the maximum is {MAX_CERTIFICATES}. Remove "
            "those that no broker needs",
            fatal=True,
        )
    if not all(certificates):
        raise TlsFailed(f"a certificate of {store.location or 'the PEM text'} is empty", fatal=True)
    return certificates


def _resolved(secret: Secret | None, allowed: Sequence[str], option: str) -> Secret | None:
    return Secret(resolve(secret, allowed, name=option)) if secret is not None else None


@contextlib.contextmanager
def _prefixing_errors(option: str) -> Iterator[None]:
    """Prefix errors of a file with its option: two stores may be set, and each has a password."""
    try:
        yield
    except TlsFailed as error:
        raise TlsFailed(f"{option}: {error}", fatal=True) from error.__cause__


def _unreadable(path: Path, error: OSError) -> TlsFailed:
    return TlsFailed(f"cannot read {path} on this machine: {error.strerror or error}", fatal=True)
