"""Named points of an exactly-once write at which a test makes the process die, wait or fail; otherwise they do nothing.

No option and no environment variable sets them: only code in the same process calls `install`, and tests have such code. A write
reaches about ten of them; the path of a row has none.
"""

from __future__ import annotations

from collections.abc import Callable

_installed: Callable[[str], None] | None = None


def install(function: Callable[[str], None] | None) -> None:
    """Call `function` with the name of each failpoint that this process reaches; None uninstalls it. For tests only."""
    global _installed
    _installed = function


def failpoint(name: str) -> None:
    """Call the installed function, if there is one, and raise what it raises."""
    if _installed is not None:
        _installed(name)
