"""The states of a transactional producer, the valid transitions, and the calls that each state allows, as tables.

The states are those of Kafka's TransactionManager, and two more: a DEFERRED producer accepts rows and sends nothing, so that its
owner can still decide not to open a transaction; OPENING follows it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from spark_producer.errors import IllegalState


class TxnState(enum.Enum):
    """The state of a transactional producer. The value completes the sentence "the producer is …"."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "outside of a transaction"
    DEFERRED = "deferring its transaction"
    OPENING = "opening its deferred transaction"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "prepared, and another process ends its transaction"
    COMMITTING = "committing its transaction"
    ABORTING = "aborting its transaction"
    ABORTABLE = "in a transaction that can only be aborted"
    FATAL = "ended"


_ALL = frozenset(TxnState)

SOURCES: Mapping[TxnState, frozenset[TxnState]] = {
    TxnState.UNINITIALIZED: frozenset(
        {
            TxnState.INITIALIZING,
            TxnState.READY,
            TxnState.DEFERRED,
            TxnState.PREPARED,
            TxnState.ABORTING,
        }
    ),
    TxnState.INITIALIZING: frozenset({TxnState.UNINITIALIZED, TxnState.COMMITTING, TxnState.ABORTING}),
    TxnState.READY: frozenset({TxnState.INITIALIZING, TxnState.COMMITTING, TxnState.ABORTING}),
    TxnState.DEFERRED: frozenset({TxnState.UNINITIALIZED, TxnState.READY, TxnState.PREPARED}),
    TxnState.OPENING: frozenset({TxnState.DEFERRED}),
    TxnState.IN_TRANSACTION: frozenset({TxnState.READY, TxnState.OPENING}),
    TxnState.PREPARED: frozenset({TxnState.IN_TRANSACTION, TxnState.OPENING}),
    TxnState.COMMITTING: frozenset({TxnState.IN_TRANSACTION}),
    TxnState.ABORTING: frozenset(
        {
            TxnState.IN_TRANSACTION,
            TxnState.PREPARED,
            TxnState.ABORTABLE,
            TxnState.DEFERRED,
            TxnState.OPENING,
        }
    ),
    TxnState.ABORTABLE: frozenset(
        {
            TxnState.IN_TRANSACTION,
            TxnState.COMMITTING,
            TxnState.DEFERRED,
            TxnState.OPENING,
        }
    ),
    TxnState.FATAL: _ALL,
}
"""The states from which each state may be entered."""


ACCEPTS_ROWS = frozenset({TxnState.DEFERRED, TxnState.OPENING, TxnState.IN_TRANSACTION})
"""The states in which rows may be queued."""

KEEPS_ROWS = ACCEPTS_ROWS | {TxnState.COMMITTING}
"""The states in which queued rows wait or are sent; in all others they are dropped."""

SETTLED = frozenset(
    {
        TxnState.UNINITIALIZED,
        TxnState.INITIALIZING,
        TxnState.READY,
        TxnState.PREPARED,
        TxnState.FATAL,
    }
)
"""The states without a transaction that the producer must end before it is closed."""


class TxnCall(enum.Enum):
    """The calls of a transactional producer. The value is the name of the method."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    MARK_ABORTABLE = "send"
    """made by the producer itself when it has rejected a row: the transaction lacks it, and must not be committed"""
    OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    DEFER = "begin_deferred"
    TAKE = "take_deferred"
    RELEASE = "release"
    PREPARE = "prepare"
    RENEW = "renew"
    TRY_ABORT = "try_abort"


REPEATED = frozenset(
    {
        TxnCall.INIT,
        TxnCall.BEGIN,
        TxnCall.COMMIT,
        TxnCall.ABORT,
        TxnCall.TRY_ABORT,
    }
)
"""The calls that continue after a timeout of their caller. Then only the same call is allowed, and gets the result."""

_OUTSIDE = frozenset({TxnState.UNINITIALIZED, TxnState.READY, TxnState.PREPARED})

ALLOWED: Mapping[TxnCall, frozenset[TxnState]] = {
    TxnCall.INIT: frozenset({TxnState.UNINITIALIZED}),
    TxnCall.BEGIN: frozenset({TxnState.READY}),
    TxnCall.OFFSETS: frozenset({TxnState.IN_TRANSACTION}),
    TxnCall.COMMIT: frozenset({TxnState.IN_TRANSACTION}),
    TxnCall.MARK_ABORTABLE: _ALL,
    TxnCall.ABORT: frozenset(
        {
            TxnState.DEFERRED,
            TxnState.OPENING,
            TxnState.IN_TRANSACTION,
            TxnState.ABORTABLE,
        }
    ),
    TxnCall.DEFER: _OUTSIDE,
    TxnCall.TAKE: ACCEPTS_ROWS,  # the transaction may have begun automatically
    TxnCall.RELEASE: ACCEPTS_ROWS,
    TxnCall.PREPARE: frozenset({TxnState.IN_TRANSACTION, TxnState.OPENING}),  # without rows it need not be open
    TxnCall.RENEW: _OUTSIDE,
    TxnCall.TRY_ABORT: _ALL - {TxnState.INITIALIZING, TxnState.COMMITTING, TxnState.FATAL},
}
"""The states in which each call is allowed."""

STOPPED_BY_FAILURE = frozenset(
    {
        TxnCall.BEGIN,
        TxnCall.OFFSETS,
        TxnCall.COMMIT,
        TxnCall.PREPARE,
        TxnCall.TAKE,
        TxnCall.RELEASE,
    }
)
"""The calls that raise the error of an abortable transaction; all others raise `IllegalState` there."""


def transition(state: TxnState, to: TxnState) -> TxnState:
    """Return `to`, if the transition is valid.

    Raises:
        IllegalState: the table does not allow the transition.
    """
    if state not in SOURCES[to]:
        raise IllegalState(f"invalid transition of the producer: from {state.value!r} to {to.value!r}")
    return to


class Operation:
    """A call of another thread, which the I/O thread executes. `argument` and `result` depend on the call.

    The caller creates it. The I/O thread sets `seen` first, since an interrupted thread may post it again; `committed` when the
    coordinator has committed the transaction, after which the call cannot fail; `result` or `error`; and `done` last. `caller` is
    the waiting thread; None if it has left.
    """

    __slots__ = ("argument", "call", "caller", "committed", "done", "error", "result", "seen")

    def __init__(self, call: TxnCall, argument: object = None) -> None:
        self.call = call
        self.argument = argument
        self.caller: int | None = None
        self.seen = False
        self.result: object = None
        self.error: Exception | None = None
        self.committed = False
        self.done = False
