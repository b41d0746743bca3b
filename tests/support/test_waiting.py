"""Waits end with the value, at the deadline, or as soon as there is nothing to wait for."""

from __future__ import annotations

import threading

import pytest

from tests.support.waiting import poll, retry, wait_until


def test_a_condition_comes_true() -> None:
    values = iter([0, 0, 3])
    assert wait_until(lambda: next(values), "three", pause=0) == 3


def test_a_wait_that_is_in_vain_says_for_what() -> None:
    with pytest.raises(TimeoutError, match=r"^not within 0 s: the end\nthe log$"):
        wait_until(lambda: False, "the end", seconds=0, more=lambda: "the log")


def test_a_wait_for_what_has_ended_is_given_up() -> None:
    with pytest.raises(RuntimeError, match=r"^it ended before this: the end\nthe log$"):
        wait_until(lambda: False, "the end", ended=lambda: True, more=lambda: "the log")


def test_what_has_ended_may_have_done_it() -> None:
    done = threading.Event()

    def ended() -> bool:
        done.set()
        return True

    assert wait_until(done.is_set, "it is done", ended=ended)


def test_the_last_value_when_the_time_is_over() -> None:
    values = iter([0, 1])
    assert poll(lambda: next(values), seconds=0) == 0


def test_a_call_is_repeated_until_it_succeeds() -> None:
    answers = iter("ab0")
    assert retry(lambda: int(next(answers)), ValueError, "a number", pause=0) == 0
    with pytest.raises(TimeoutError, match="a number") as failed:
        retry(lambda: int("x"), ValueError, "a number", seconds=0)
    assert isinstance(failed.value.__cause__, ValueError)
