"""The functions by which messages quote what a client sent, or list what was found, within limits.

A name of 32,767 bytes must not fill the log, nor be sent back once for each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_QUOTED_LENGTH: Final = 100
"""The most characters that are quoted."""

_FEW: Final = 3


def quoted(sent: object) -> str:
    """Return `sent` in quotes. A string is cut off after `MAX_QUOTED_LENGTH` characters, before anything else is done with it."""
    if isinstance(sent, str) and len(sent) > MAX_QUOTED_LENGTH:
        return f"{sent[:MAX_QUOTED_LENGTH]!r}… ({len(sent)} characters)"
    return repr(sent)


def first_few(names: Sequence[str]) -> str:
    """Return the first few of the names that a message is about; there may be thousands."""
    return ", ".join(names[:_FEW]) + (" …" if len(names) > _FEW else "")
