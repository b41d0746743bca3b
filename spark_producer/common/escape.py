"""Escapes text from peers and files, so that it cannot control the terminal or log that shows it."""

from __future__ import annotations

import logging
from typing import Final

from spark_producer.common.redaction import MAX_TEXT, hide

MAX_LENGTH: Final = 300
"""Maximum number of characters that a message shows of one text from a peer or a file."""

MAX_LINE: Final = 20_000
"""Maximum number of characters in a line of the log."""

_MAX_BYTES_OF_CHARACTER: Final = 4
"""Maximum number of bytes of a character in UTF-8 (RFC 3629)."""


def for_log(text: str | bytes, limit: int | None = MAX_LENGTH) -> str:
    """Return `text` for a terminal or a log: on one line, at most `limit` characters long, without secrets.

    Secrets that this process has sent are hidden first (`redaction.hide`). Then every character that Unicode does not call
    printable is escaped (`str.isprintable`): control characters and so ANSI escape sequences, line and paragraph separators,
    marks and overrides of bidirectional text, invisible format characters, lone surrogates. Bytes are decoded as UTF-8; invalid
    ones are escaped. A truncated text ends with an ellipsis, never within an escape; the rest of it costs no time.

    `limit=None` is for messages of this package, and for names and records that must be shown in full: they are only escaped.
    """
    if limit is None:
        return _escaped(_decoded(text))
    head = hide(_decoded(text[: (MAX_TEXT + 1) * (_MAX_BYTES_OF_CHARACTER if isinstance(text, bytes) else 1)]))
    if len(head) <= limit and len(escaped := _escaped(head)) <= limit:
        return escaped
    return _cut(head, limit - 1) + "…"


HAS_LINES: Final = {"has_lines": True}
"""The `extra` of a log message with several lines, in which texts from peers and files are already escaped."""


class _Escaping(logging.Filter):
    """Escapes log messages, so that no text from a peer or a file controls the log or the terminal that shows it."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # the arguments do not fit the format, which `logging` itself reports
            return True
        if not message.isprintable() or len(message) > MAX_LINE:
            lines = message.split("\n") if getattr(record, "has_lines", False) else [message]
            record.msg, record.args = "\n".join(for_log(line, limit=None)[:MAX_LINE] for line in lines), None
        return True


_ESCAPING: Final = _Escaping()


def escaping_logger(name: str) -> logging.Logger:
    """Return the logger of this name, which escapes and truncates each message with its arguments.

    Line ends are escaped too, except with `extra=HAS_LINES`.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_ESCAPING)
    return logger


def _decoded(text: str | bytes) -> str:
    return text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _cut(text: str, limit: int) -> str:
    """Return the longest prefix of `text` that fits into `limit` characters when it is escaped."""
    pieces = [_escaped(each) for each in text[:limit]]
    length = 0
    for index, piece in enumerate(pieces):
        length += len(piece)
        if length > limit:
            return "".join(pieces[:index])
    return "".join(pieces)
