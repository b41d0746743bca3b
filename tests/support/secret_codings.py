"""The ways in which a peer may write a secret that it was sent.

Owns: the codings. Must not know: how secrets are hidden.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

USER = "ann"
PASSWORD = 'k9"ü~Zq/7 &+\\Lw%2F'
"""A secret with characters that each coding writes in its own way."""


def of_base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def url_base64(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode()


def of_base32(text: bytes) -> str:
    return base64.b32encode(text).decode()


CODINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda s: s,
    "other case": lambda s: s.swapcase() if s.isascii() else s,
    "base64": lambda s: of_base64(s.encode()),
    "base64 of PLAIN": lambda s: of_base64(f"\0{USER}\0{s}".encode()),
    "base64 of Basic": lambda s: of_base64(f"{USER}:{s}".encode()),
    "base64 without padding": lambda s: of_base64(f"{USER}:{s}".encode()).rstrip("="),
    "base64 of URLs": lambda s: url_base64(f"{USER}:{s}".encode()),
    "base64 of URLs without padding": lambda s: url_base64(f"{USER}:{s}".encode()).rstrip("="),
    "base64 at alignment 0": lambda s: of_base64(b"abc" + s.encode() + b"rest of it"),
    "base64 at alignment 1": lambda s: of_base64(b"abcd" + s.encode() + b"rest of it"),
    "base64 at alignment 2": lambda s: of_base64(b"abcde" + s.encode() + b"rest of it"),
    "base64 in a path": lambda s: "x/" + of_base64(s.encode()),
    "base64 of base64": lambda s: of_base64(f"Authorization: Basic {of_base64(f'{USER}:{s}'.encode())}".encode()),
    "base64 of a form": lambda s: of_base64(f"{USER}:{quote_plus(s)}".encode()),
    "base64 of a form, percent-encoded": lambda s: quote(of_base64(f"{USER}:{quote_plus(s)}".encode()), safe=""),
    "base32": lambda s: of_base32(s.encode()),
    "base32 of Basic": lambda s: of_base32(f"{USER}:{s}".encode()),
    "base32 without padding": lambda s: of_base32(f"{USER}:{s}".encode()).rstrip("="),
    "base32 in lower case": lambda s: of_base32(f"{USER}:{s}".encode()).lower(),
    "base32 within a text": lambda s: of_base32(b"abcd" + s.encode() + b"rest of it"),
    "base32 of the extended alphabet": lambda s: base64.b32hexencode(f"{USER}:{s}".encode()).decode(),
    "base32 of base64": lambda s: of_base32(f"Authorization: Basic {of_base64(f'{USER}:{s}'.encode())}".encode()),
    "percent": lambda s: quote(s, safe=""),
    "percent in lower case": lambda s: "".join(f"%{byte:02x}" for byte in s.encode()),
    "percent of all": lambda s: "".join(f"%{byte:02X}" for byte in s.encode()),
    "percent twice": lambda s: quote(quote(s, safe=""), safe=""),
    "form": quote_plus,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda s: json.dumps(s, ensure_ascii=False),
    "JSON in JSON": lambda s: json.dumps(json.dumps(s)),
    "JSON, each character": lambda s: "".join(f"\\u{ord(each):04X}" for each in s),
    "repr": repr,
    "repr of bytes": lambda s: repr(s.encode()),
    "repr of PLAIN": lambda s: repr(f"\0{USER}\0{s}".encode()),
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "hex with colons": lambda s: s.encode().hex(":"),
    "hex after a digit": lambda s: "a" + s.encode().hex(),
    "HTML": html.escape,
    "HTML by numbers": lambda s: "".join(f"&#{ord(each)};" for each in s),
}


def pieces(text: str, size: int) -> set[str]:
    """All parts of a text that have `size` characters."""
    return {text[at : at + size] for at in range(len(text) - size + 1)}


def shows(text: str, encoded: str) -> bool:
    """Return whether `text` shows six characters in a row of what a coding made of a secret; the user's name is no secret."""
    return bool(pieces(encoded.removeprefix(r"b'\x00ann"), 6) & pieces(text, 6))
