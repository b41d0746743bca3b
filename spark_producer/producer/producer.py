"""The class `Producer`, which sends rows and waits for their acknowledgement.

Task threads call the methods that send and `flush`; the I/O thread does the rest (`io_thread`). A batch that fails does not
affect others. When the I/O thread ends, all waits end with its error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from spark_producer import config as options
from spark_producer.accumulator import Callback, DeliveryListener, RecordMetadata, TableMetadata, TableResult
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted, IllegalState
from spark_producer.kernel import ArrangedRows, group_rows
from spark_producer.kernel.arrays import Int64Array
from spark_producer.kernel.column_views import PIECE_BYTES
from spark_producer.metrics import Values
from spark_producer.partitioner import PartitionFunction, TopicPartitions
from spark_producer.producer.checks import check_may_flush, check_timeout, with_connection_reason
from spark_producer.producer.fork_guard import check_process, forbid_after_fork, is_forked
from spark_producer.producer.internals import Parts
from spark_producer.producer.metadata_wait import of_control_topics
from spark_producer.producer.record_size import too_large
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.dictionary_slices import BatchPieces
from spark_producer.record.send_sequences import Sequences, record_batches

if TYPE_CHECKING:  # only transactional producers import them, and those with dead letters
    from spark_producer.producer.bad_rows import BadRowCollector
    from spark_producer.producer.transactions import Transactions
    from spark_producer.sender.transactions.partitions import ConsumerGroup, GroupOffset


@forbid_after_fork("send_batch", "send_table", "send_many", "flush", "metrics", "client_instance_id", "_transactional")
class Producer:
    """Writes Arrow columns, or single records, to Kafka. Threads may share it.

    A batch that cannot be delivered does not affect others. Its futures raise the error. In each thread with rows in it, every
    `send_batch` raises the error too, until the thread's next `flush` raises it once more and acknowledges it. No other thread
    gets the error, except one that has sent nothing since its last flush: that thread flushes for all, raises the error as well,
    and their `send_batch` works again. Errors of rows that were sent by callbacks, or by threads that have ended, are raised by
    the next flush of any thread. The end of a `with` raises the remaining errors.

    A rejected producer id, missing rights on the cluster, or a broker that is too old end the producer: then every call raises
    the error, and a new producer is needed. A forked child needs its own producer: there calls of this one raise `IllegalState`,
    and `close` does nothing.

    `partitioner` is a function over columns that assigns a partition to each row without one. It takes precedence over the option
    `partitioner.class`.

    Raises (constructor):
        ConfigError: the configuration is invalid. No broker is contacted before the first record.
    """

    def __init__(
        self, config: options.ProducerConfig | Mapping[str, object], *, partitioner: PartitionFunction | None = None
    ) -> None:
        if not isinstance(config, options.ProducerConfig):
            config = options.redacted(config)  # otherwise a traceback with local variables would show passwords
            config = options.producer_config(config)
        self._use(Parts(config, partitioner))

    def _use(self, parts: Parts) -> None:
        self.process = parts.process
        self.config = parts.config
        self._parts = parts
        self._meter = parts.meter
        self._accumulator = parts.accumulator
        self._incomplete = parts.accumulator.incomplete
        self._partitioner = parts.partitioner
        self._topics = parts.topics
        self._single_records = parts.records
        self._transactions = parts.transactions

    # --- records -------------------------------------------------------------------------------------------------

    def send_batch(
        self, batch: pa.RecordBatch, *, topic: str | None = None, first_row: int = 0, with_headers: bool = True
    ) -> None:
        """Queue all rows of an Arrow RecordBatch, and block while `buffer.memory` is exhausted. The columns: `record.columns`.

        No row is sent if one is invalid. Messages number the rows from `first_row`. A batch whose decoded dictionaries are large
        is sent in pieces: a custom partitioner gets one piece at a time, and its error fails only the rest.

        Raises:
            SchemaError, RecordError, RecordTooLarge: a column or row cannot be written.
            MetadataTimeout, TopicNotFound, BrokersUnreachable, BufferExhausted: a wait has timed out.
            The error that ended the producer, or the first error of a batch with rows of this thread since its last flush.
        """
        self._send_rows(batch, None, topic, first_row, with_headers)

    def _send_rows(
        self,
        batch: pa.RecordBatch,
        result: TableResult | None,
        topic: str | None,
        first_row: int | Int64Array,
        with_headers: bool,
        transaction: int | None = None,
        collector: BadRowCollector | None = None,
    ) -> int | None:
        """Queue rows, and return the number of their transaction, which must be `transaction` unless that is None."""
        if self._transactions is not None:
            self._incomplete.check_open()
            now = self._transactions.check()
            if transaction is None:
                transaction = now
            self._transactions.check_still(transaction)
        try:
            self._queue_rows(batch, result, topic, first_row, with_headers, transaction, collector)
        except BaseException as error:
            if self._transactions is not None:
                self._transactions.mark_abortable(error)
            if isinstance(error, Exception):  # a call that raises counts as an error in the metrics, as in Java
                self._meter.events.call_refused(self._meter.clock())
            raise
        return transaction

    def _queue_rows(
        self,
        batch: pa.RecordBatch,
        result: TableResult | None,
        topic: str | None,
        first_row: int | Int64Array,
        with_headers: bool,
        transaction: int | None,
        collector: BadRowCollector | None,
    ) -> None:
        self._incomplete.check_open()
        if result is None:
            self._incomplete.failures.check()  # a write of hours should fail before its flush
        now_ms, largest = time.time_ns() // 1_000_000, min(self.config.max_request_size, self.config.buffer_memory)
        pieces = BatchPieces(batch, PIECE_BYTES, largest, topic, now_ms, first_row, with_headers)
        listener: DeliveryListener | None = result
        if collector is not None:
            valid, listener = (
                collector.valid_rows(pieces, self._topics, self._partitioner, self.config),
                collector.refused,
            )
        else:
            if result is None and len(pieces) > 1:  # no row of a batch is sent if one is invalid
                for columns in pieces.or_raise():
                    self._partitioner.reject(columns, self._topics_of(columns)).raise_first()
            valid = pieces.or_raise()
        try:
            for columns in valid:
                self._send_columns(columns, listener)
                if (
                    self._transactions is not None and transaction is not None
                ):  # it may have waited for memory meanwhile
                    self._transactions.check_still(transaction)
        except BufferExhausted as error:
            raise with_connection_reason(error, self._topics.last_error) from None

    def _send_columns(self, columns: CheckedColumns, result: DeliveryListener | None) -> None:
        assignment = self._partitioner.assign(columns, self._topics_of(columns))
        rows, bounds = group_rows(assignment.slots, assignment.slot_count)
        arranged = ArrangedRows(columns.records, rows)
        used = np.flatnonzero(np.diff(bounds))  # most partitions of a large topic may get no row
        codes, partitions = assignment.topic_partitions(used)
        topic_partitions = zip(map(columns.topics.__getitem__, codes), partitions, strict=True)
        append, partition_count = self._accumulator.append, len(codes)
        for tp, first, stop in zip(topic_partitions, bounds[used].tolist(), bounds[used + 1].tolist(), strict=True):
            append(tp, arranged, first, stop, partition_count, result)
        self._end_appends(columns)

    def send_table(self, table: pa.Table, *, topic: str | None = None) -> Future[TableMetadata]:
        """Queue all rows of an Arrow table, chunk by chunk. See `send_batch`, also for the errors raised.

        The future has the offset ranges of all partitions once all rows are acknowledged, or the first error. If the broker
        rejects single rows, the error has their numbers in the table (`RecordsRefused.rows`).
        """
        rows = max(1, table.num_rows * PIECE_BYTES // max(1, table.nbytes))
        return self._send_batches(table.to_batches(max_chunksize=rows), topic)

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
        """Queue a record for each entry of `values`, at a fraction of the cost of `send`. The future is that of `send_table`.

        The other sequences have an entry for each record. Records are converted and queued in pieces of at most 16,384: an entry
        of a wrong type fails its piece and the rest, and a transaction can then only be aborted.

        Raises:
            RecordError: a sequence has another length than `values`, or an entry of a wrong type. As `send_batch`.
        """
        given = Sequences(values, keys, headers, timestamps_ms, partitions)
        return self._send_batches(self._converted(given), topic)

    def _converted(self, given: Sequences) -> Iterator[pa.RecordBatch]:
        """Yield the pieces of `given`; an entry of a wrong type makes the transaction abortable only."""
        try:
            yield from record_batches(given, time.time_ns() // 1_000_000)
        except Exception as error:
            if self._transactions is not None:
                self._transactions.mark_abortable(error)
            raise

    def _send_batches(self, batches: Iterable[pa.RecordBatch], topic: str | None) -> Future[TableMetadata]:
        result, transaction, row = TableResult(), None, 0
        try:
            for batch in batches:
                transaction = self._send_rows(batch, result, topic, row, True, transaction)
                row += batch.num_rows
        except Exception as error:
            result.no_more(error)
            raise
        result.no_more()
        return result.future

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
        """Queue one record. The future has its partition and offset once it is acknowledged, and cannot be cancelled.

        It is for single records; columns go through `send_batch`, at a tenth of the cost or less. `on_delivery(metadata, error)`
        is called before the future is done, in the order of the records of a partition; errors that it raises are logged. It and
        the future's callbacks run on the I/O thread: they must be quick, and cannot flush. A record that they send is rejected
        if it would have to wait. `max.block.ms` bounds the whole call.

        Raises:
            The same errors as `send_batch`.
        """
        check_process(self)
        try:
            if self._incomplete.closing or self._incomplete.error is not None:
                self._incomplete.check_open()
            now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
            return self._single_records.send(topic, value, key, headers, now_ms, partition, on_delivery)
        except Exception:
            self._meter.events.call_refused(self._meter.clock())
            raise

    def flush(self) -> None:
        """Send all queued rows and wait until they are acknowledged or have failed. `delivery.timeout.ms` bounds the wait.

        Raises:
            The first unreported error of this thread's rows; see `Producer`.
            PyProducerError: a callback has called it, and would wait for itself.
        """
        began = self._meter.clock()
        try:
            check_may_flush(self._parts.io_thread.is_current)
            if self._transactions is not None:
                self._transactions.check_may_flush()
            self._accumulator.flush()
            self._partitioner.restart()
        finally:
            now = self._meter.clock()
            self._meter.events.flushed(now - began, now)

    # --- transactions (docs/transactions.md) ------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id: earlier producers with it are fenced, and their open transaction is aborted.

        Call it once, before the first transaction. It and the other calls wait `timeout` seconds, by default `max.block.ms`.

        Raises:
            TransactionTimeout: no response in time. Call it again, before any other call, to get the result. The same applies to
                `begin_transaction`, `commit_transaction` and `abort_transaction`.
            BrokerError: the brokers reject it, for example because of a missing right. IllegalState: the call is not allowed now.
            The error that ended the producer.
        """
        self._transactional().init(timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction. Until it ends, all rows that any thread sends are in it.

        Raises:
            IllegalState: the producer is not initialized, or in a transaction. TransactionTimeout: as `init_transactions`.
        """
        self._transactional().begin()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[tuple[str, int], int | GroupOffset],
        group: str | ConsumerGroup,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a consumer group with the transaction: the offsets of the next records that the group reads.

        `offsets` has them by topic and partition. With a `ConsumerGroup` that has a member id, brokers reject the offsets of a
        member that the group has replaced.

        Raises:
            RecordError: an argument is invalid. TransactionAbortable: the group rejects the offsets; abort. As
            `init_transactions`.
        """
        self._transactional().send_offsets(offsets, group, timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send all queued rows, and commit them: readers with `isolation.level=read_committed` see all of them or none.

        Raises:
            TransactionAbortable: rows are missing. Abort the transaction, and write its rows again. As `init_transactions`.
        """
        self._transactional().commit(timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Drop the queued rows and abort the transaction. Raises the errors of `init_transactions`."""
        self._transactional().abort(timeout)

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context manager for one transaction, which is committed at the end, and aborted after an error."""
        return self._transactional().transaction()

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise IllegalState("this producer has no transactions. Set transactional.id to a name that stays the same")
        return self._transactions

    def metrics(self) -> Values:
        """Return all metrics by (group, name, tags), with Java's names; see docs/metrics.md."""
        return self._meter.values()

    def client_instance_id(self, timeout: float) -> str:
        """Return the id under which the brokers know the metrics of this producer (KIP-714), as Kafka's tools show it.

        It waits up to `timeout` seconds for it, and connects if there is no connection.

        Raises:
            IllegalState: `enable.metrics.push` is false. UnsupportedVersion: the brokers take no metrics.
            KafkaTimeout: no response in time. The error that ended the producer.
        """
        self._incomplete.check_open()
        check_timeout(timeout, "client_instance_id")
        return self._parts.client_instance_id(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush for up to `timeout` seconds (default `delivery.timeout.ms`), then end the I/O thread. It may be called twice.

        Records that are not acknowledged by then fail with `ProducerClosed`. `close` does not raise for them; `flush` raises
        failures, and others are logged. It does not wait if a callback calls it.

        Raises:
            PyProducerError: `timeout` is negative or NaN.
        """
        check_timeout(timeout)
        if is_forked(self):
            return
        if self._transactions is not None:
            self._transactions.warn_if_open()
        self._parts.io_thread.close(self.config.delivery_timeout_ms / 1000 if timeout is None else timeout)
        self._incomplete.failures.log_unreported()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush and close; after an error only close."""
        try:
            if error is None and not is_forked(self):
                self.flush()
                self._incomplete.failures.raise_remaining()
        finally:
            # An open transaction is aborted, which takes a moment.
            self.close(0.0 if self._transactions is None else self.config.max_block_ms / 1000)

    def _end_appends(self, columns: CheckedColumns) -> None:
        """Close the batches that the sticky partitioner has filled, so that they are sent without lingering."""
        for topic, partition, size in self._partitioner.take_full():
            self._accumulator.close_full(TopicPartition(topic, partition), size)
        self._meter.events.rows_accepted(columns.records.largest, self._meter.clock())

    def _topics_of(self, columns: CheckedColumns) -> list[TopicPartitions]:
        """Return the topics of the rows, after checking the sizes of the rows."""
        too_large(columns, self.config).raise_first()
        of_control_topics(columns).raise_first()
        return self._topics.find({name: columns.highest_partition(code) for code, name in enumerate(columns.topics)})


def parts_of(producer: Producer) -> Parts:
    """Return the parts of a producer, for the data source and for measurements. Users must not rely on them."""
    return producer._parts


def send_batch_collecting_bad_rows(
    producer: Producer,
    batch: pa.RecordBatch,
    collector: BadRowCollector,
    *,
    topic: str | None,
    first_row: int | Int64Array = 0,
    with_headers: bool = True,
) -> None:
    """Queue the valid rows of a batch as `Producer.send_batch`, and collect the bad ones of the wanted classes.

    `first_row` may be an array with the number of each row, for a batch from which rows were removed.

    Raises: as `Producer.send_batch`, for classes of bad rows that the collector does not want.
    """
    producer._send_rows(batch, None, topic, first_row, with_headers, collector=collector)


def producer_of(parts: Parts) -> Producer:
    """Return the producer of parts that were created with another network, clock or memory."""
    producer = Producer.__new__(Producer)
    producer._use(parts)
    return producer
