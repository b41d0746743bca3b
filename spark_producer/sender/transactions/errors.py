"""What each error code of a coordinator means to a transaction: a table by request, as in Kafka's TransactionManager."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from spark_producer.common.error_codes import FENCING, Action, Code


class Need(enum.IntEnum):
    """A request to a coordinator, in the order of their importance: the first that is needed goes out, one at a time."""

    FIND_COORDINATOR = 0
    INIT = 1
    ADD_PARTITIONS = 2
    ADD_OFFSETS = 3
    COMMIT_OFFSETS = 4
    COMMIT = 5
    ABORT = 6
    RAISE_EPOCH = 7
    """InitProducerId with the epoch in use, behind a transaction after which it may not be used again (KIP-360)"""


class Verdict(enum.Enum):
    """What follows from an answer."""

    DONE = "done"
    RETRY = "the same request again, after a pause"
    LOOK_UP = "the same, once the coordinator has been looked up again"
    ABORTABLE = "the transaction can only be aborted"
    REFUSED = "the call has failed, and may be repeated when its reason is gone"
    FENCED = "another producer has taken over, or the transaction has timed out, and this producer has ended"
    FATAL = "the producer has ended"


_LOOK_UP = {Code.COORDINATOR_NOT_AVAILABLE: Verdict.LOOK_UP, Code.NOT_COORDINATOR: Verdict.LOOK_UP}
_FENCED = dict.fromkeys(FENCING, Verdict.FENCED)
_FATAL = dict.fromkeys((Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.INVALID_TXN_STATE), Verdict.FATAL)
_ABORTABLE = {Code.TRANSACTION_ABORTABLE: Verdict.ABORTABLE, Code.UNKNOWN_PRODUCER_ID: Verdict.ABORTABLE}
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
    Verdict.ABORTABLE,
)

VERDICTS: Mapping[Need, Mapping[Code, Verdict]] = {
    Need.FIND_COORDINATOR: {
        Code.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
        Code.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
    },
    Need.INIT: _LOOK_UP
    | _FENCED
    | {
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.REFUSED,
        Code.CLUSTER_AUTHORIZATION_FAILED: Verdict.REFUSED,
        Code.TRANSACTION_ABORTABLE: Verdict.REFUSED,  # there is no transaction yet that could be aborted
    },
    Need.ADD_PARTITIONS: _LOOK_UP | _FENCED | _FATAL | _ABORTABLE,
    Need.ADD_OFFSETS: _LOOK_UP | _FENCED | _FATAL | _ABORTABLE | _GROUP,
    Need.COMMIT_OFFSETS: _LOOK_UP
    | _FENCED
    | _ABORTABLE
    | _GROUP
    | {
        Code.REQUEST_TIMED_OUT: Verdict.LOOK_UP,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.FATAL,
    },
    # To who commits too late, Kafka 4 says 48 where Kafka 3 says 90, and Java's exceptions differ. It is one thing to users.
    Need.COMMIT: _LOOK_UP | _FENCED | _FATAL | _ABORTABLE | {Code.INVALID_TXN_STATE: Verdict.FENCED},
    # 48 to an abort means that somebody else has ended the transaction, so it is fatal, as in Java's EndTxnHandler (4.3.1).
    Need.ABORT: _LOOK_UP | _FENCED | _FATAL | {Code.TRANSACTION_ABORTABLE: Verdict.FATAL},
    Need.RAISE_EPOCH: _LOOK_UP | _FENCED,
}
"""The codes that mean something of their own; all others that Kafka calls retriable are sent again.

A coordinator that is looked up for the sake of INIT is judged by that row: what refuses the one refuses the other.
"""

OTHERWISE: Mapping[Need, Verdict] = dict.fromkeys(Need, Verdict.FATAL) | {Need.ADD_PARTITIONS: Verdict.ABORTABLE}
"""What every other code means."""


def verdict_on(need: Need, number: int) -> Verdict:
    """Return what an error code in the answer to a request means."""
    code = Code(number)
    if not code:
        return Verdict.DONE
    found = VERDICTS[need].get(code)
    if found is not None:
        return found
    return Verdict.RETRY if Action.RETRY in code.action else OTHERWISE[need]
