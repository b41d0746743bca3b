"""A producer for tests, without broker and thread: the test completes or fails each record."""

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
from spark_producer.record.send_sequences import Sequences, record_batches
from spark_producer.sender.transactions.partitions import ConsumerGroup, GroupOffset


class SentRecord(NamedTuple):
    """A record that a producer would have sent."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class PendingRecord(NamedTuple):
    """A record that the test has neither completed nor failed.

    `result` is its future or table range (None for a row of `send_batch`), and `failures` are those of the sending thread.
    """

    topic_partition: TopicPartition
    result: BatchResult | RowRange | None
    failures: ThreadFailures


class _HeaderStruct(TypedDict):
    """A header in Arrow's form for a list of structs; for a map it is a pair."""

    key: str | bytes
    value: str | bytes | None


class MockProducer:
    """Replaces `Producer`, with the same checks of rows, futures and callbacks, in the caller's thread.

    With `auto_complete` every record is acknowledged at once. Without it `complete_next` and `error_next` complete or fail the
    oldest record, and `flush` acknowledges the rest. A failed record is reported to the same threads as with `Producer`.
    `partitions` gives the number of partitions by topic (1 by default). Keys are hashed as Kafka does; rows without a key go to
    partition 0. Calls of `send…`, `flush` and `close` raise `send_error`, `flush_error` and `close_error` until these are None
    again. (Java's MockProducer.)

    Without `init_transactions` it is a producer without transactions. With it, records count as sent (`history`) once their
    transaction is committed; `transactions` has the uncommitted records, and the errors that its calls raise.
    """

    def __init__(self, *, auto_complete: bool = True, partitions: Mapping[str, int] | None = None) -> None:
        self.auto_complete = auto_complete
        self.history: list[SentRecord] = []
        """all records that were sent, including failed ones; of transactions, those that were committed"""
        self.transactions: MockTransactions[SentRecord] = MockTransactions()
        self.closed = False
        self.send_error: Exception | None = None
        self.flush_error: Exception | None = None
        self.close_error: Exception | None = None
        self.mock_metrics: Values = {}
        """the result of `metrics`"""
        self._partitions = dict(partitions or {})
        self._pending: deque[PendingRecord] = deque()
        self._end_offsets: dict[TopicPartition, int] = {}
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
        with self._checking_rows():
            record, requested = read_record(topic, value, key, headers, partition, now_ms)
            self._check(self.send_error)
            tp = TopicPartition(
                topic, self._partition(topic, record.key, None if requested == NO_PARTITION else requested)
            )
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
        for tp, _ in self._send_rows(batch, topic, first_row, with_headers):
            self._wait(tp, None)

    def send_table(self, table: pa.Table, *, topic: str | None = None) -> Future[TableMetadata]:
        """Send a table as `Producer.send_table` does."""
        return self._send_batches(table.to_batches(), topic)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | str | None],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        partitions: Sequence[int | None] | None = None,
    ) -> Future[TableMetadata]:
        """Send records as `Producer.send_many` does."""
        given = Sequences(values, keys, headers, timestamps_ms, partitions)
        batches = record_batches(given, time.time_ns() // 1_000_000)
        with self._checking_rows():
            return self._send_batches(batches, topic)

    def _send_batches(self, batches: Iterable[pa.RecordBatch], topic: str | None) -> Future[TableMetadata]:
        result, first_row = TableResult(), 0
        for batch in batches:
            for number, (tp, _) in enumerate(self._send_rows(batch, topic, first_row, True), first_row):
                result.expect()
                self._wait(tp, RowRange(result, 0, RowNumbers(number, 1)))
            first_row += batch.num_rows
        result.no_more()
        return result.future

    def complete_next(self) -> bool:
        """Acknowledge the oldest pending record; return False if there is none."""
        if not self._pending:
            return False
        tp, result, _ = self._pending.popleft()
        offset = self._end_offsets.get(tp, 0)
        self._end_offsets[tp] = offset + 1
        if isinstance(result, RowRange):
            if result.listener is not None:
                result.listener.written(tp, offset, 1)
        elif result is not None:
            result.complete(offset, -1)
        return True

    def error_next(self, error: Exception) -> bool:
        """Fail the oldest pending record; return False if there is none.

        The next `flush` of the record's thread raises the first such error.
        """
        if not self._pending:
            return False
        _, result, failures = self._pending[0]
        self.transactions.mark_abortable(error)
        self._accounts.record(error, (failures,), reported=result is not None)
        return self._fail_next(error)

    def flush(self) -> None:
        """Acknowledge all pending records.

        Raises:
            `flush_error`, if it is set, or the same errors as `Producer.flush`.
        """
        self._check(self.flush_error)
        while self.complete_next():
            continue
        self._accounts.raise_unreported()

    @property
    def flushed(self) -> bool:
        """Whether no record is pending."""
        return not self._pending

    def client_instance_id(self, timeout: float) -> str:
        """Return an id that no broker has assigned."""
        check_timeout(timeout, "client_instance_id")
        return "mock"

    def metrics(self) -> Values:
        """Return `mock_metrics`, instead of the result of `Producer.metrics`."""
        return self.mock_metrics

    def close(self, timeout: float | None = None) -> None:
        """Acknowledge all pending records, or fail them if `timeout` is 0. A second call does nothing."""
        check_timeout(timeout)
        if self.close_error is not None:
            raise self.close_error
        self.closed = True
        if self.transactions.in_flight:
            timeout = 0
            self.transactions = MockTransactions()
        while self._fail_next(ProducerClosed("the producer was closed")) if timeout == 0 else self.complete_next():
            continue
        self._accounts.log_unreported()

    # --- transactions -----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ARG002 - there is no wait
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
        """Acknowledge the pending records, and commit."""
        self._check(None)
        self.transactions.check_commit()
        self.flush()
        self.history += self.transactions.committed()

    def abort_transaction(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Fail the pending records with `TransactionAborted`, and abort."""
        self._check(None)
        self.transactions.abort()
        while self._fail_next(TransactionAborted("the record was not written, because its transaction was aborted")):
            continue
        self._accounts.discard()

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context manager as `Producer.transaction` does."""
        return transaction_of(self)

    @contextmanager
    def _checking_rows(self) -> Iterator[None]:
        """Check that records may be sent; make the transaction abortable if one is rejected."""
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
        """Forget the sent and the pending records."""
        self.history.clear()
        self._pending.clear()
        self._accounts = FailureTracker()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush and close; after an error only close, which fails the pending records."""
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

    def _wait(self, tp: TopicPartition, result: BatchResult | RowRange | None) -> None:
        failures = self._accounts.mine()
        failures.sent = True
        self._pending.append(PendingRecord(tp, result, failures))
        if self.auto_complete:
            self.complete_next()

    def _fail_next(self, error: Exception) -> bool:
        if not self._pending:
            return False
        _, result, _ = self._pending.popleft()
        if isinstance(result, RowRange):
            if result.listener is not None:
                result.listener.failed(error, result)
        elif result is not None:
            result.fail(error)
        return True

    def _send_rows(
        self, batch: pa.RecordBatch, topic: str | None, first_row: int, with_headers: bool
    ) -> list[tuple[TopicPartition, SentRecord]]:
        """Return the rows of a batch with their partitions, after the producer's checks; send none if one is bad."""
        with self._checking_rows():
            return self._checked_rows(batch, topic, first_row, with_headers)

    def _checked_rows(
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

    def _partition(self, topic: str, key: bytes | None, requested: int | None) -> int:
        count = self._partitions.get(topic, 1)
        if requested is not None:
            if requested >= count:
                raise RecordError(f"partition {requested} does not exist (topic {topic!r}): it has {count}")
            return requested
        return JAVA.partition(key, count) or 0


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(
    entries: Iterable[_HeaderStruct | tuple[str | bytes, str | bytes | None]] | None,
) -> tuple[tuple[str, bytes | None], ...]:
    pairs = [(entry["key"], entry["value"]) if isinstance(entry, dict) else entry for entry in entries or ()]
    return tuple((name if isinstance(name, str) else name.decode(), _bytes(content)) for name, content in pairs)
