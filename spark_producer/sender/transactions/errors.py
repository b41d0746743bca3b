"""The action for each error code of a coordinator: a table by request, as in Kafka's TransactionManager."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from spark_producer.common.error_codes import FENCING, Action, Code


class TxnRequest(enum.IntEnum):
    """The requests to coordinators. The producer sends one at a time (Kafka: TransactionManager.Priority)."""

    FIND_COORDINATOR = 0
    INIT = 1
    ADD_PARTITIONS = 2
    ADD_OFFSETS = 3
    COMMIT_OFFSETS = 4
    COMMIT = 5
    ABORT = 6
    RAISE_EPOCH = 7
    """InitProducerId with the current epoch, after a transaction whose epoch may not be used again (KIP-360)"""


class ErrorAction(enum.Enum):
    """The action after a response."""

    DONE = "done"
    RETRY = "the same request again, after the backoff"
    LOOK_UP = "the same request, after another lookup of the coordinator"
    ABORTABLE = "the transaction can only be aborted"
    REFUSED = "the call has failed, and may be repeated when its cause is removed"
    FENCED = "another producer has taken over, or the transaction has timed out, and this producer has ended"
    FATAL = "the producer has ended"


_LOOK_UP = {Code.COORDINATOR_NOT_AVAILABLE: ErrorAction.LOOK_UP, Code.NOT_COORDINATOR: ErrorAction.LOOK_UP}
_FENCED = dict.fromkeys(FENCING, ErrorAction.FENCED)
_FATAL = dict.fromkeys((Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.INVALID_TXN_STATE), ErrorAction.FATAL)
_ABORTABLE = {
    Code.TRANSACTION_ABORTABLE: ErrorAction.ABORTABLE,
    Code.UNKNOWN_PRODUCER_ID: ErrorAction.ABORTABLE,
}
_GROUP = dict.fromkeys(
    (
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.FENCED_INSTANCE_ID,
        Code.UNKNOWN_MEMBER_ID,
        Code.ILLEGAL_GENERATION,
        Code.GROUP_ID_NOT_FOUND,
        Code.STALE_MEMBER_EPOCH,
        Code.REBALANCE_IN_PROGRESS,
    ),
    ErrorAction.ABORTABLE,
)

ACTIONS: Mapping[TxnRequest, Mapping[Code, ErrorAction]] = {
    TxnRequest.FIND_COORDINATOR: {
        Code.GROUP_AUTHORIZATION_FAILED: ErrorAction.ABORTABLE,
        Code.TRANSACTION_ABORTABLE: ErrorAction.ABORTABLE,
    },
    TxnRequest.INIT: _LOOK_UP
    | _FENCED
    | {
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorAction.REFUSED,
        Code.CLUSTER_AUTHORIZATION_FAILED: ErrorAction.REFUSED,
        Code.TRANSACTION_ABORTABLE: ErrorAction.REFUSED,  # there is no transaction yet that could be aborted
    },
    TxnRequest.ADD_PARTITIONS: _LOOK_UP | _FENCED | _FATAL | _ABORTABLE,
    TxnRequest.ADD_OFFSETS: _LOOK_UP | _FENCED | _FATAL | _ABORTABLE | _GROUP,
    TxnRequest.COMMIT_OFFSETS: _LOOK_UP
    | _FENCED
    | _ABORTABLE
    | _GROUP
    | {
        Code.REQUEST_TIMED_OUT: ErrorAction.LOOK_UP,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorAction.FATAL,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: ErrorAction.FATAL,
    },
    # For a commit after the timeout Kafka 4 returns 48 and Kafka 3 90, and Java's exceptions differ. For users it is one case.
    TxnRequest.COMMIT: _LOOK_UP | _FENCED | _FATAL | _ABORTABLE | {Code.INVALID_TXN_STATE: ErrorAction.FENCED},
    # 48 for an abort means that another client has ended the transaction, so it is fatal, as in Java's EndTxnHandler (4.3.1).
    TxnRequest.ABORT: _LOOK_UP | _FENCED | _FATAL | {Code.TRANSACTION_ABORTABLE: ErrorAction.FATAL},
    TxnRequest.RAISE_EPOCH: _LOOK_UP | _FENCED,
}
"""The error codes with a specific action; for other retriable codes the request is sent again.

FIND_COORDINATOR for INIT uses the row of INIT, since both need the same rights.
"""

DEFAULT_ACTIONS: Mapping[TxnRequest, ErrorAction] = dict.fromkeys(TxnRequest, ErrorAction.FATAL) | {
    TxnRequest.ADD_PARTITIONS: ErrorAction.ABORTABLE
}
"""The action for all other codes."""


def action_for(need: TxnRequest, number: int) -> ErrorAction:
    """Return the action for an error code in a response."""
    code = Code(number)
    if not code:
        return ErrorAction.DONE
    found = ACTIONS[need].get(code)
    if found is not None:
        return found
    return ErrorAction.RETRY if Action.RETRY in code.action else DEFAULT_ACTIONS[need]
