"""PEM text (RFC 7468): its blocks, also where somebody put all of it on one line."""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_left
from collections import defaultdict
from typing import Final, NamedTuple

CERTIFICATE_LABELS: Final = ("CERTIFICATE", "X509 CERTIFICATE")
KEY_LABELS: Final = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY")

_BEGIN = re.compile(r"(?=-----BEGIN ([A-Z0-9 ]{1,40})-----)")
_END = re.compile(r"(?=-----END ([A-Z0-9 ]{1,40})-----)")
"""Begin and end of a block; two may share their dashes."""
_LEGACY = re.compile(r"\s*(Proc-Type:\s*4,ENCRYPTED)\s+(DEK-Info:\s*\S+)\s+(.*)", re.DOTALL)
"""The headers of a key that OpenSSL encrypted in its own old way (RFC 1421)."""
_LINE = 64


class PemBlock(NamedTuple):
    """One block: what its first line calls it, and its text in lines of its own."""

    label: str
    text: str

    def __repr__(self) -> str:
        return f"Block({self.label!r})"  # a private key must not show in a traceback


def pem_blocks(text: str) -> list[PemBlock]:
    """Return the blocks of a text; whatever lies between them is ignored.

    Line ends may be missing, blanks, or written as `\\n`: options hold such text, and OpenSSL takes none of it. The time is
    linear in the length of the text, however many blocks begin in it and do not end.
    """
    lines = text.replace("\\r", "").replace("\\n", "\n")
    ends: defaultdict[str, list[int]] = defaultdict(list)
    for end in _END.finditer(lines):
        ends[end[1]].append(end.start())
    found = []
    at = 0
    for begin in _BEGIN.finditer(lines):
        of_label = ends.get(begin[1], [])
        start = begin.start() + len(f"-----BEGIN {begin[1]}-----")
        index = bisect_left(of_label, start)
        if begin.start() < at or index == len(of_label):
            continue
        found.append(PemBlock(begin[1], _normalised(begin[1], lines[start : of_label[index]])))
        at = of_label[index] + len(f"-----END {begin[1]}-----")
    return found


def der_of(block: PemBlock) -> bytes:
    """Return the bytes of a block without headers.

    Raises:
        ValueError: it is not base64.
    """
    body = "".join(block.text.splitlines()[1:-1])
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error:
        raise ValueError("it is not base64") from None


def pem_text(label: str, der: bytes) -> str:
    """Return bytes as a block of PEM text."""
    return _normalised(label, base64.b64encode(der).decode("ascii"))


def _normalised(label: str, body: str) -> str:
    legacy = _LEGACY.fullmatch(body)
    headers = f"{legacy[1]}\n{legacy[2]}\n\n" if legacy else ""
    digits = "".join((legacy[3] if legacy else body).split())
    lines = "\n".join(digits[at : at + _LINE] for at in range(0, len(digits), _LINE))
    return f"-----BEGIN {label}-----\n{headers}{lines}\n-----END {label}-----\n"
