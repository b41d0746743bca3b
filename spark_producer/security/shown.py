"""How messages show what a peer said, be it text or bytes: escaped, and not too much of it."""

from __future__ import annotations

from spark_producer import errors
from spark_producer.errors import MOST_SHOWN

__all__ = ["MOST_SHOWN", "shown"]


def shown(said: str | bytes) -> str:
    """Return what a peer said with every character escaped that could control a terminal or a log, at most `MOST_SHOWN` long.

    Bytes are read as UTF-8. Nothing is done with more of a long text than is shown of it.
    """
    cut = said[: MOST_SHOWN + 1]
    return errors.shown(cut.decode("utf-8", "backslashreplace") if isinstance(cut, bytes) else cut)
