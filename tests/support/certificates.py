"""Certificates and keys as files: of brokers and clients, good ones and each kind of bad one.

Owns: a CA, a CA that is not trusted, and what they issue. Must not know: who uses the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

BROKER_NAMES = ("localhost", "127.0.0.1")
ORGANIZATION, UNIT = "pyproducer", "tests"
"""The same in all: a broker takes a new certificate while it runs only for the same subject and names."""
KEY_PASSWORD = "key-pw-7314"
RSA, EC = trustme.KeyType.RSA, trustme.KeyType.ECDSA


class Certificates:
    """A folder with `ca.pem`, and with the files that were issued: NAME.pem (key and chain), NAME.crt and NAME.key."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._ca = trustme.CA(organization_name=ORGANIZATION, organization_unit_name="CA")
        self._stranger = trustme.CA(organization_name="stranger", organization_unit_name="another CA")
        self._ca.cert_pem.write_to_path(home / "ca.pem")
        self._stranger.cert_pem.write_to_path(home / "stranger-ca.pem")

    @property
    def ca(self) -> Path:
        """The certificate of the CA."""
        return self.home / "ca.pem"

    @property
    def other_ca(self) -> Path:
        """The certificate of the CA that is not trusted."""
        return self.home / "stranger-ca.pem"

    def file(self, name: str) -> Path:
        """Return the path of a file."""
        return self.home / name

    def issue(
        self,
        name: str,
        identities: Sequence[str] = BROKER_NAMES,
        *,
        common_name: str | None = None,
        key_type: trustme.KeyType = EC,
        days: tuple[int, int] = (-1, 30),
        trusted: bool = True,
    ) -> None:
        """Write the files of a new certificate, valid from and until some days from now, over those of its name."""
        now = datetime.now(UTC)
        issued = (self._ca if trusted else self._stranger).issue_cert(
            *identities,
            common_name=common_name,
            organization_name=ORGANIZATION,
            organization_unit_name=UNIT,
            not_before=now + timedelta(days=days[0]),
            not_after=now + timedelta(days=days[1]),
            key_type=key_type,
        )
        # PKCS 8, which Kafka's own reader of PEM asks for
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        clear = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        locked = key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode("ascii"))
        )
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        for suffix, content in ((".key", clear), (".locked.key", locked), (".crt", chain), (".pem", clear + chain)):
            self._write(f"{name}{suffix}", content)

    def _write(self, name: str, content: bytes) -> None:
        """Replace the file atomically: a running client may read it meanwhile."""
        fresh = self.home / f"{name}.new"
        fresh.write_bytes(content)
        fresh.replace(self.home / name)
