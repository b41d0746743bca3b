"""Escapes texts that peers and files chose, so that terminals and logs show them and do nothing else."""

from __future__ import annotations

from typing import Final

MAX_LENGTH: Final = 300
"""The maximum characters that a message shows of one text of a peer or a file."""

_MAX_BYTES_OF_CHARACTER: Final = 4
"""The maximum bytes of a character in UTF-8 (RFC 3629)."""


def for_log(text: str | bytes, limit: int | None = MAX_LENGTH) -> str:
    """Return `text` for a terminal or a log: on one line, and at most `limit` characters long.

    Every character that Unicode does not call printable (`str.isprintable`) is escaped: control characters and so ANSI escape
    sequences, line and paragraph separators, marks and overrides of bidirectional text, invisible format characters, lone
    surrogates. Bytes are read as UTF-8; bytes that are not UTF-8 are escaped. A text that is cut ends with an ellipsis, never
    within an escape, and the part that is cut off costs no time. `limit=None` is for our own messages, and for names that must be
    shown in full.
    """
    head = _head(text, limit)
    if head.isprintable() and (limit is None or len(head) <= limit):
        return head
    pieces = [each if each.isprintable() else each.encode("unicode_escape").decode() for each in head]
    if limit is None or sum(map(len, pieces)) <= limit:
        return "".join(pieces)
    return _cut(pieces, limit - 1) + "…"


def _head(text: str | bytes, limit: int | None) -> str:
    """Return the text, or so much of its beginning that it has at least one character too many."""
    if isinstance(text, bytes):
        return text[: None if limit is None else (limit + 1) * _MAX_BYTES_OF_CHARACTER].decode(
            "utf-8", "backslashreplace"
        )
    return text[: None if limit is None else limit + 1]


def _cut(pieces: list[str], limit: int) -> str:
    """Return the whole pieces from the beginning that fit into `limit` characters."""
    length = 0
    for index, piece in enumerate(pieces):
        length += len(piece)
        if length > limit:
            return "".join(pieces[:index])
    return "".join(pieces)
