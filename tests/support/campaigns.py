"""Campaigns: tests of many cases of which every run takes the first one, and `make campaigns` takes all.

Owns: the marker. Must not know: what the cases are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sample_and_campaign(cases: Iterable[Any]) -> list[Any]:
    """The values of a parameter: the first one as it is, and the others only for those who ask for campaigns."""
    sample, *others = cases
    return [sample, *(pytest.param(other, marks=pytest.mark.campaign) for other in others)]
