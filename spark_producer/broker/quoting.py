"""How messages quote what a client sent: a name of 32,767 bytes must not fill the log, or come back for each partition.

Owns: the limit.
Must not know: what is quoted.
"""

from __future__ import annotations

from typing import Final

MOST_QUOTED: Final = 100
"""characters"""


def quoted(sent: object) -> str:
    """`sent` in quotes, cut off after `MOST_QUOTED` characters. Strings are cut before anything is made of them."""
    if isinstance(sent, str) and len(sent) > MOST_QUOTED:
        return f"{sent[:MOST_QUOTED]!r}… ({len(sent)} characters)"
    return repr(sent)
