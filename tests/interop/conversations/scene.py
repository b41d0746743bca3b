"""A scene is a list of steps, and playing it gives one line for each of them: who asks, what, and the answer.

Answers that depend only on a broker's speed are not recorded: a request is repeated while the coordinator is busy with the last
transaction (CONCURRENT_TRANSACTIONS), and a step may name the state that it waits for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tests.interop.conversations.talk import NotMet, Place, Talk

SECONDS = 30.0
_BUSY = re.compile(r"\((14|15|16|51)\)")
_PAUSE = 0.01


class Request(Protocol):
    """Something to say to a broker."""

    def ask(self, talk: Talk, connection: str) -> str:
        """Say it, and return what is to be written down of the answer."""


class Step(NamedTuple):
    """One request. `until` is a regular expression: asked again until the answer has it. `once`: never asked again."""

    connection: str
    request: Request
    until: str = ""
    once: bool = False


class TxnVersion(NamedTuple):
    """A transaction version, by the newest versions of Produce and EndTxn: partitions are added by AddPartitionsToTxn, or by
    Produce (KIP-890, part 2)."""

    name: str
    produce: int
    end: int


EXPLICIT = TxnVersion("explicit", 11, 4)
IMPLICIT = TxnVersion("implicit", 12, 5)
BOTH = (EXPLICIT, IMPLICIT)
CLASSIC = TxnVersion("classic", 11, 4)
"""For scenes of classic groups, in which both transaction versions are the same."""


class Scene(NamedTuple):
    """A name, the behaviour that it shows, and the steps with each transaction version. `slow`: takes more than a few seconds."""

    name: str
    shows: str
    steps: Callable[[TxnVersion], list[Step]]
    txn_versions: tuple[TxnVersion, ...] = BOTH
    slow: bool = False


class Line(NamedTuple):
    """A step as it was played."""

    connection: str
    request: str
    answer: str


def play(steps: list[Step], place: Place) -> list[Line]:
    """Play the steps one after the other."""
    with Talk(place) as talk:
        return [Line(step.connection, _describe(step.request), _answer(step, talk)) for step in steps]


def _answer(step: Step, talk: Talk) -> str:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            answer = step.request.ask(talk, step.connection)
        except ConnectionError:
            talk.hang_up(step.connection)
            answer = "closes the connection"
        except NotMet as missing:
            return str(missing)
        answer = answer or "nothing"
        waits = not re.search(step.until, answer) if step.until else _BUSY.search(answer)
        if step.once or not waits or time.monotonic() > deadline:
            return answer
        time.sleep(_PAUSE)  # the request is sent again; the last response is the line of the scene


def _describe(request: Request) -> str:
    """A request with the fields that are not as usual; requests are named tuples."""
    assert isinstance(request, tuple)
    usual = getattr(request, "_field_defaults", {})
    fields: dict[str, object] = request._asdict()  # type: ignore[attr-defined]  # of every named tuple
    said = [f"{name}={value}" for name, value in fields.items() if name not in usual or usual[name] != value]
    return f"{type(request).__name__} {' '.join(said)}".strip()
