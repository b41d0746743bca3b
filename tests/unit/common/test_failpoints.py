"""Failpoints call the function that a test has installed, and nothing else ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_producer.common.failpoints import failpoint, install

seen: list[str] = []


def note(name: str) -> None:
    seen.append(name)
    if name == "the second":
        raise OSError("asked for")


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    seen.clear()
    yield
    install(None)


def test_without_a_test_nothing_happens() -> None:
    failpoint("the first")
    assert seen == []


def test_the_installed_function_is_called_and_may_raise() -> None:
    install(note)
    failpoint("the first")
    with pytest.raises(OSError, match="asked for"):
        failpoint("the second")
    assert seen == ["the first", "the second"]
