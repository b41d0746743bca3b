"""Whether a text matches a pattern of a JSON Schema, in bounded time whatever the pattern and the text are.

Python's `re` goes back over a text, which takes time without end for some patterns (`(a+)+$`). It is asked only where that cannot
happen; Arrow's RE2, whose time is linear, is asked elsewhere. RE2 lacks lookarounds and references to groups.
"""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

import pyarrow as pa

MAX_STEPS = 10**7
"""Maximum steps of `re` where RE2 could be asked, about a tenth of a second; RE2 takes 50 us where `re` takes 2."""

MAX_STEPS_ALONE = 10**9
"""Maximum steps of `re` for patterns that RE2 does not have."""

_COUNT = re.compile(r"\{\d*(,\d*)?\}")


class UnboundedPattern(Exception):
    """A pattern that RE2 lacks, and for which `re` could take endless time on a text."""


class _Cost(NamedTuple):
    """The steps of `re`: those for a text of n characters are at most n to the power of `loops` + 1, times 2 to that of
    `choices`."""

    loops: float
    choices: int

    def steps(self, length: int) -> float:
        """Return the decimal logarithm of the steps for a text."""
        return (self.loops + 1) * math.log10(length + 1) + self.choices * math.log10(2)


def matches(pattern: str, text: str) -> bool:
    """Return whether a part of a text matches a pattern.

    Raises:
        UnboundedPattern: it cannot be said in bounded time. re.error: it is no pattern.
    """
    steps = _cost(pattern).steps(len(text))
    if steps > math.log10(MAX_STEPS):
        found = _by_re2(pattern, text)
        if found is not None:
            return found
        if steps > math.log10(MAX_STEPS_ALONE):
            raise UnboundedPattern("its pattern could take endless time on this text. Write it without repeated groups")
    return re.search(pattern, text) is not None


def _by_re2(pattern: str, text: str) -> bool | None:
    """Return whether a text matches, or None if RE2 does not have the pattern."""
    import pyarrow.compute as pc  # loaded only if used

    try:
        found: bool = pc.match_substring_regex(pa.scalar(text), pattern=pattern).as_py()
        return found
    except (pa.ArrowInvalid, UnicodeError):
        return None


@functools.lru_cache(maxsize=1000)
def _cost(pattern: str) -> _Cost:
    """Return the cost of a pattern by its characters: loops that are not within each other multiply, others have no bound."""
    loops: float = 0
    choices = at = 0
    before = ""
    while at < len(pattern):
        each = pattern[at]
        size = 1
        if each == "\\":
            size = 2
        elif each == "[":
            size = _class_size(pattern, at)
        elif each in "*+" or (each == "{" and _COUNT.match(pattern, at)):
            loops += math.inf if before == ")" else 1
            size = len(_COUNT.match(pattern, at)[0]) if each == "{" else 1  # type: ignore[index]
            size += pattern[at + size : at + size + 1] in ("?", "+")
        elif each == "|" or (each == "?" and before != "("):
            choices += 1
        before = each
        at += size
    return _Cost(loops, choices)


def _class_size(pattern: str, at: int) -> int:
    """Return the length of a class of characters; a bracket at its begin is one of them."""
    end = at + 1 + pattern.startswith("^", at + 1)
    end += pattern.startswith("]", end)
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1 - at
