"""The lines of a Java properties file, as `java.util.Properties.load` reads them.

It is read in two places: as a profile (`config`), and where a reference to a secret names one value of a file (`security`).
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
    """One entry of a file: the number of its first line, and what it says. Only the line may be shown."""

    line: int
    key: str
    value: str
    separator: str
    """What stands between key and value: `=` or `:`, else blanks or nothing."""
    malformed: bool
    """Whether there is a backslash and u without four hexadecimal digits, which Java refuses."""


def properties_of(text: str) -> Iterator[Property]:
    """Yield all entries of a file, in their order. Of a key that is there twice, the last one counts."""
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
    """Return the lines without comments and blank ones. A line that ends with an odd number of backslashes goes on."""
    lines: list[tuple[int, str]] = []
    begun: list[str] = []
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        stripped = natural.lstrip(_BLANKS)
        if not begun:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            begun.append(stripped[:-1])
            continue
        lines.append((first, "".join([*begun, stripped])))
        begun = []
    return [*lines, (first, "".join(begun))] if begun else lines


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(_replaced, text)


def _replaced(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _ESCAPES.get(escaped, escaped)
