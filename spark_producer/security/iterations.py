"""Limits the iterations of the password hash of a file: a hostile file could keep a process busy for hours.

OpenSSL computes any number of iterations that a PKCS12 file (RFC 7292) or an encrypted key (RFC 8018) asks for, so it is checked
before.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from spark_producer.security.der import INTEGER, OCTET_STRING, SEQUENCE, Element, elements

MAX_ITERATIONS: Final = 1_000_000
"""Maximum number of iterations, as for SCRAM. OpenSSL writes 2,048, Java 10,000; a million take about a second."""

_MAX_ELEMENTS: Final = 500_000
"""Maximum number of elements of a file. A store of a thousand certificates has about 100,000."""

_CONSTRUCTED: Final = 0x20


def iterations_problem(der: bytes) -> str:
    """Return why a PKCS12 file or an encrypted key must not be opened; empty if it may be opened."""
    waiting = [memoryview(der)]
    seen = 0
    while waiting:
        data = waiting.pop()
        try:
            for found in elements(data):
                seen += 1
                if seen > _MAX_ELEMENTS:
                    return f"it has more than {_MAX_ELEMENTS} elements, the maximum of a key store"
                if _iterations(found) > MAX_ITERATIONS:
                    return f"it needs more than {MAX_ITERATIONS} iterations to open it"
                # an octet string often holds DER again
                if found.tag & _CONSTRUCTED or (found.tag == OCTET_STRING and bytes(found.content[:1]) == b"\x30"):
                    waiting.append(found.content)
        except ValueError:  # not DER, which the reader of the file reports
            continue
    return ""


def _iterations(found: Element) -> int:
    """Return the iterations in parameters of PBES1 or PBKDF2 (salt, number, …), or in MacData (digest, salt, number); else 0."""
    if found.tag != SEQUENCE:
        return 0
    try:
        parts = list(islice(found.children(), 3))
    except ValueError:
        return 0
    tags = [part.tag for part in parts]
    if tags[:2] == [OCTET_STRING, INTEGER]:
        return int.from_bytes(parts[1].content[:16], "big")
    return int.from_bytes(parts[2].content[:16], "big") if tags == [SEQUENCE, OCTET_STRING, INTEGER] else 0
