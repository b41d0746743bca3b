"""The state machine of a write: each state has a command, and the result of the command gives the next state or the outcome.

States are frozen dataclasses, and equal states behave equally, so that the models of the tests can search all reachable states.
Named tuples would not do: tuples of two classes are equal if their fields are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NoReturn, Protocol, TypeAlias, TypeVar

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.failpoints import failpoint
from spark_producer.errors import IllegalState
from spark_producer.exactly_once.protocol.commands import (
    Command,
    ControlWritten,
    FencedOff,
    Found,
    Indeterminate,
    MarkersLost,
    OlderTransactionHangs,
    Result,
    WriteResult,
)
from spark_producer.exactly_once.protocol.control_record import ControlRecord
from spark_producer.exactly_once.protocol.outcomes import (
    AlreadyDone,
    Begun,
    Failed,
    NothingToAbort,
    Outcome,
    WriteAborted,
    WriteCommitted,
)

Kind = TypeVar("Kind")

MAX_TRIES = 5
"""Maximum number of attempts to write the control record when the outcome is unknown. Each one follows a fence and a read."""


class WriteState(Protocol):
    """A state of a write. `on_result` is pure, and accepts every result that `command` may have."""

    failpoint: ClassVar[str]
    """Name of the failpoint that is reached when the command has been executed."""

    @property
    def command(self) -> Command:
        """The command to execute in this state."""

    def on_result(self, result: Result) -> Next:
        """Return the next state, or the outcome."""


Next: TypeAlias = WriteState | Outcome
"""The next state, or the outcome if the write has ended."""


def run(start: Next, perform: Callable[[Command], Result]) -> Outcome:
    """Execute the commands of all states and return the outcome.

    An exception of `perform` stops the write in its state; the next BEGIN reads from the cluster how far it got.
    """
    now = start
    while not isinstance(now, Begun | WriteCommitted | AlreadyDone | WriteAborted | NothingToAbort | Failed):
        result = perform(now.command)
        failpoint(failpoint_name(now))
        now = now.on_result(result)
    return now


def failpoint_name(state: WriteState) -> str:
    """Return the name of the failpoint of a state: `begin.taking`, or `commit.finishing.ending` within a roll-forward.

    The names are literals of their own: the recorded cases of the failure matrix hang on them.
    """
    nested = getattr(state, "roll_forward_state", None)
    return state.failpoint if nested is None else f"{state.failpoint}.{nested.failpoint}"


def expect(state: object, result: Result, kind: type[Kind]) -> Kind:
    """Return `result` as a result of this kind; raise `IllegalState` if it is another command's."""
    return result if isinstance(result, kind) else unexpected(state, result)


def read_result(state: object, result: Result) -> tuple[ControlRecord | None, tuple[TopicPartition, ...]]:
    """Return the control record of a result of `ReadControl`, and the partitions that lost markers.

    Raises:
        IllegalState: it is another command's, or `Missing`.
    """
    if isinstance(result, MarkersLost):
        return result.record, result.partitions
    return expect(state, result, Found).record, ()


def write_result(state: object, result: Result) -> WriteResult:
    """Return `result` as a result of `WriteControl`; raise `IllegalState` if it is another command's."""
    if not isinstance(result, ControlWritten | MarkersLost | FencedOff | Indeterminate | OlderTransactionHangs):
        unexpected(state, result)
    return result


def unexpected(state: object, result: Result) -> NoReturn:
    """Raise `IllegalState`: the command of `state` cannot have this result."""
    raise IllegalState(
        f"the command of {type(state).__name__} had the result {type(result).__name__}, which it cannot have: a bug in pyproducer"
    )
