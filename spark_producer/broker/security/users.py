"""The users of the broker: their SCRAM keys, and no passwords.

An unknown name gets keys too. They are checked like a user's, and fail at the end, so neither a response nor its time reveals who
is a user (CVE-2021-38153 was a comparison that revealed it).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.common.escape import escaping_logger
from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError

logger = escaping_logger(__name__)

ITERATIONS: Final = 4096
"""Number of SCRAM iterations: the minimum that clients accept (RFC 7677), and the default of Kafka's brokers. It is the same for
all users."""

_SALT_BYTES: Final = 16


class ScramKeys(NamedTuple):
    """The keys of one user in one SCRAM mechanism. With `real` False there is no such user."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    real: bool


class Users:
    """The users with their keys, derived from `passwords` by name.

    Raises:
        ConfigError: a name or a password is empty, or cannot be sent by any client.
    """

    def __init__(self, passwords: Mapping[str, str | Secret]) -> None:
        from spark_producer.security.scram import HASHES

        hidden = {name: _hidden(password) for name, password in passwords.items()}
        del passwords  # a traceback may show it
        self.names = tuple(hidden)
        self._secret = secrets.token_bytes(32)
        for name, password in hidden.items():
            _check(name, password)
        self._keys: dict[tuple[str, str], ScramKeys] = {}
        with ThreadPoolExecutor() as threads:  # 3.5 ms for each user, during which hashlib holds no lock
            for mechanism, hash_name in HASHES.items():
                derived = threads.map(partial(_keys, hash_name), hidden.values())
                self._keys |= {(mechanism, name): keys for name, keys in zip(hidden, derived, strict=True)}

    @classmethod
    def read(cls, path: Path | str) -> Users:
        """Return the users of a file with lines `name=password`; empty lines, and lines that begin with `#`, are ignored.

        The password is the rest of the line, unchanged. A file that others may read causes a warning.

        Raises:
            ConfigError: the file cannot be read, or a line is malformed; no error shows the line.
        """
        passwords = _passwords_of(Path(path))
        if isinstance(passwords, str):
            raise ConfigError(passwords)
        return cls(passwords)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Users({', '.join(self.names)})"

    def keys(self, mechanism: str, name: str) -> ScramKeys:
        """Return the keys of `name` in a SCRAM mechanism; for an unknown name, keys that no password has."""
        fake_keys = self._fake_keys(mechanism, name)
        return self._keys.get((mechanism, name), fake_keys)

    def check(self, name: str, password: bytes) -> bool:
        """Return whether the user has this password, in a time that reveals neither."""
        from spark_producer.security.scram import HASHES, keys_of

        mechanism = "SCRAM-SHA-256"
        keys = self.keys(mechanism, name)
        derived = keys_of(HASHES[mechanism], password, keys.salt, keys.iterations)
        same = hmac.compare_digest(derived.stored_key, keys.stored_key)
        return same and keys.real

    def _fake_keys(self, mechanism: str, name: str) -> ScramKeys:
        """Return fake keys, which are the same for the same name as long as the broker runs, like a user's."""
        from spark_producer.security.scram import HASHES

        hash_name = HASHES[mechanism]
        seed = hmac.digest(self._secret, f"{mechanism},{name}".encode("utf-8", "surrogatepass"), "sha512")
        size = hashlib.new(hash_name).digest_size
        stored = hmac.digest(self._secret, seed, "sha512")[:size]
        return ScramKeys(seed[:_SALT_BYTES], ITERATIONS, stored, stored, real=False)


def _passwords_of(path: Path) -> dict[str, Secret] | str:
    """Return the passwords of a file, or its error message: as a value, since the local variables here hold passwords."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return f"the file of users {path} cannot be read: {reason}"
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("others may read the passwords in %s: chmod 600 %s", path, path)
    passwords: dict[str, Secret] = {}
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\r")
        if not text.strip() or text.startswith("#"):
            continue
        name, equals, password = text.partition("=")
        if not equals or not name or not password:
            return f"line {number} of the file of users {path} is not name=password"
        if name in passwords:
            return f"line {number} of the file of users {path} repeats a user"
        passwords[name] = Secret(password)
    return passwords


def _hidden(password: str | Secret) -> Secret:
    return password if isinstance(password, Secret) else Secret(password)


def _check(name: str, password: Secret) -> None:
    if not name or not password or "\0" in name or "\0" in password.reveal():
        raise ConfigError("users need a name and a password, neither empty nor with the character NUL")


def _keys(hash_name: str, password: Secret) -> ScramKeys:
    from spark_producer.security.scram import keys_of

    salt = secrets.token_bytes(_SALT_BYTES)
    derived = keys_of(hash_name, password.reveal().encode("utf-8", "surrogatepass"), salt, ITERATIONS)
    return ScramKeys(salt, ITERATIONS, *derived, real=True)
