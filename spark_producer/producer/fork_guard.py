"""Rejects calls in a forked child, which has a copy of the producer's memory, but not its I/O thread.

A lock that another thread held at the fork is never released in the child. So this check takes no lock, and comes before any code
that does.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from spark_producer.errors import IllegalState


class HasProcessId(Protocol):
    """An object with the id of the process that created it."""

    process: int


Owner = TypeVar("Owner", bound=HasProcessId)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def is_forked(owner: HasProcessId) -> bool:
    """Return whether this process is a child of the one that created the object."""
    return owner.process != os.getpid()


def check_process(owner: HasProcessId) -> None:
    """Check that this process has created the object.

    Raises:
        IllegalState: this process is a forked child.
    """
    if owner.process != os.getpid():
        raise IllegalState(
            f"this producer cannot be used in process {os.getpid()}: it was created in process {owner.process}, and a forked "
            "process has neither its threads nor its connections. Create a producer in each process"
        )


def forbid_after_fork(*methods: str) -> Callable[[type[Owner]], type[Owner]]:
    """Return a class decorator that makes `methods` raise `IllegalState` in a forked child before they do anything."""

    def decorate(owner: type[Owner]) -> type[Owner]:
        for name in methods:
            setattr(owner, name, _checking_process(getattr(owner, name)))
        return owner

    return decorate


def _checking_process(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    @functools.wraps(method)
    def call(self: Owner, /, *args: Arguments.args, **more: Arguments.kwargs) -> Result:
        check_process(self)
        return method(self, *args, **more)

    return call
