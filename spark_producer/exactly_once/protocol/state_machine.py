"""A write as a chain of pure steps: each asks something, and the answer gives the next step, or how it ends.

Steps are frozen, and equal ones go on equally: the tests' models search all that can be reached. They are no named tuples, since
those of two classes are equal if their fields are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NoReturn, Protocol, TypeAlias

from spark_producer.common.failpoints import failpoint
from spark_producer.errors import IllegalState
from spark_producer.exactly_once.protocol.commands import (
    Answer,
    Ask,
    FencedOff,
    Glued,
    Hung,
    Unsure,
    WriteAnswer,
    Written,
)
from spark_producer.exactly_once.protocol.outcomes import (
    Aborted,
    AlreadyDone,
    Begun,
    Committed,
    Failed,
    LeftAlone,
    Outcome,
)

MAX_TRIES = 5
"""So often a write of the control record is tried whose outcome stays unknown, each time after a fence and another look."""


class Step(Protocol):
    """Something that is asked now. `after` is pure, and takes every answer that `ask` may have."""

    failpoint: ClassVar[str]
    """Name of the failpoint after the step."""

    @property
    def ask(self) -> Ask:
        """What has to be answered."""

    def after(self, answer: Answer) -> Next:
        """What follows from `answer`."""


Next: TypeAlias = Step | Outcome
"""The next step, or the outcome if there is none."""


def run(start: Next, perform: Callable[[Ask], Answer]) -> Outcome:
    """Go through all steps. What `perform` raises ends them: the next BEGIN finds in the cluster what was reached."""
    now = start
    while not isinstance(now, Begun | Committed | AlreadyDone | Aborted | LeftAlone | Failed):
        answer = perform(now.ask)
        failpoint(failpoint_name(now))
        now = now.after(answer)
    return now


def failpoint_name(step: Step) -> str:
    """Return the name of the failpoint after a step: `begin.taking`, or `commit.finishing.ending` within a redrive.

    The names are literals of their own: the recorded cases of the failure matrix hang on them.
    """
    driving = getattr(step, "driving", None)
    return step.failpoint if driving is None else f"{step.failpoint}.{driving.failpoint}"


def write_answer(step: object, answer: Answer) -> WriteAnswer:
    """`answer` as that to `WriteControl`."""
    if not isinstance(answer, Written | Hung | FencedOff | Unsure | Glued):
        unexpected(step, answer)
    return answer


def unexpected(step: object, answer: Answer) -> NoReturn:
    """The performer gave an answer that the ask of `step` cannot have."""
    raise IllegalState(
        f"{type(answer).__name__} is no answer to what {type(step).__name__} asks: a defect of pyproducer"
    )
