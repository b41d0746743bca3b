"""The errors that tell why a transactional producer refuses a call, or has not written a row."""

from __future__ import annotations

from spark_producer.errors import IllegalState, PyProducerError, TransactionAbortable, TransactionAborted
from spark_producer.sender.transactions.states import (
    SETTLED,
    STOPPED_BY_FAILURE,
    TxnCall,
    TxnState,
)


def rows_missing_error(transactional_id: str, reason: BaseException) -> TransactionAbortable:
    """Return why a transaction can only be aborted."""
    return TransactionAbortable(
        f"the transaction of {transactional_id!r} lacks rows and cannot be committed: "
        f"{str(reason).rstrip('.') or type(reason).__name__}. Abort it (abort_transaction) and write its rows again"
    )


def not_sent_error(state: TxnState, failure: TransactionAbortable | None) -> PyProducerError:
    """Return why rows that wait are dropped in this state; `failure` is why the transaction can only be aborted, if it is so."""
    if state in SETTLED:
        return IllegalState(f"the record was queued by a producer that is {state.value}: nothing sends it")
    why = "was aborted" if failure is None else f"can only be aborted: {failure}"
    return TransactionAborted(f"the record was not written, because its transaction {why}")


def illegal_call_error(call: TxnCall, state: TxnState, failure: TransactionAbortable | None) -> PyProducerError:
    """Return why a call is refused in this state."""
    if failure is not None and (call is TxnCall.MARK_ABORTABLE or call in STOPPED_BY_FAILURE):
        return TransactionAbortable(str(failure))
    return IllegalState(
        f"{call.value}() of a producer that is {state.value}: first comes init_transactions(), once, then each "
        "transaction is begin_transaction(), its rows, and commit_transaction() or abort_transaction()"
    )


def spans_transactions_error() -> IllegalState:
    """Return why the rest of a call's rows are refused."""
    return IllegalState(
        "the transaction was ended, and another one begun, while a thread still sent rows, so not all of them are in one "
        "transaction. Wait until all sends are over before you commit or abort"
    )
