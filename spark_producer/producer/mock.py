"""A producer for tests of code that uses one: it has no broker and no thread, and the test decides the fate of each record."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import NamedTuple, Self, TypedDict

import pyarrow as pa

from spark_producer.accumulator import BatchResult, Callback, RecordMetadata, TableMetadata, TableResult
from spark_producer.accumulator.failure_tracking import FailureTracker, ThreadFailures
from spark_producer.accumulator.row_origins import RowNumbers, RowRange
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ProducerClosed, RecordError, TransactionAborted
from spark_producer.metrics import Values
from spark_producer.partitioner.key_hash import JAVA
from spark_producer.producer.checks import check_timeout
from spark_producer.producer.mock_transactions import MockTransactions, transaction_of
from spark_producer.record.columns import read_columns
from spark_producer.record.send_arguments import NO_PARTITION, read_headers, read_record
from spark_producer.sender.transactions.partitions import ConsumerGroup, GroupOffset


class SentRecord(NamedTuple):
    """A record as it would have been sent."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class PendingRecord(NamedTuple):
    """A record that the test has not decided on yet.

    `waits` is the result that waits for it (None for a row of `send_batch`), and `account` that of the thread that sent it.
    """

    tp: TopicPartition
    waits: BatchResult | RowRange | None
    account: ThreadFailures


class _HeaderStruct(TypedDict):
    """A header as Arrow gives it for a list of structs; for a map it is a pair."""

    key: str | bytes
    value: str | bytes | None


class MockProducer:
    """Takes the place of `Producer`, with the same checks of rows, futures and callbacks, in the caller's thread.

    With `auto_complete` every record is acknowledged at once. Without it `complete_next` and `error_next` decide on the oldest
    record, and `flush` acknowledges those that are left. The same threads as with `Producer` are told of a refused record.
    `partitions` gives the number of partitions by topic (1 by default). Keys are hashed as Kafka does; rows without a key go to
    partition 0. Calls of `send…`, `flush` and `close` raise `send_error`, `flush_error` and `close_error` until these are None
    again. (It is Java's MockProducer.)

    Without `init_transactions` it is a producer without transactions. With it, records count as sent (`history`) once their
    transaction is committed; `transactions` has what is not, and the errors that its calls raise.
    """

    def __init__(self, *, auto_complete: bool = True, partitions: Mapping[str, int] | None = None) -> None:
        self.auto_complete = auto_complete
        self.history: list[SentRecord] = []
        """all records that were sent, whatever their outcome; of transactions, those that were committed"""
        self.transactions: MockTransactions[SentRecord] = MockTransactions()
        self.closed = False
        self.send_error: Exception | None = None
        self.flush_error: Exception | None = None
        self.close_error: Exception | None = None
        self.mock_metrics: Values = {}
        """the values that `metrics` returns"""
        self._partitions = dict(partitions or {})
        self._pending: deque[PendingRecord] = deque()
        self._ends: dict[TopicPartition, int] = {}
        self._accounts = FailureTracker()

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: Callback | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record as `Producer.send` does."""
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        with self._refusing():
            record, asked = read_record(topic, value, key, headers, partition, now_ms)
            self._check(self.send_error)
            tp = TopicPartition(topic, self._partition(topic, record.key, None if asked == NO_PARTITION else asked))
        self._sent([SentRecord(*tp, record.key, record.value, read_headers(record), record.timestamp)])
        result = BatchResult(tp)
        future = result.add(0, record.timestamp, on_delivery)
        self._wait(tp, result)
        return future

    def send_batch(
        self, batch: pa.RecordBatch, *, topic: str | None = None, first_row: int = 0, with_headers: bool = True
    ) -> None:
        """Send a batch as `Producer.send_batch` does."""
        self._accounts.check()
        for tp, _ in self._take(batch, topic, first_row, with_headers):
            self._wait(tp, None)

    def send_table(self, table: pa.Table, *, topic: str | None = None) -> Future[TableMetadata]:
        """Send a table as `Producer.send_table` does."""
        result, first_row = TableResult(), 0
        for batch in table.to_batches():
            for number, (tp, _) in enumerate(self._take(batch, topic, first_row, True), first_row):
                result.expect()
                self._wait(tp, RowRange(result, 0, RowNumbers(number, 1)))
            first_row += batch.num_rows
        result.no_more()
        return result.future

    def complete_next(self) -> bool:
        """Acknowledge the oldest undecided record; return False if there is none."""
        if not self._pending:
            return False
        tp, waits, _ = self._pending.popleft()
        offset = self._ends.get(tp, 0)
        self._ends[tp] = offset + 1
        if isinstance(waits, RowRange):
            if waits.listener is not None:
                waits.listener.written(tp, offset, 1)
        elif waits is not None:
            waits.complete(offset, -1)
        return True

    def error_next(self, error: Exception) -> bool:
        """Refuse the oldest undecided record; return False if there is none.

        The next `flush` of the record's thread raises the first such error.
        """
        if not self._pending:
            return False
        _, waits, account = self._pending[0]
        self.transactions.mark_abortable(error)
        self._accounts.record(error, (account,), reported=waits is not None)
        return self._refuse_next(error)

    def flush(self) -> None:
        """Acknowledge all undecided records.

        Raises:
            `flush_error`, if it is set, or the same errors as `Producer.flush`.
        """
        self._check(self.flush_error)
        while self.complete_next():
            continue
        self._accounts.raise_unreported()

    @property
    def flushed(self) -> bool:
        """Whether every record is decided."""
        return not self._pending

    def metrics(self) -> Values:
        """Return what the test has put into `mock_metrics`, in the place of `Producer.metrics`."""
        return self.mock_metrics

    def close(self, timeout: float | None = None) -> None:
        """Acknowledge all undecided records, or refuse them if `timeout` is 0. This may be called twice."""
        check_timeout(timeout)
        if self.close_error is not None:
            raise self.close_error
        self.closed = True
        if self.transactions.in_flight:
            timeout = 0
            self.transactions = MockTransactions()
        while self._refuse_next(ProducerClosed("the producer was closed")) if timeout == 0 else self.complete_next():
            continue
        self._accounts.log_unreported()

    # --- transactions -----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ARG002 - nothing waits here
        """Do what `Producer.init_transactions` does."""
        self._check(None)
        self.transactions.init()

    def begin_transaction(self) -> None:
        """Do what `Producer.begin_transaction` does."""
        self._check(None)
        self.transactions.begin()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[tuple[str, int], int | GroupOffset],
        group: str | ConsumerGroup,
        timeout: float | None = None,  # noqa: ARG002
    ) -> None:
        """Do what `Producer.send_offsets_to_transaction` does."""
        self._check(None)
        self.transactions.send_offsets(offsets, group)

    def commit_transaction(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Acknowledge the undecided records, and commit."""
        self._check(None)
        self.transactions.check_commit()
        self.flush()
        self.history += self.transactions.committed()

    def abort_transaction(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Refuse the undecided records with `TransactionAborted`, and abort."""
        self._check(None)
        self.transactions.abort()
        while self._refuse_next(TransactionAborted("the record was not written, because its transaction was aborted")):
            continue
        self._accounts.discard()

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context as `Producer.transaction` does."""
        return transaction_of(self)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Check that records may be sent; those that are refused are missing in the transaction."""
        self.transactions.check_rows()
        try:
            yield
        except Exception as error:
            self.transactions.mark_abortable(error)
            raise

    def _sent(self, records: list[SentRecord]) -> None:
        if self.transactions.in_flight:
            self.transactions.uncommitted += records
        else:
            self.history += records

    def clear(self) -> None:
        """Forget the records that were sent, and those that are undecided."""
        self.history.clear()
        self._pending.clear()
        self._accounts = FailureTracker()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush and close; after an error only close, which refuses the undecided records."""
        try:
            if error is None:
                self.flush()
                self._accounts.raise_remaining()
        finally:
            self.close(0)

    def _check(self, injected: Exception | None) -> None:
        if self.closed:
            raise ProducerClosed("this producer is closed")
        if injected is not None:
            raise injected

    def _wait(self, tp: TopicPartition, waits: BatchResult | RowRange | None) -> None:
        account = self._accounts.mine()
        account.sent = True
        self._pending.append(PendingRecord(tp, waits, account))
        if self.auto_complete:
            self.complete_next()

    def _refuse_next(self, error: Exception) -> bool:
        if not self._pending:
            return False
        _, waits, _ = self._pending.popleft()
        if isinstance(waits, RowRange):
            if waits.listener is not None:
                waits.listener.failed(error, waits)
        elif waits is not None:
            waits.fail(error)
        return True

    def _take(
        self, batch: pa.RecordBatch, topic: str | None, first_row: int, with_headers: bool
    ) -> list[tuple[TopicPartition, SentRecord]]:
        """Return the rows of a batch with their partitions, checked as the producer does; keep none if one is bad."""
        with self._refusing():
            return self._take_rows(batch, topic, first_row, with_headers)

    def _take_rows(
        self, batch: pa.RecordBatch, topic: str | None, first_row: int, with_headers: bool
    ) -> list[tuple[TopicPartition, SentRecord]]:
        self._check(self.send_error)
        now_ms = time.time_ns() // 1_000_000
        read = read_columns(batch, topic=topic, now_ms=now_ms, first_row=first_row, with_headers=with_headers)
        columns = read.or_raise()
        found = []
        for index, row in enumerate(batch.to_pylist()):
            name = columns.topics[0 if columns.topic_codes is None else int(columns.topic_codes[index])]
            key, value = _bytes(row.get("key")), _bytes(row["value"])
            partition = self._partition(name, key, row.get("partition"))
            headers = _headers(row.get("headers")) if with_headers else ()
            tp = TopicPartition(name, partition)
            found.append((tp, SentRecord(*tp, key, value, headers, columns.records.timestamp_at(index))))
        self._sent([record for _, record in found])
        return found

    def _partition(self, topic: str, key: bytes | None, asked: int | None) -> int:
        count = self._partitions.get(topic, 1)
        if asked is not None:
            if asked >= count:
                raise RecordError(f"partition {asked} does not exist (topic {topic!r}): it has {count}")
            return asked
        return JAVA.partition(key, count) or 0


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(
    entries: Iterable[_HeaderStruct | tuple[str | bytes, str | bytes | None]] | None,
) -> tuple[tuple[str, bytes | None], ...]:
    pairs = [(entry["key"], entry["value"]) if isinstance(entry, dict) else entry for entry in entries or ()]
    return tuple((name if isinstance(name, str) else name.decode(), _bytes(content)) for name, content in pairs)
