"""The errors of a transactional producer that rejects a call, or has not written a row."""

from __future__ import annotations

from spark_producer.errors import IllegalState, PyProducerError, TransactionAbortable, TransactionAborted
from spark_producer.sender.transactions.states import (
    SETTLED,
    STOPPED_BY_FAILURE,
    TxnCall,
    TxnState,
)


def rows_missing_error(transactional_id: str, reason: BaseException) -> TransactionAbortable:
    """Return the error of a transaction that can only be aborted, because rows are missing."""
    return TransactionAbortable(
        f"the transaction of {transactional_id!r} lacks rows and cannot be committed: "
        f"{str(reason).rstrip('.') or type(reason).__name__}. Abort it (abort_transaction) and write its rows again"
    )


def not_sent_error(state: TxnState, failure: TransactionAbortable | None) -> PyProducerError:
    """Return the error of waiting rows that are dropped in this state. `failure` is the error of the transaction, if any."""
    if state in SETTLED:
        return IllegalState(f"the record was not sent: it was queued while the producer was {state.value}")
    why = "was aborted" if failure is None else f"can only be aborted: {failure}"
    return TransactionAborted(f"the record was not written, because its transaction {why}")


def illegal_call_error(call: TxnCall, state: TxnState, failure: TransactionAbortable | None) -> PyProducerError:
    """Return the error of a call that is not allowed in this state."""
    if failure is not None and (call is TxnCall.MARK_ABORTABLE or call in STOPPED_BY_FAILURE):
        return TransactionAbortable(str(failure))
    return IllegalState(
        f"{call.value}() is not allowed: the producer is {state.value}. Call init_transactions() once; then, for each "
        "transaction, begin_transaction(), send its rows, and commit_transaction() or abort_transaction()"
    )


def spans_transactions_error() -> IllegalState:
    """Return the error of the rest of a call's rows, if another transaction has begun meanwhile."""
    return IllegalState(
        "the transaction was ended, and another one begun, while a thread still sent rows, so not all of them are in one "
        "transaction. Wait until all sends are over before you commit or abort"
    )
