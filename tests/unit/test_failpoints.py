"""Failpoints call the function of a test, and nothing else ever."""

from __future__ import annotations

import pytest

from spark_producer.failpoints import VARIABLE, failpoint

seen: list[str] = []


def note(name: str) -> None:
    seen.append(name)
    if name == "the second":
        raise OSError("asked for")


def test_without_the_variable_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    seen.clear()
    failpoint("the first")
    assert seen == []


def test_the_function_that_the_variable_names_is_called_and_may_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{__name__}:note")
    seen.clear()
    failpoint("the first")
    with pytest.raises(OSError, match="asked for"):
        failpoint("the second")
    assert seen == ["the first", "the second"]
