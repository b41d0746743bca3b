"""The part of its cases that a test tries: `--slow`, as in `make test`, runs all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Sample: TypeAlias = Callable[[range], range]
"""Returns the cases to try: all of them, or every fifth."""

STEP = 5


def every_fifth(cases: range) -> range:
    return cases[::STEP]


def all_cases(cases: range) -> range:
    return cases
