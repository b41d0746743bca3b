"""The lines of a Java properties file, as `java.util.Properties.load` reads them.

Profiles are such files (`config`), and a reference to a secret may name one value of such a file (`security`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_BLANKS: Final = " \t\f"
_LINE: Final = re.compile(
    r"(?P<key>(?:[^\\=: \t\f]|\\.)*)(?P<separator>[ \t\f]*(?:[=:][ \t\f]*)?)(?P<value>.*)", re.DOTALL
)
_MALFORMED: Final = re.compile(r"(?:[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})*(?P<rest>\\u)?", re.DOTALL)


class Property(NamedTuple):
    """One entry of a file: the number of its first line, its key and value. Messages may show the line number only."""

    line: int
    key: str
    value: str
    separator: str
    """The separator of key and value: `=` or `:`, else blanks or empty."""
    malformed: bool
    """Whether a `\\u` has fewer than four hexadecimal digits, which Java rejects."""


def properties_of(text: str) -> Iterator[Property]:
    """Yield all entries of a file in order. The last entry of a key counts."""
    for number, line in _logical_lines(text):
        parts = _LINE.fullmatch(line)
        if parts is None:  # a backslash at the very end of the key
            continue
        found = _MALFORMED.match(line)
        yield Property(
            number,
            _unescaped(parts["key"]),
            _unescaped(parts["value"]),
            parts["separator"].strip(_BLANKS) or parts["separator"],
            malformed=found is not None and found["rest"] is not None,
        )


def property_of(key: str, text: str) -> str | None:
    """Return the value of `key`, or None if the file does not have it."""
    found = None
    for entry in properties_of(text):
        if entry.key == key:
            found = entry.value
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the logical lines without comments and blank lines. An odd number of backslashes at its end continues a line."""
    lines: list[tuple[int, str]] = []
    continued: list[str] = []
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        stripped = natural.lstrip(_BLANKS)
        if not continued:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            continued.append(stripped[:-1])
            continue
        lines.append((first, "".join([*continued, stripped])))
        continued = []
    return [*lines, (first, "".join(continued))] if continued else lines


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(_replaced, text)


def _replaced(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _ESCAPES.get(escaped, escaped)
