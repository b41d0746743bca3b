"""A cluster and its dependents stop after the last test of their group, and start again when a later test needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.grouping import UNIT

CONFTEST = """
import pytest
from tests.support.last_uses import end_fixture, last_uses

def event(what):
    print("event", what)

@pytest.fixture(scope="session")
def cluster():
    event("begins")
    yield object()
    event("ends")

@pytest.fixture(scope="session")
def broker(request):
    return request.getfixturevalue("cluster")

@pytest.fixture(scope="module")
def topic(cluster):
    yield "name"
    event("topic ends")

def pytest_collection_finish(session):
    used = lambda item: {"cluster"} if {"cluster", "broker"} & {*item.fixturenames} else set()
    session.last = last_uses(session.items, used, lambda item: item.name.split("_")[1])

@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    for name in item.session.last.get(item, ()):
        end_fixture(item, name)
"""
TESTS = """
def test_a_first(cluster, topic): print("event test")
def test_a_cluster_by_name(broker): pass
def test_a_without(): print("event without")
def test_b_cluster_again(broker, cluster): assert broker is cluster
def test_b_without(): print("event without")
"""


def test_a_fixture_ends_after_the_last_test_of_each_group(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path)]
    done = subprocess.run(command, cwd=UNIT.parents[1], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    events = [line.split("event ", 1)[1] for line in done.stdout.splitlines() if "event " in line]
    assert events == [
        "begins", "test",
        "topic ends", "ends", "without",
        "begins", "ends", "without",
    ]  # fmt: skip
