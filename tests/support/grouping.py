"""The groups of tests that run in one process, their order, and the clusters that they use.

Tests that use the same dear fixture stay together when a run has several processes. Owns: the groups, and their order. Must not
know: how the fixtures are made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

UNIT = Path(__file__).parents[1] / "unit"
SECURED_FIXTURES = {"secured", "secured_4"}
KAFKA_FIXTURES = {
    "kafka_39",
    "kafka_4",
    "kafka_three",
    "kafka_through_proxy",
    "kafka_39_through_proxy",
} | SECURED_FIXTURES
TOGETHER: dict[str, set[str]] = {
    "dear": {"spark", "registry", "kafka_three"},
    "secured": SECURED_FIXTURES,
    "kafka": {"kafka_39", "kafka_4", "kafka-3.9", "kafka-4"},
    "proxied": {"kafka_through_proxy", "kafka_39_through_proxy"},
    "built": {"sdist"},
}
"""Group → what its tests use, as a fixture or as the parameter of one: each group is in one process. A cluster takes ten seconds
to start and works until the run ends, a session takes a minute of work to get fast, and the package half a minute to compile.
The groups are the longest of all, and begin first, in this order."""
CLAIMS = ("secured", "dear", "built", "proxied", "kafka")
"""The group of a test that uses clusters of several. Tests of a secured Kafka have another session of Spark, so that the
process with all others does not take longest."""


def fixtures_of(item: pytest.Item) -> set[str]:
    """The names of the fixtures that a test uses."""
    return set(getattr(item, "fixturenames", ()))


def used_by(item: pytest.Item) -> set[str]:
    """Return the fixtures of a test, as arguments or as parameters of one."""
    callspec = getattr(item, "callspec", None)
    return fixtures_of(item) | {
        value for value in (callspec.params.values() if callspec else ()) if isinstance(value, str)
    }


def clusters_of(item: pytest.Item) -> set[str]:
    """The fixtures of clusters that a test uses, also those that a parameter names."""
    used = used_by(item)
    by_version = {"kafka-3.9": "kafka_39", "kafka-4": "kafka_4"}
    if "proxied" in used:
        by_version = {"kafka-3.9": "kafka_39_through_proxy", "kafka-4": "kafka_through_proxy"}
    elif "secured" in used:
        by_version = {"kafka-3.9": "_secured_39", "kafka-4": "secured_4"}
    return used & (KAFKA_FIXTURES - {"secured"}) | {name for version, name in by_version.items() if version in used}


def given_group(item: pytest.Item) -> str | None:
    """The group whose tests all run in one process."""
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else None


def group_of(item: pytest.Item, names: set[str]) -> str | None:
    """The group of a test that uses these fixtures."""
    used = used_by(item)
    if "proxied" in names and used & TOGETHER["kafka"]:
        used.add("kafka_through_proxy")
    for group in CLAIMS:
        if used & TOGETHER[group]:
            return group
    # Of thousands of short tests each process of pytest takes a file at a time: to hand them out one by one takes the process
    # that does it longer than most of them take.
    short = UNIT in item.path.parents and not item.get_closest_marker("slow")
    return str(item.path.relative_to(UNIT)) if short else None


def place_in_run(item: pytest.Item) -> int:
    """Order groups so that no process has work left when the others have none."""
    group, order = given_group(item), list(TOGETHER)
    if group in order:
        return order.index(group)
    return len(order) + (group is None or UNIT in item.path.parents)
