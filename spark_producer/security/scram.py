"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the client, and the key derivation of both sides.

There is no channel binding, since Kafka has none, and no SASLprep: Kafka uses the UTF-8 bytes of passwords, so a prepared
password would differ from the one that the broker stores (Kafka's ScramFormatter.normalize).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from spark_producer.common.escape import for_log
from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""`hashlib`'s name of the hash function of each mechanism."""

MIN_ITERATIONS: Final = 4096
"""Minimum number of iterations, as in RFC 7677 and in Kafka's client (ScramMechanism.minIterations)."""

MAX_ITERATIONS: Final = 1_000_000
"""Maximum number of iterations, checked before anything is computed, since a hostile peer could keep the thread busy for hours.

Brokers store at most 16,384; a million take 0.4 s.
"""

GS2_HEADER: Final = b"n,,"
"""The beginning of each client-first message: no channel binding, and no authorization id."""

CHANNEL_BINDING: Final = b"c=biws"
"""The header in base64, which the client-final message repeats."""

_NONCE_BYTES: Final = 24
_BASE64: Final = rb"[A-Za-z0-9+/]+={0,2}"
_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>" + _BASE64 + rb"),i=(?P<iterations>[1-9][0-9]{0,9})(?:,.*)?",
    re.DOTALL,
)
_SERVER_FINAL: Final = re.compile(rb"(?:v=(?P<signature>" + _BASE64 + rb")|e=(?P<error>[^,]*))(?:,.*)?", re.DOTALL)


# Key derivation of both sides (RFC 5802, 3)


class Keys(NamedTuple):
    """The keys that a server stores for a password: they verify a login, but do not allow one."""

    stored_key: bytes
    server_key: bytes


def salted_password(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return `Hi(password, salt, iterations)`. `hash_name` is one of `HASHES`."""
    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    """Return the key with which a client proves that it has the password."""
    return hmac.digest(salted, b"Client Key", hash_name)


def stored_key(hash_name: str, key: bytes) -> bytes:
    """Return the hash of a client's key, which a server stores."""
    return hashlib.new(hash_name, key).digest()


def server_key(hash_name: str, salted: bytes) -> bytes:
    """Return the key with which a server proves that it has the password."""
    return hmac.digest(salted, b"Server Key", hash_name)


def keys_of(hash_name: str, password: bytes, salt: bytes, iterations: int) -> Keys:
    """Return the keys that a server stores for a password."""
    salted = salted_password(hash_name, password, salt, iterations)
    return Keys(stored_key(hash_name, client_key(hash_name, salted)), server_key(hash_name, salted))


def signature(hash_name: str, key: bytes, auth_message: bytes) -> bytes:
    """Return the signature of a login with a stored key (the client's) or with a server key (the server's)."""
    return hmac.digest(key, auth_message, hash_name)


def exclusive_or(left: bytes, right: bytes) -> bytes:
    """Return the exclusive or of two strings of equal length. It is the proof for a key and a signature, and the key for a proof
    and a signature.
    """
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def proves(hash_name: str, keys: Keys, proof: bytes, auth_message: bytes) -> bool:
    """Return whether a client's proof is valid, in constant time."""
    expected = signature(hash_name, keys.stored_key, auth_message)
    if len(proof) != len(expected):
        return False
    return hmac.compare_digest(stored_key(hash_name, exclusive_or(proof, expected)), keys.stored_key)


def escaped_name(name: str) -> bytes:
    """Return a user name in SCRAM's encoding, which escapes `=` and `,`."""
    return name.replace("=", "=3D").replace(",", "=2C").encode()


def unescaped_name(written: bytes) -> str | None:
    """Return the user name of an encoded name; None if the encoding is invalid."""
    if not re.fullmatch(rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+", written):
        return None
    return written.decode("ascii").replace("=2C", ",").replace("=3D", "=")


def strict_base64(text: bytes) -> bytes | None:
    """Return the decoded bytes; None if `text` is not the canonical base64 of them."""
    if len(text) % 4 or not re.fullmatch(_BASE64, text):
        return None
    decoded = base64.b64decode(text)
    return decoded if base64.b64encode(decoded) == text else None


def fresh_nonce() -> str:
    """Return a new nonce: printable, without commas."""
    return secrets.token_urlsafe(_NONCE_BYTES)


# The client's side


def scram(
    mechanism: str,
    username: str,
    password: Secret,
    *,
    token_auth: bool = False,
    nonce: Callable[[], str] = fresh_nonce,
) -> Generator[bytes, bytes, None]:
    """Log in with SCRAM: `next` returns the first message, `send(challenge)` each following one.

    It returns only after the server has proved that it has the user's keys. With `token_auth` the name and password are the id
    and the HMAC of a delegation token.

    Raises:
        AuthenticationFailed: the name is invalid for SCRAM, the server violates the RFCs or rejects the login, or its signature
            is wrong (fatal).
    """
    hash_name = HASHES[mechanism]
    if not password:
        raise AuthenticationFailed(
            f"{mechanism} needs a password, and it is empty. Set kafka.sasl.password", fatal=True
        )
    remember(password)  # only proofs of it are sent, but the broker may store it in clear text
    own_nonce = nonce().encode("ascii")
    bare = b"n=%s,r=%s%s" % (_checked_name(mechanism, username), own_nonce, b",tokenauth=true" if token_auth else b"")
    server_first = yield GS2_HEADER + bare
    full_nonce, salt, iterations = _parsed_first(mechanism, server_first, own_nonce)
    without_proof = CHANNEL_BINDING + b",r=" + full_nonce
    auth_message = b",".join((bare, server_first, without_proof))
    proof, expected = _proof_and_expected_signature(hash_name, password, salt, iterations, auth_message)
    server_final = yield without_proof + b",p=" + base64.b64encode(proof)
    _check_final(mechanism, server_final, expected)


def _proof_and_expected_signature(
    hash_name: str, password: Secret, salt: bytes, iterations: int, auth_message: bytes
) -> tuple[bytes, bytes]:
    """Return the client's proof, and the expected signature of the server.

    The keys exist only in this function, which raises nothing, so that no traceback with local variables shows them.
    """
    salted = salted_password(hash_name, password.reveal().encode("utf-8", "surrogatepass"), salt, iterations)
    key = client_key(hash_name, salted)
    proof = exclusive_or(key, signature(hash_name, stored_key(hash_name, key), auth_message))
    return proof, signature(hash_name, server_key(hash_name, salted), auth_message)


def _checked_name(mechanism: str, username: str) -> bytes:
    if not username:
        raise AuthenticationFailed(
            f"{mechanism} needs a user name, and it is empty. Set kafka.sasl.username", fatal=True
        )
    if not username.isascii() or "\0" in username:
        raise AuthenticationFailed(
            f"the user name {for_log(username, limit=None)!r} cannot log in with {mechanism}: Kafka accepts only ASCII "
            "characters there (ScramFormatter). What to do: give the user another name, or use PLAIN or OAUTHBEARER",
            fatal=True,
        )
    return escaped_name(username)


def _parsed_first(mechanism: str, message: bytes, own_nonce: bytes) -> tuple[bytes, bytes, int]:
    """Return the nonce, salt and iterations of the server-first message."""
    rejection = re.fullmatch(rb"e=([^,]*)(?:,.*)?", message, re.DOTALL)
    if rejection:
        raise AuthenticationFailed(
            f"the broker rejected the login with {mechanism}: {for_log(rejection[1])}", fatal=True
        )
    found = _SERVER_FIRST.fullmatch(message)
    salt = strict_base64(found["salt"]) if found else None
    if found is None or salt is None:
        raise _untrusted_server(mechanism, "its first message is not a SCRAM message (RFC 5802)")
    nonce, iterations = found["nonce"], int(found["iterations"])
    if not nonce.startswith(own_nonce) or len(nonce) == len(own_nonce):
        raise _untrusted_server(mechanism, "its nonce does not extend ours")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        reason = f"it asks for {iterations} iterations; allowed are {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        raise _untrusted_server(mechanism, reason)
    return nonce, salt, iterations


def _check_final(mechanism: str, message: bytes, expected: bytes) -> None:
    """Raise an error unless the server-final message has the expected signature."""
    found = _SERVER_FINAL.fullmatch(message)
    if found and found["error"] is not None:
        raise AuthenticationFailed(
            f"the broker rejected the login with {mechanism}: {for_log(found['error'])}", fatal=True
        )
    given = strict_base64(found["signature"]) if found else None
    if given is None:
        raise _untrusted_server(mechanism, "it reports success without its signature")
    if not hmac.compare_digest(given, expected):
        raise _untrusted_server(mechanism, "its signature is wrong, so it does not have the user's keys")


def _untrusted_server(mechanism: str, reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the broker may be an impostor, or its messages were altered in transit ({mechanism}): {reason}",
        fatal=True,
    )
