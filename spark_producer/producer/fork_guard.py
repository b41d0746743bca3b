"""The refusal of calls in a forked child, which has a copy of the producer's memory, but not the thread that sends.

A lock that another thread held when the process was forked is never released in the child. So nothing here takes a lock, and
this check comes before any code that does.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from spark_producer.errors import IllegalState


class HasProcessId(Protocol):
    """An object that remembers the id of the process that created it."""

    process: int


Owner = TypeVar("Owner", bound=HasProcessId)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def is_forked(made: HasProcessId) -> bool:
    """Return whether this process is a child of the one that created the object."""
    return made.process != os.getpid()


def check_process(made: HasProcessId) -> None:
    """Refuse a call in a forked child.

    Raises:
        IllegalState: this process is a forked child.
    """
    if made.process != os.getpid():
        raise IllegalState(
            f"this producer was made in process {made.process}, and this is process {os.getpid()}, forked from it, which "
            "has neither its threads nor its connections; make one in each process"
        )


def forbid_after_fork(*methods: str) -> Callable[[type[Owner]], type[Owner]]:
    """Decorate a class so that its `methods` raise `IllegalState` in a forked child before they do anything."""

    def decorate(owner: type[Owner]) -> type[Owner]:
        for name in methods:
            setattr(owner, name, _refusing(getattr(owner, name)))
        return owner

    return decorate


def _refusing(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    @functools.wraps(method)
    def call(self: Owner, /, *args: Arguments.args, **more: Arguments.kwargs) -> Result:
        check_process(self)
        return method(self, *args, **more)

    return call
