"""A reader of Java key stores (JKS), which needs only the standard library.

The format is that of Java's class `sun.security.provider.JavaKeyStore`, the protection of keys that of `KeyProtector`: a key
stream that SHA-1 derives from the password. That is weak today, so file permissions should protect such files.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from spark_producer.common.escape import for_log
from spark_producer.common.secret import Secret
from spark_producer.errors import TlsFailed
from spark_producer.security.der import OCTET_STRING, SEQUENCE, element
from spark_producer.security.pem import pem_text

MAGIC: Final = b"\xfe\xed\xfe\xed"
_KEY, _CERTIFICATE = 1, 2
_CHECK_BYTES: Final = 20
"""Bytes of a SHA-1 digest, of a salt, and of the check at the end of a file and of a key."""
_WHITENER: Final = b"Mighty Aphrodite"
_ALGORITHM: Final = bytes.fromhex("2b060104012a02110101")
"""1.3.6.1.4.1.42.2.17.1.1, Sun's key protection algorithm."""


class ProtectedKey(NamedTuple):
    """An encrypted private key, and its certificate chain with its own certificate first."""

    alias: str
    protected: bytes
    chain: tuple[bytes, ...]


class JavaKeyStore(NamedTuple):
    """The contents of a file: certificates in DER, and keys."""

    certificates: tuple[bytes, ...]
    keys: tuple[ProtectedKey, ...]


def read_jks(data: bytes, origin: str, password: Secret | None) -> JavaKeyStore:
    """Return the contents of a file. With a password the digest of the file is verified, as in Java. Keys stay encrypted.

    Raises:
        TlsFailed: the file is damaged or truncated, or the password is wrong (fatal). `origin` is its name in the message.
    """
    if len(data) < _CHECK_BYTES or not data.startswith(MAGIC):
        raise _bad(origin, "it is not a Java key store, or is truncated")
    body = data[:-_CHECK_BYTES]
    if password is not None and not hmac.compare_digest(_check(body, password), data[-_CHECK_BYTES:]):
        raise _bad(origin, "the password of the store is wrong, or the file is damaged")
    try:
        return _entries(_Cursor(body[len(MAGIC) :]))
    except (struct.error, ValueError) as error:
        raise _bad(origin, "it is damaged") from error


def decrypt_key(key: ProtectedKey, origin: str, password: Secret | None) -> Secret:
    """Return a private key as PEM.

    Raises:
        TlsFailed: the password is missing or wrong, or the key has another protection (fatal).
    """
    if password is None:
        raise _bad(origin, f"its key {key.alias!r} needs a password. Set ssl.keystore.password")
    try:
        algorithm, held = (element(key.protected, SEQUENCE).child(index) for index in (0, 1))
        known = bytes(algorithm.child(0).content) == _ALGORITHM and held.tag == OCTET_STRING
    except ValueError as error:
        raise _bad(origin, f"its key {key.alias!r} is damaged") from error
    if not known or len(held.content) < 2 * _CHECK_BYTES:
        raise _bad(origin, f"its key {key.alias!r} has a protection that Java key stores do not use")
    found = _decrypted(bytes(held.content), password)
    if found is None:
        raise _bad(
            origin, f"the password does not decrypt its key {key.alias!r} (ssl.key.password, ssl.keystore.password)"
        )
    return found


class _Cursor:
    """Reads big-endian values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        value: int = struct.unpack_from(form, self._data, self._at)[0]
        self._at += struct.calcsize(form)
        return value

    def take(self, size: int) -> bytes:
        if len(self._data) - self._at < size:
            raise ValueError("it is truncated")
        self._at += size
        return self._data[self._at - size : self._at]

    def at_end(self) -> bool:
        return self._at == len(self._data)


def _entries(cursor: _Cursor) -> JavaKeyStore:
    version, count = cursor.number(">I"), cursor.number(">I")
    if version not in (1, 2):
        raise ValueError("its version is unknown")
    certificates: list[bytes] = []
    keys: list[ProtectedKey] = []
    for _ in range(count):
        tag = cursor.number(">I")
        alias = for_log(cursor.take(cursor.number(">H")))
        cursor.take(8)  # the time of its creation
        if tag == _CERTIFICATE:
            certificates.append(_certificate(cursor, version))
        elif tag == _KEY:
            protected = cursor.take(cursor.number(">I"))
            length = cursor.number(">I")
            keys.append(ProtectedKey(alias, protected, tuple(_certificate(cursor, version) for _ in range(length))))
        else:
            raise ValueError("an entry has an unknown type")
    if not cursor.at_end():
        raise ValueError("bytes follow the last entry")
    return JavaKeyStore(tuple(certificates), tuple(keys))


def _certificate(cursor: _Cursor, version: int) -> bytes:
    if version > 1:
        cursor.take(cursor.number(">H"))  # its type, always X.509
    return cursor.take(cursor.number(">I"))


def _check(body: bytes, password: Secret) -> bytes:
    return hashlib.sha1(_characters(password) + _WHITENER + body).digest()


def _decrypted(content: bytes, password: Secret) -> Secret | None:
    """Return the key, or None if the check fails. It raises nothing, so that no traceback holds a key."""
    salt, hidden, check = content[:_CHECK_BYTES], content[_CHECK_BYTES:-_CHECK_BYTES], content[-_CHECK_BYTES:]
    stream = bytearray()
    block = salt
    while len(stream) < len(hidden):
        block = hashlib.sha1(_characters(password) + block).digest()
        stream += block
    plain = (int.from_bytes(hidden, "big") ^ int.from_bytes(stream[: len(hidden)], "big")).to_bytes(len(hidden), "big")
    if not hmac.compare_digest(hashlib.sha1(_characters(password) + plain).digest(), check):
        return None
    return Secret(pem_text("PRIVATE KEY", plain))


def _characters(password: Secret) -> bytes:
    return password.reveal().encode("utf-16-be", "surrogatepass")


def _bad(origin: str, rule: str) -> TlsFailed:
    return TlsFailed(f"the key store {origin} cannot be used: {rule}", fatal=True)
