"""Escapes texts that peers and files chose, so that terminals and logs show them and do nothing else."""

from __future__ import annotations

from typing import Final

from spark_producer.redaction import MAX_TEXT, hide

MAX_LENGTH: Final = 300
"""The maximum characters that a message shows of one text of a peer or a file."""

_MAX_BYTES_OF_CHARACTER: Final = 4
"""The maximum bytes of a character in UTF-8 (RFC 3629)."""


def for_log(text: str | bytes, limit: int | None = MAX_LENGTH) -> str:
    """Return `text` for a terminal or a log: on one line, at most `limit` characters long, without secrets.

    First, whatever this process has sent as a secret is hidden (`redaction.hide`). Then every character is escaped that Unicode
    does not call printable (`str.isprintable`): control characters and so ANSI escape sequences, line and paragraph separators,
    marks and overrides of bidirectional text, invisible format characters, lone surrogates. Bytes are read as UTF-8; bytes that
    are not UTF-8 are escaped. A text that is cut ends with an ellipsis, never within an escape; what is cut off costs no time.

    `limit=None` is for our own messages, and for names and records that must be shown as they are: they are only escaped.
    """
    if limit is None:
        return _escaped(_decoded(text))
    head = hide(_decoded(text[: (MAX_TEXT + 1) * (_MAX_BYTES_OF_CHARACTER if isinstance(text, bytes) else 1)]))
    if len(head) <= limit and len(escaped := _escaped(head)) <= limit:
        return escaped
    return _cut(head, limit - 1) + "…"


def _decoded(text: str | bytes) -> str:
    return text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _cut(text: str, limit: int) -> str:
    """Return as many characters from the beginning, escaped, as fit into `limit`."""
    pieces = [_escaped(each) for each in text[:limit]]
    length = 0
    for index, piece in enumerate(pieces):
        length += len(piece)
        if length > limit:
            return "".join(pieces[:index])
    return "".join(pieces)
