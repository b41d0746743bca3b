"""One value of a Java properties file, as `java.util.Properties.load` reads it."""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_BLANKS: Final = " \t\f"
_LINE: Final = re.compile(r"(?P<key>(?:[^\\=: \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL)


def property_of(key: str, text: str) -> str | None:
    """Return the value of `key`, or None if the file does not have it. The last one counts, as in Java."""
    found = None
    for line in _logical_lines(text):
        parts = _LINE.fullmatch(line)
        if parts and _unescaped(parts["key"]) == key:
            found = _unescaped(parts["value"])
    return found


def _logical_lines(text: str) -> list[str]:
    """Return the lines without comments and blank ones. A line that ends with an odd number of backslashes goes on."""
    lines: list[str] = []
    begun: str | None = None
    for natural in re.split(r"\r\n|\n|\r", text):
        stripped = natural.lstrip(_BLANKS)
        if begun is None and (not stripped or stripped[0] in "#!"):
            continue
        whole = (begun or "") + stripped
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            begun = whole[:-1]
            continue
        lines.append(whole)
        begun = None
    return lines if begun is None else [*lines, begun]


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(_replaced, text)


def _replaced(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _ESCAPES.get(escaped, escaped)
