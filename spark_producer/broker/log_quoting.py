"""Quoting of client input and of lists in messages, within limits.

A name of 32,767 bytes must not fill the log, or be sent back once for each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_QUOTED_LENGTH: Final = 100
"""Maximum number of quoted characters."""

_FEW: Final = 3


def quoted(sent: object) -> str:
    """Return the `repr` of a value. A string is first cut after `MAX_QUOTED_LENGTH` characters."""
    if isinstance(sent, str) and len(sent) > MAX_QUOTED_LENGTH:
        return f"{sent[:MAX_QUOTED_LENGTH]!r}… ({len(sent)} characters)"
    return repr(sent)


def first_few(names: Sequence[str]) -> str:
    """Return the first few names of a list that may have thousands."""
    return ", ".join(names[:_FEW]) + (" …" if len(names) > _FEW else "")
