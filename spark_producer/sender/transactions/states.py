"""The states of a transactional producer, the legal ways from one to another, and what callers may ask for in each (tables).

They are those of Kafka's TransactionManager, and two more: a producer that is HELD takes rows and sends nothing, so that its
owner can still choose not to open a transaction at all; OPENING is the way from there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from spark_producer.errors import IllegalState


class State(enum.Enum):
    """The state of a transactional producer; the text ends the sentence "the producer is …"."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "outside of a transaction"
    HELD = "holding its rows back"
    OPENING = "opening the transaction of the rows that it held back"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "prepared, and another process ends its transaction"
    COMMITTING = "committing its transaction"
    ABORTING = "aborting its transaction"
    ABORTABLE = "in a transaction that can only be aborted"
    FATAL = "ended"


_ALL = frozenset(State)

SOURCES: Mapping[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.READY, State.HELD, State.PREPARED, State.ABORTING}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.COMMITTING, State.ABORTING}),
    State.READY: frozenset({State.INITIALIZING, State.COMMITTING, State.ABORTING}),
    State.HELD: frozenset({State.UNINITIALIZED, State.READY, State.PREPARED}),
    State.OPENING: frozenset({State.HELD}),
    State.IN_TRANSACTION: frozenset({State.READY, State.OPENING}),
    State.PREPARED: frozenset({State.IN_TRANSACTION, State.OPENING}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE, State.HELD, State.OPENING}),
    State.ABORTABLE: frozenset({State.IN_TRANSACTION, State.COMMITTING, State.HELD, State.OPENING}),
    State.FATAL: _ALL,
}
"""From where each state may be entered."""


TAKES_ROWS = frozenset({State.HELD, State.OPENING, State.IN_TRANSACTION})
"""The states in which rows may be queued."""

KEEPS_ROWS = TAKES_ROWS | {State.COMMITTING}
"""The states in which queued rows wait, or are sent; in all others they are dropped."""

SETTLED = frozenset({State.UNINITIALIZED, State.INITIALIZING, State.READY, State.PREPARED, State.FATAL})
"""The states in which no transaction is left that this producer must end before it is closed."""


class Call(enum.Enum):
    """What callers ask for; the text is the name of the call."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SPOIL = "send"
    """what the producer itself asks for when it has refused a row: the transaction lacks it, and must not be committed"""
    OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    HOLD = "hold"
    TAKE = "take_held"
    RELEASE = "release"
    PREPARE = "prepare"
    RENEW = "renew"
    GIVE_UP = "give_up"


REPEATED = frozenset({Call.INIT, Call.BEGIN, Call.COMMIT, Call.ABORT, Call.GIVE_UP})
"""The calls that go on when their caller has waited long enough. Then only the same call is allowed, and gets the result."""

_OUTSIDE = frozenset({State.UNINITIALIZED, State.READY, State.PREPARED})

ALLOWED: Mapping[Call, frozenset[State]] = {
    Call.INIT: frozenset({State.UNINITIALIZED}),
    Call.BEGIN: frozenset({State.READY}),
    Call.OFFSETS: frozenset({State.IN_TRANSACTION}),
    Call.COMMIT: frozenset({State.IN_TRANSACTION}),
    Call.SPOIL: _ALL,
    Call.ABORT: frozenset({State.HELD, State.OPENING, State.IN_TRANSACTION, State.ABORTABLE}),
    Call.HOLD: _OUTSIDE,
    Call.TAKE: TAKES_ROWS,  # the hold may have ended by itself
    Call.RELEASE: TAKES_ROWS,
    Call.PREPARE: frozenset({State.IN_TRANSACTION, State.OPENING}),  # without rows it need not be open
    Call.RENEW: _OUTSIDE,
    Call.GIVE_UP: _ALL - {State.INITIALIZING, State.COMMITTING, State.FATAL},
}
"""In which states each call is allowed."""

STOPPED_BY_FAILURE = frozenset({Call.BEGIN, Call.OFFSETS, Call.COMMIT, Call.PREPARE, Call.TAKE, Call.RELEASE})
"""The calls that raise the reason why a transaction can only be aborted, where others raise that they make no sense."""


def moved(state: State, to: State) -> State:
    """Return the new state.

    Raises:
        IllegalState: the table does not allow it.
    """
    if state not in SOURCES[to]:
        raise IllegalState(f"a producer that is {state.value} cannot become one that is {to.value}")
    return to


class Operation:
    """A call of another thread, which the I/O thread carries out; `argument` and `result` depend on the call.

    The caller creates it. The I/O thread sets `seen` first, since a thread that was interrupted asks once more; `committed` when
    the coordinator has committed the transaction, after which nothing is an error of the call any more; `result` or `error`; and
    `done` last. `caller` is the thread that waits; None if it has left.
    """

    __slots__ = ("argument", "call", "caller", "committed", "done", "error", "result", "seen")

    def __init__(self, call: Call, argument: object = None) -> None:
        self.call = call
        self.argument = argument
        self.caller: int | None = None
        self.seen = False
        self.result: object = None
        self.error: Exception | None = None
        self.committed = False
        self.done = False
