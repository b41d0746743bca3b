"""Ends a cluster after the last test that uses it, instead of with the run: an idle node of Kafka takes 2 % of a core.

Owns: which test is the last to use a fixture, and its end. Must not know: what the fixtures start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Groups = Callable[[pytest.Item], str | None]


def last_uses(
    items: Iterable[pytest.Item], used: Callable[[pytest.Item], set[str]], group: Groups
) -> dict[pytest.Item, set[str]]:
    """Return the fixtures that each test is the last of its group to use.

    A process does not know which groups it will get: a later one sets up again what it needs.
    """
    last = {(group(item), name): item for item in items for name in used(item)}
    found: dict[pytest.Item, set[str]] = defaultdict(set)
    for (_, name), item in last.items():
        found[item].add(name)
    return found


def end_fixture(item: pytest.Item, name: str) -> None:
    """Tear down a fixture of the session that is set up, and every other one that depends on it or returns the same."""
    internals: Any = item
    manager, request = internals.session._fixturemanager, internals._request
    for wanted in manager.getfixturedefs(name, item) or ():
        if wanted.cached_result is None:
            continue
        value = wanted.cached_result[0]
        for definitions in manager._arg2fixturedefs.values():
            for one in definitions:
                if one is not wanted and one.cached_result is not None and one.cached_result[0] is value:
                    one.finish(request)
        wanted.finish(request)
