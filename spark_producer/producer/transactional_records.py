"""Single records of a transactional producer: rejected outside of a transaction; a failed one makes the transaction abortable."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.accumulator import Callback, RecordFuture
from spark_producer.producer.single_records import SingleRecords
from spark_producer.producer.transactions import Transactions
from spark_producer.record.send_arguments import Field, Header


class TransactionalRecords:
    """Replaces `SingleRecords`, so that other producers have no cost for transactions."""

    def __init__(self, records: SingleRecords, transactions: Transactions) -> None:
        self._records = records
        self._transactions = transactions

    def send(
        self,
        topic: str,
        value: Field,
        key: Field,
        headers: Sequence[Header],
        timestamp_ms: int,
        partition: int | None,
        on_delivery: Callback | None,
    ) -> RecordFuture:
        """Queue one record; see `Producer.send`. A transaction that lacks a record can only be aborted.

        Raises:
            TransactionAbortable, IllegalState: no transaction accepts records now.
        """
        self._transactions.check()
        try:
            return self._records.send(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        except BaseException as error:
            self._transactions.mark_abortable(error)
            raise
