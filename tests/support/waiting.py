"""Waits for what another thread, process or broker does.

Owns: every pause of a test between two looks at a condition. Must not know: what is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypedDict, TypeVar, Unpack

T = TypeVar("T")
SECONDS = 60.0


class Limits(TypedDict, total=False):
    """The timeout and the pause of `wait_until`."""

    seconds: float
    pause: float
    more: Callable[[], object]
    """Text for the error, such as the end of a log."""
    ended: Callable[[], object]
    """True if the condition cannot come true any more, such as when a process has ended."""


def poll(condition: Callable[[], T], *, seconds: float = SECONDS, pause: float = 0.01) -> T:
    """Return the first true value of `condition`, or its last value when the time is over."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return value


def wait_until(condition: Callable[[], T | None], what: str, **limits: Unpack[Limits]) -> T:
    """Return the first true value of `condition`.

    Raises TimeoutError, and RuntimeError as soon as `ended` is true; both name `what` and say `more`.
    """
    ended, more = limits.get("ended", lambda: False), limits.get("more", lambda: "")
    seconds = limits.get("seconds", SECONDS)
    deadline = time.monotonic() + seconds
    while True:
        is_over = ended()  # checked first: a process that has ended may have made the condition true
        if value := condition():
            return value
        if is_over:
            raise RuntimeError(f"it ended before this: {what}\n{more()}".rstrip())
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}\n{more()}".rstrip())
        time.sleep(limits.get("pause", 0.01))


def retry(
    call: Callable[[], T], errors: type[Exception] | tuple[type[Exception], ...], what: str, **limits: Unpack[Limits]
) -> T:
    """Call again while it raises one of `errors`; return its result. Raises as `wait_until`, from the last error."""
    results: list[T] = []
    failure: Exception | None = None

    def succeeds() -> bool:
        nonlocal failure
        try:
            results.append(call())
        except errors as error:
            failure = error
        return bool(results)

    try:
        wait_until(succeeds, what, **limits)
    except (TimeoutError, RuntimeError) as error:
        raise error from failure
    return results[0]
