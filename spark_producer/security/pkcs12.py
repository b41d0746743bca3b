"""A reader of PKCS12 key stores (RFC 7292), which needs the library `cryptography` (the extra `pkcs12`)."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from spark_producer.common.secret import Secret
from spark_producer.errors import TlsFailed
from spark_producer.security.iterations import iterations_problem


class Pkcs12Store(NamedTuple):
    """The contents of a file: the key as PEM and its certificate, if there are any, and all other certificates in DER."""

    key: Secret | None
    certificate: bytes | None
    others: tuple[bytes, ...]


def read_pkcs12(data: bytes, origin: str, password: Secret | None) -> Pkcs12Store:
    """Return the contents of a file. The CAs of a truststore that keytool has written are in `others`.

    Raises:
        TlsFailed: `cryptography` is missing, the password is wrong, or the file is damaged (fatal). `origin` is its name in the
            message.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as error:
        raise TlsFailed(
            f"the key store {origin} is in PKCS12, which needs cryptography. Run pip install 'pyproducer[pkcs12]'. Or convert it "
            f"to PEM: openssl pkcs12 -in {origin} -out {origin}.pem -nodes",
            fatal=True,
        ) from error
    if problem := iterations_problem(data):
        raise TlsFailed(f"the key store {origin} cannot be used: {problem}", fatal=True)
    try:
        with warnings.catch_warnings():  # of cryptography, for a file that is no DER: it is read, or refused below
            warnings.simplefilter("ignore", UserWarning)
            found = load_pkcs12(data, password.reveal().encode() if password is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        rule = "the password is wrong, or the file is damaged" if password is not None else "it needs a password"
        raise TlsFailed(f"the key store {origin} cannot be used: {rule}", fatal=True) from error
    return Pkcs12Store(
        key=Secret(found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
        if found.key is not None
        else None,
        certificate=found.cert.certificate.public_bytes(Encoding.DER) if found.cert is not None else None,
        others=tuple(one.certificate.public_bytes(Encoding.DER) for one in found.additional_certs),
    )
