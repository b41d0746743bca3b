"""Stores of certificates and keys, in files of any format or as text, as the bytes that a TLS context takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.errors import ConfigError, TlsFailed
from spark_producer.secret import Secret
from spark_producer.security.pem import CERTIFICATE_LABELS, KEY_LABELS, blocks, der_of
from spark_producer.security.references import resolve
from spark_producer.security.settings import Store

LARGEST_STORE: Final = 16 * 1024 * 1024
"""The most bytes of one file; all CAs of a system are about 200 kB."""


class Trust(NamedTuple):
    """Certificates to trust, in DER, and where they are from, for messages."""

    certificates: tuple[bytes, ...]
    origin: str


class Identity(NamedTuple):
    """A certificate in DER with those that lead to its CA, and its private key as PEM, which may be encrypted."""

    chain: tuple[bytes, ...]
    key: Secret
    key_password: Secret | None
    origin: str


class Contents(NamedTuple):
    """What one file holds: all certificates that a truststore of it trusts, and a key with its chain if there is one."""

    certificates: tuple[bytes, ...] = ()
    chain: tuple[bytes, ...] = ()
    key: Secret | None = None


def load_trust(store: Store, allowed: Sequence[str]) -> Trust:
    """Return the certificates that `store` says to trust.

    Raises:
        TlsFailed: a file cannot be read, is damaged, or holds no certificate (fatal).
        ConfigError: a reference to a secret cannot be resolved.
    """
    if store.pem:
        return Trust(_some(_pem(store.pem, "ssl.truststore.certificates").certificates, store), "the PEM text")
    path = Path(store.location)
    files = sorted(trusted_files(path)) if path.is_dir() else [path]
    found = [certificate for file in files for certificate in _contents(file).certificates]
    return Trust(_some(tuple(found), store), str(path))


def load_identity(store: Store, allowed: Sequence[str]) -> Identity:
    """Return the certificate and key that `store` names.

    Raises:
        TlsFailed: a file cannot be read, is damaged, or has no key or no certificate (fatal).
        ConfigError: a reference to a secret cannot be resolved.
    """
    key_password = _resolved(store.key_password, allowed, "ssl.key.password") or _resolved(
        store.password, allowed, "ssl.keystore.password"
    )
    origin = store.location or "the PEM text"
    held = _contents(Path(store.location)) if store.location else _pem(store.pem, "ssl.keystore.certificate.chain")
    key = held.key
    if store.key_location:
        origin = f"{origin} and {store.key_location}"
        key = _contents(Path(store.key_location)).key
    elif store.key_pem:
        origin = f"{origin} and ssl.keystore.key"
        key = _key_of(_resolved(store.key_pem, allowed, "ssl.keystore.key"), "ssl.keystore.key")
    if key is None:
        raise TlsFailed(
            f"there is no private key in {origin}: add it to the keystore, or give it by ssl.key.location or ssl.keystore.key",
            fatal=True,
        )
    if not held.chain:
        raise TlsFailed(f"there is no certificate for the private key in {origin}", fatal=True)
    return Identity(held.chain, key, key_password, origin)


def trusted_files(folder: Path) -> list[Path]:
    """Return the files of a folder of certificates; hidden ones, which mounted secrets of Kubernetes have, are left out."""
    try:
        return [path for path in folder.iterdir() if path.name[0] != "." and path.is_file()]
    except OSError as error:
        raise _unreadable(folder, error) from error


def _contents(path: Path) -> Contents:
    """Read one file, whatever its name and declared type say of its format: the first bytes decide."""
    data = _read(path)
    if b"-----BEGIN " in data:
        return _pem(data.decode("utf-8", "replace"), str(path))
    raise TlsFailed(f"{path} is neither PEM, JKS nor PKCS12", fatal=True)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_STORE + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > LARGEST_STORE:
        raise TlsFailed(f"{path} has more than {LARGEST_STORE} bytes, which is no store of certificates", fatal=True)
    return data


def _pem(text: str, origin: str) -> Contents:
    certificates = []
    key = None
    for block in blocks(text):
        if block.label in CERTIFICATE_LABELS:
            try:
                certificates.append(der_of(block))
            except ValueError as error:
                raise TlsFailed(f"certificate {len(certificates) + 1} of {origin}: {error}", fatal=True) from error
        elif block.label in KEY_LABELS and key is None:
            key = Secret(block.text)
    return Contents(tuple(certificates), tuple(certificates), key)


def _key_of(text: Secret | None, origin: str) -> Secret:
    key = _pem(text.reveal(), origin).key if text else None
    if key is None:
        raise ConfigError(f"{origin} holds no private key in PEM (-----BEGIN PRIVATE KEY-----)")
    return key


def _some(certificates: tuple[bytes, ...], store: Store) -> tuple[bytes, ...]:
    if not certificates:
        raise TlsFailed(
            f"there is no certificate in {store.location or 'the PEM text of the truststore'}: "
            "nothing could be trusted (ssl.truststore.location, ssl.ca.location)",
            fatal=True,
        )
    return certificates


def _resolved(secret: Secret | None, allowed: Sequence[str], option: str) -> Secret | None:
    return Secret(resolve(secret, allowed, name=option)) if secret is not None else None


def _unreadable(path: Path, error: OSError) -> TlsFailed:
    return TlsFailed(f"cannot read {path}: {error.strerror or error}", fatal=True)
