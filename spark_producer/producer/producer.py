"""The producer: wires accumulator, sender and network together, and runs the one I/O thread.

Owns: the I/O thread, the waits for metadata, the clock.
Must not know: Spark; how batches are encoded, chosen or sent.

Task threads call `send_batch`, `send_table`, `send`, `flush`; the I/O thread steps the sender and polls the network.
A batch that fails fails alone; whatever ends the I/O thread ends every wait with the reason.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self, cast

import numpy as np
import pyarrow as pa

from spark_producer import config as options
from spark_producer.accumulator import BufferPool, Callback, RecordMetadata, TableMetadata, TableResult
from spark_producer.backoff import Backoff
from spark_producer.cluster import TopicPartition
from spark_producer.errors import BufferExhausted, ProducerClosed, PyProducerError
from spark_producer.kernel import ArrangedRows, group_rows
from spark_producer.kernel.views import PIECE_BYTES
from spark_producer.metrics import ProducerMetrics, Values, WriteReport
from spark_producer.network import Client, ConnectionSettings
from spark_producer.partitioner import PartitionFunction, TopicPartitions, find_choice, make_partitioner
from spark_producer.producer.checks import check_may_flush, check_sizes, check_timeout, exhausted
from spark_producer.producer.forks import check_process, is_forked, refuses_forks
from spark_producer.producer.metering import Meter, counts_refusals, timed
from spark_producer.producer.single_records import SingleRecords
from spark_producer.producer.topic_lookup import Topics
from spark_producer.producer.wiring import make_accumulator, make_metadata, sender_settings
from spark_producer.protocol import PRODUCE
from spark_producer.record.columns import Columns
from spark_producer.record.pieces import BatchPieces
from spark_producer.sender import KnownTopics, ProducerLoad, Sender, Tag

IDLE_WAIT = 1.0
"""Longest sleep of an idle I/O thread, in seconds: nothing depends on it, it only bounds what a lost wake-up could cost."""


@refuses_forks("send_batch", "send_table", "flush", "take_report", "metrics", "partition_count")
class Producer:
    """Writes Arrow columns, or single records, to Kafka. Safe to share between threads.

    A batch that cannot be delivered fails alone: its futures raise the reason, and so does, in each thread whose rows were in
    it, every `send_batch`, which has no future, up to the thread's next `flush`, which raises it once more; then it goes on.
    No other thread takes it from them; but one that has sent nothing since its last flush flushes for all: it is told as well,
    and their `send_batch` goes on. What callbacks and threads that have ended were not told of, whoever flushes next is told;
    what is left, the end of a `with`. A refused producer id, missing rights on the cluster, or a broker that is too old end
    the producer: then every call raises the reason, and a new one is needed. A forked child needs one of its own: its calls
    are an `IllegalState`, and `close` does nothing.

    `partitioner`: a function over columns that places every row without an explicit partition; it goes before the option
    `partitioner.class`.

    Raises (constructor):
        ConfigError: bad configuration. No broker is contacted before the first record.
    """

    def __init__(
        self, config: options.ProducerConfig | Mapping[str, object], *, partitioner: PartitionFunction | None = None
    ) -> None:
        self.process = os.getpid()
        self.config = config if isinstance(config, options.ProducerConfig) else options.producer_config(config)
        chosen = partitioner or find_choice(self.config.partitioner_class)
        self.meter = Meter(self.config, threading.Lock(), time.monotonic, time.time)
        self._client = Client(ConnectionSettings.from_config(self.config), metrics=self.meter.events)
        backoff = Backoff(self.config.retry_backoff_ms / 1000, self.config.retry_backoff_max_ms / 1000)
        self._metadata = make_metadata(self.config, backoff.delay)
        self.pool = BufferPool(
            self.config.buffer_memory, self.config.batch_size, time.monotonic, self.meter.memory_waited
        )
        self.meter.look_at(self._client, self.pool, self._metadata)
        self._accumulator = make_accumulator(self.config, self.pool, time.monotonic, self._client.wakeup)
        settings = sender_settings(self.config)
        self._sender = Sender(self._accumulator, self._metadata, settings, backoff.delay, self.meter.events)
        self._partitioner = make_partitioner(self.config, ProducerLoad(self._accumulator, self._sender), chosen)
        rack = self.config.client_rack if self.config.partitioner_rack_aware else ""
        self._topics = Topics(
            self.config,
            self._metadata,
            KnownTopics(self._metadata, rack),
            clock=time.monotonic,
            backoff=backoff.delay,
            wakeup=self._client.wakeup,
            check_open=self._check_open,
            waited=self.meter.events.metadata_waited,
        )
        self._singles = SingleRecords(
            self.config,
            self._accumulator,
            self._metadata,
            self._topics,
            self._partitioner,
            self.meter.events,
            time.monotonic,
        )
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="pyproducer-io", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the process has as many threads as it may
            self._client.close()
            raise

    # --- records in -------------------------------------------------------------------------------------------------

    def send_batch(
        self, batch: pa.RecordBatch, *, topic: str | None = None, first_row: int = 0, with_headers: bool = True
    ) -> None:
        """Queue all rows of an Arrow RecordBatch; columns as in `read_columns`. Blocks while `buffer.memory` is used up.

        Nothing of it is sent if a row is bad. `first_row` numbers the rows in messages. A batch whose dictionaries grow large as
        they are decoded goes in pieces: a partitioner of your own sees one at a time, and an error of it ends only those left.

        Raises:
            SchemaError, RecordError, RecordTooLarge: a column or row that cannot be written.
            MetadataTimeout, TopicNotFound, BrokersUnreachable, BufferExhausted: a wait that reached its end.
            Whatever ended the producer earlier; the first error of a batch with rows of this thread since its last flush.
        """
        self._send_rows(batch, None, topic, first_row, with_headers)

    @counts_refusals
    def _send_rows(
        self, batch: pa.RecordBatch, result: TableResult | None, topic: str | None, first_row: int, with_headers: bool
    ) -> None:
        self._check_open()
        if result is None:
            self._accumulator.backlog.accounts.check()  # a write of hours need not go on to its flush
        now_ms, largest = time.time_ns() // 1_000_000, min(self.config.max_request_size, self.config.buffer_memory)
        pieces = BatchPieces(batch, PIECE_BYTES, largest, topic, now_ms, first_row, with_headers)
        if result is None and len(pieces) > 1:  # nothing of a batch is sent if a row is bad
            for columns in pieces:
                self._partitioner.check(columns, self._topics_of(columns))
        try:
            for columns in pieces:
                self._send_columns(columns, result)
        except BufferExhausted as error:
            raise exhausted(error, self._topics.last_error) from None

    def _send_columns(self, columns: Columns, result: TableResult | None) -> None:
        assignment = self._partitioner.assign(columns, self._topics_of(columns))
        rows, bounds = group_rows(assignment.slots, assignment.slot_count)
        if result is not None:
            result.first_row = columns.first_row
        arranged = ArrangedRows(columns.records, rows)
        used = np.flatnonzero(np.diff(bounds))  # most partitions of a large topic may get nothing
        codes, partitions = assignment.places(used)
        places = zip(map(columns.topics.__getitem__, codes), partitions, strict=True)
        append, among = self._accumulator.append, len(codes)
        for place, first, stop in zip(places, bounds[used].tolist(), bounds[used + 1].tolist(), strict=True):
            append(place, arranged, first, stop, among, result)
        self._end_appends(columns)

    def send_table(self, table: pa.Table, *, topic: str | None = None) -> Future[TableMetadata]:
        """Queue all rows of an Arrow table, chunk by chunk; see `send_batch`, also for what it raises.

        The future gives the offset ranges of every partition once all rows are acknowledged, or the first error; of rows
        that the broker names (`RecordsRefused.rows`) it gives the number in the table.
        """
        result = TableResult()
        rows, row = max(1, table.num_rows * PIECE_BYTES // max(1, table.nbytes)), 0
        try:
            for batch in table.to_batches(max_chunksize=rows):
                self._send_rows(batch, result, topic, row, True)
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
        """Queue one record; the future gives its partition and offset once it is acknowledged. It cannot be cancelled.

        For records that come one by one; whole columns go through `send_batch`, at a tenth of the cost or less.
        `on_delivery(metadata, error)` is called before the future is done, in the order of the records of a partition; what
        it raises is logged. It and the future's callbacks run on the I/O thread: they must be quick, and cannot flush; a
        send of theirs that would have to wait is refused.
        `max.block.ms` bounds the whole call.

        Raises: as `send_batch`.
        """
        check_process(self)
        try:
            if self._closing or self._accumulator.backlog.error is not None:
                self._check_open()
            now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
            return self._singles.send(topic, value, key, headers, now_ms, partition, on_delivery)
        except Exception:
            self.meter.events.call_refused(time.monotonic())
            raise

    @timed(ProducerMetrics.flushed)
    def flush(self) -> None:
        """Send everything queued and wait until it is acknowledged, or has failed; bounded by `delivery.timeout.ms`.

        Raises:
            The first error that this thread is to be told of, see `Producer`. PyProducerError: a callback would wait for itself.
        """
        check_may_flush(threading.current_thread() is self._thread)
        self._accumulator.flush()
        self._partitioner.restart()

    def take_report(self) -> WriteReport:
        """What was acknowledged since the last call, by partition; call it after `flush`."""
        return self._sender.take_report()

    def metrics(self) -> Values:
        """Every metric by (group, name, tags), under Java's names; see docs/metrics.md."""
        return self.meter.values()

    def partition_count(self, topic: str | None) -> int:
        """Partitions of a topic, or of all topics, as far as known; 1 before the first record."""
        if topic is None:
            return max(1, sum(len(info.leaders) for info in self._metadata.cluster.topics.values()))
        info = self._metadata.cluster.topics.get(topic)
        return max(1, len(info.leaders)) if info else 1

    @property
    def failed(self) -> bool:
        """Whether this producer can do no more here: it has ended or was closed, or another process has made it."""
        return (
            is_forked(self)
            or self._closing
            or self._accumulator.backlog.error is not None
            or not self._thread.is_alive()
        )

    def close(self, timeout: float | None = None) -> None:
        """Flush for up to `timeout` seconds (default `delivery.timeout.ms`), then end the I/O thread. May be called twice.

        Records that are not acknowledged by then fail with `ProducerClosed`; this call itself raises nothing: `flush`, or
        else the log, tells what became of them; only a timeout below 0 is a `PyProducerError`. A callback does not wait.
        """
        check_timeout(timeout)
        if is_forked(self):
            return
        self._closing = True
        self._accumulator.backlog.drain_all()
        self._client.wakeup()
        on_io_thread = threading.current_thread() is self._thread
        if not on_io_thread:
            patience = self.config.delivery_timeout_ms / 1000 if timeout is None else timeout
            self._thread.join(min(patience, threading.TIMEOUT_MAX))
        left = "" if self._accumulator.backlog.idle else " before everything was acknowledged"
        self._accumulator.close(ProducerClosed(f"the producer was closed{left}"))
        self._client.wakeup()
        if not on_io_thread:
            self._thread.join(IDLE_WAIT)
        self._accumulator.backlog.accounts.log_unheard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush and close; on the way out of an error only close."""
        try:
            if error is None and not is_forked(self):
                self.flush()
                self._accumulator.backlog.accounts.tell_rest()
        finally:
            self.close(0.0)

    # --- checks and waits of the task threads -----------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closing:
            raise ProducerClosed("this producer is closed")
        self._accumulator.backlog.check()

    def _end_appends(self, columns: Columns) -> None:
        """Batches that the sticky rules have filled and left are sent at once, not when they have lingered."""
        for topic, partition, size in self._partitioner.take_full():
            self._accumulator.close_full(TopicPartition(topic, partition), size)
        self.meter.events.rows_accepted(columns.records.largest, time.monotonic())

    def _topics_of(self, columns: Columns) -> list[TopicPartitions]:
        """The topics of rows that may be sent, as far as can be said without placing them."""
        check_sizes(columns, self.config)
        return self._topics.find({name: columns.highest_partition(code) for code, name in enumerate(columns.topics)})

    # --- I/O thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failure: Exception = ProducerClosed("the producer was closed")
        self._topics.io_thread = threading.get_ident()
        self._accumulator.adopt_io_thread()
        try:
            while not self._finished():
                self._turn()
        except PyProducerError as error:
            failure = error
        except BaseException as error:  # of another package, and perhaps not to be pickled
            failure = PyProducerError(f"the I/O thread of the producer ended: {error!r}; this is a bug of pyproducer")
            failure.__cause__ = error
        finally:
            self._client.close()
            self._accumulator.outcomes.abort(failure)
            self._accumulator.outcomes.network_closed()
            self._topics.answered()

    def _turn(self) -> None:
        """One round: send what can be sent, wait for the network, take in the answers."""
        now = time.monotonic()
        cluster, answers = self._metadata.cluster, self._metadata.answers
        client, sender, accumulator = self._client, self._sender, self._accumulator
        wake_at = self._send_ready(now)
        wait = 0.0
        if accumulator.backlog.sleeps(wake_at):
            wait = IDLE_WAIT if wake_at is None else min(max(wake_at - now, 0.0), IDLE_WAIT)
        completions = client.poll(wait)
        accumulator.backlog.wakes()
        if completions:
            now = time.monotonic()
            for done in completions:
                if done.api is PRODUCE and done.body is not None:
                    self.meter.events.produce_answered(done.node, done.latency, now)
                sender.on_completion(done.api, cast(Tag, done.tag), done.body, done.error, now)
                self._topics.last_error = done.error
        for node in client.take_disconnected():
            self._topics.last_error = client.last_error(node) or self._topics.last_error
            sender.on_disconnect()
        if self._metadata.cluster is not cluster:
            client.set_nodes(self._metadata.cluster.addresses)
        if self._metadata.answers != answers:
            self._topics.answered()

    def _send_ready(self, now: float) -> float | None:
        """Send what can be sent, and say when to look again. A connection takes several requests before the first answer."""
        client = self._client
        for _ in range(self.config.max_in_flight_requests_per_connection):
            step = self._sender.step(now, client)
            if not step.requests:
                return step.wake_at
            for node, api, body, tag, expect_response in step.requests:
                client.send(node, api, body, tag=tag, expect_response=expect_response)
        return now

    def _finished(self) -> bool:
        return self._accumulator.backlog.error is not None or (self._closing and self._accumulator.backlog.idle)
