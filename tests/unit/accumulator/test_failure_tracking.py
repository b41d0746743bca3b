"""Which failures an interrupted thread has reported; for the rest of failure tracking: `tests/unit/producer/test_errors.py`."""

from __future__ import annotations

import inspect
import linecache
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from spark_producer.accumulator.failure_tracking import FailureTracker

CODES = {
    inspect.unwrap(function).__code__ for function in (FailureTracker.raise_unreported, FailureTracker._acknowledge)
}


class Interrupter:
    """Raises KeyboardInterrupt before the `number`-th line of a flush's end, as Ctrl-C may.

    Not before a `with` lets go of its lock: a trace function is called there, but no handler of a signal is.
    """

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code not in CODES:
            return None
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(
            "with"
        ):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def interrupted(accounts: FailureTracker, number: int) -> BaseException | None:
    """Return the exception of a flush that is interrupted before its `number`-th line."""
    before = sys.gettrace()
    sys.settrace(Interrupter(number))
    try:
        accounts.raise_unreported()
    except BaseException as error:
        return error
    finally:
        sys.settrace(before)
    return None


@pytest.fixture
def other_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.mark.covers("KP9")
@pytest.mark.parametrize("mine", [True, False], ids=["of its own", "of another thread"])
def test_an_interrupt_anywhere_in_the_end_of_a_flush_discards_no_error(
    other_thread: ThreadPoolExecutor, mine: bool
) -> None:
    interrupts = 0
    for number in range(1, 100):
        accounts, error = FailureTracker(), ZeroDivisionError("a batch has failed")
        owner = accounts.mine() if mine else other_thread.submit(accounts.mine).result(20)
        owner.sent = True
        accounts.record(error, [owner])
        raised = interrupted(accounts, number)
        if raised is error:
            break
        assert isinstance(raised, KeyboardInterrupt)
        interrupts += 1
        if raised.__context__ is not error:  # else it was reported with the interrupt
            with pytest.raises(ZeroDivisionError):
                accounts.raise_unreported()
    assert interrupts > 8
    assert raised is error


@pytest.mark.covers("KP9")
def test_failures_of_many_threads_are_reported_in_the_order_in_which_they_came() -> None:
    accounts = FailureTracker()
    go_on = threading.Barrier(4)
    owners = []

    def join() -> None:
        owners.append(accounts.mine())
        go_on.wait(20)
        go_on.wait(20)

    threads = [threading.Thread(target=join) for _ in range(3)]
    for thread in threads:
        thread.start()
    go_on.wait(20)
    for number in (2, 0, 1):
        accounts.record(ValueError(f"of thread {number}"), [owners[number]])
    with pytest.raises(ValueError, match="of thread 2"):
        accounts.raise_unreported()
    accounts.raise_unreported()
    assert accounts.first_unreported() is None
    assert [owner.first is not None for owner in owners] == [True] * 3, "their own flush will report them"
    go_on.wait(20)
    for thread in threads:
        thread.join(20)
