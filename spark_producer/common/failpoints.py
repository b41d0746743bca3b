"""Points of an exactly-once write at which tests make a process die, wait or fail; without a test they do nothing.

Nothing outside the program can set them: only code that runs in the process, which those of tests do, calls `install`. There are
some ten in a write, and none on the way of a row.
"""

from __future__ import annotations

from collections.abc import Callable

_installed: Callable[[str], None] | None = None


def install(function: Callable[[str], None] | None) -> None:
    """Call `function` with the name of each failpoint that this process reaches; None ends that. It is for tests only."""
    global _installed
    _installed = function


def failpoint(name: str) -> None:
    """Call the function that a test has installed, if there is one. What it raises is raised here."""
    if _installed is not None:
        _installed(name)
