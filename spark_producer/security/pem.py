"""Parses and writes PEM text (RFC 7468), also if all of it is on one line."""

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
"""The markers of a block; two may share their dashes."""
_LEGACY = re.compile(r"\s*(Proc-Type:\s*4,ENCRYPTED)\s+(DEK-Info:\s*\S+)\s+(.*)", re.DOTALL)
"""The headers of a key in OpenSSL's legacy encryption (RFC 1421)."""
_LINE = 64


class PemBlock(NamedTuple):
    """One block: its label, and its text in normalised lines."""

    label: str
    text: str

    def __repr__(self) -> str:
        return f"Block({self.label!r})"  # a private key must not show in a traceback


def pem_blocks(text: str) -> list[PemBlock]:
    """Return the blocks of a text. Text between blocks is ignored.

    Line ends may be missing, blanks, or written as `\\n`: options have such text, which OpenSSL does not accept. The time is
    linear in the length of the text, even with many blocks that have no end.
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
    """Return the DER bytes of a block without headers.

    Raises:
        ValueError: the block is not base64.
    """
    body = "".join(block.text.splitlines()[1:-1])
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error:
        raise ValueError("it is not base64") from None


def pem_text(label: str, der: bytes) -> str:
    """Return DER bytes as a block of PEM text."""
    return _normalised(label, base64.b64encode(der).decode("ascii"))


def _normalised(label: str, body: str) -> str:
    legacy = _LEGACY.fullmatch(body)
    headers = f"{legacy[1]}\n{legacy[2]}\n\n" if legacy else ""
    digits = "".join((legacy[3] if legacy else body).split())
    lines = "\n".join(digits[at : at + _LINE] for at in range(0, len(digits), _LINE))
    return f"-----BEGIN {label}-----\n{headers}{lines}\n-----END {label}-----\n"
