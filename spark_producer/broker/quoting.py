"""How messages quote what a client sent, or list what was found: a name of 32,767 bytes must not fill the log, or come back for
each partition.

Owns: the limits.
Must not know: what is quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_QUOTED: Final = 100
"""characters"""

_FEW: Final = 3


def quoted(sent: object) -> str:
    """`sent` in quotes, cut off after `MOST_QUOTED` characters. Strings are cut before anything is made of them."""
    if isinstance(sent, str) and len(sent) > MOST_QUOTED:
        return f"{sent[:MOST_QUOTED]!r}… ({len(sent)} characters)"
    return repr(sent)


def first_few(names: Sequence[str]) -> str:
    """Some of the names that a message is about, of which there may be thousands."""
    return ", ".join(names[:_FEW]) + (" …" if len(names) > _FEW else "")
