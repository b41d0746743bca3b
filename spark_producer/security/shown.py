"""How messages show what a peer said: escaped, and not too much of it."""

from __future__ import annotations

from typing import Final

MOST_SHOWN: Final = 300
"""The most characters that are shown of one text of a peer."""


def shown(said: str | bytes) -> str:
    """Return what a peer said with every character escaped that could control a terminal or a log, at most `MOST_SHOWN` long.

    Bytes are read as UTF-8. Nothing is done with more of a long text than is shown of it.
    """
    cut = said[: MOST_SHOWN + 1]
    text = cut.decode("utf-8", "backslashreplace") if isinstance(cut, bytes) else cut
    escaped = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    return escaped if len(escaped) <= MOST_SHOWN else escaped[: MOST_SHOWN - 1] + "…"
