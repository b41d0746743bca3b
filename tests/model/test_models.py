"""The small models: the design holds in every world, and each rule of it is needed. `make model` has the large ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.model.search import search
from tests.model.table import STOPS, Case, broken, small
from tests.model.wiring import Wiring


def loud_is_possible(wiring: Wiring) -> bool:
    """An administrator is needed where markers get lost, where a timeout can split a batch, and where batches have no numbers."""
    harm = wiring.budget.drops + wiring.budget.topics
    return not wiring.numbered or harm > 0 or (wiring.budget.timeouts > 0 and len(wiring.tasks) > 1)


def with_nightly_twins(cases: Iterable[Case]) -> list[Any]:
    return [pytest.param(case, id=case.name, marks=[pytest.mark.nightly] * case.twin) for case in cases]


@pytest.mark.parametrize("case", with_nightly_twins(small()))
def test_the_design_holds(case: Case) -> None:
    found = search(case.wiring, case.max_worlds)
    assert found.result == "OK", "\n".join(found.trace)
    assert found.ends > 0
    assert (found.loud > 0) == loud_is_possible(case.wiring)


@pytest.mark.parametrize("case", [case for case in broken() if not case.large], ids=lambda case: case.name)
def test_a_broken_rule_is_found(case: Case) -> None:
    found = search(case.wiring, case.max_worlds)
    assert found.result in case.expected, f"{found.result} after {found.states} worlds"
    assert found.trace or found.result == STOPS
