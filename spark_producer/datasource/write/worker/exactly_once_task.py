"""The exactly-once write of one task: a few rows are returned to the driver, more rows are written in the task's transaction.

Rows are appended and encoded as in any write, but the producer holds them back. If all of them are within the limit, the driver
gets them (path A). Otherwise the transaction begins, and stays open with all rows acknowledged when the task reports (path B).
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from spark_producer.common.cluster import Span, TransactionVersion
from spark_producer.common.escape import escaping_logger
from spark_producer.common.failpoints import failpoint
from spark_producer.config import ProducerConfig
from spark_producer.datasource.engine import is_sail
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_assignment import (
    BatchAssignment,
    SparkTaskInfo,
    check_admission,
    task_info,
)
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.row_contents import HashedBatches
from spark_producer.datasource.write.worker.transaction_writer import TransactionWriter, inline_limit
from spark_producer.datasource.write.worker.transactional_ids import SinkKey, TransactionalId, TransactionalIdPool
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.exactly_once.protocol.task_messages import (
    ForeachBatchOrigin,
    InlineRows,
    PreparedTask,
    Skipped,
    WriteHandle,
)
from spark_producer.metrics import WriteReport
from spark_producer.producer import parts_of

_ids = TransactionalIdPool()
"""The transactional ids of this Python worker, which runs one task at a time."""

logger = escaping_logger("pyproducer")


def write_exactly_once(
    settings: TaskSettings,
    config: ProducerConfig,
    handle: WriteHandle,
    batches: Iterator[pa.RecordBatch],
    producers: ProducerCache,
    *,
    task: SparkTaskInfo | None = None,
    ids: TransactionalIdPool | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TaskReport:
    """Write all rows of a task so that the driver can commit or abort them; none if the control record says that they are done.

    In a micro-batch all rows are read even then.

    Raises:
        ConfigError, ExactlyOnceError: as `check_admission`; no transactional id is free; or the transaction is open for too long.
        The errors of `Producer.send_batch` and `prepare`. The transaction is then aborted, and its id not used again.
    """
    task = task or task_info(settings.streaming)
    if ids is None:
        ids = TransactionalIdPool() if is_sail() else _ids
    assignment = check_admission(handle, settings.sink, task)
    compares_content = task.micro_batch is not None and settings.sink.exactly_once_compare == "content"
    hashed = HashedBatches(batches, hashes=compares_content)
    if assignment.done:
        rows = None if task.micro_batch is None else _count_rows(hashed)
        return TaskReport(
            WriteReport({}),
            outcome=Skipped(handle, assignment.query, assignment.batch, rows, task.origin, hashed.content),
        )
    own_id = ids.take(SinkKey(handle.sink, config.bootstrap_servers), handle.fencing)
    config = dataclasses.replace(config, transactional_id=own_id.name)
    producer = producers.get(config)
    parts = parts_of(producer)
    parts.meter.start_interval()
    own_id.fencing = handle.fencing
    limit = inline_limit(settings.sink, task.partition)
    writer = TransactionWriter(producer, settings, limit, task.attempt, clock)
    try:
        writer.fill(iter(hashed))
        report = _report(writer, own_id, handle, assignment, task.origin, hashed)
        failpoint("task.prepared")
        _warn_about_many_ids(own_id, task)
    except BaseException:  # Spark kills a task with an exception too
        ids.discard(own_id)
        writer.abort()
        producers.drop(config)
        raise
    finally:
        writer.close()
    return report


def _count_rows(batches: Iterable[pa.RecordBatch]) -> int:
    """Read the rows of a micro-batch that is done, drop them, and return their number, which the commit compares.

    Spark's stateful operators write their state, and report the watermark, only when their rows are read to the end (Spark's
    StateStoreWriter). With `stateStore.checkpointFormatVersion` 2 a query whose tasks leave rows unread cannot continue.
    """
    return sum(batch.num_rows for batch in batches)


def _report(
    writer: TransactionWriter,
    own_id: TransactionalId,
    handle: WriteHandle,
    assignment: BatchAssignment,
    origin: ForeachBatchOrigin,
    hashed: HashedBatches,
) -> TaskReport:
    """Return the task's report: its rows for the driver (path A), or its open transaction with all rows acknowledged (path B)."""
    query, batch = assignment.query, assignment.batch
    inline = writer.take_inline()
    if inline is not None:
        own_id.fencing = None  # no transaction has begun
        report = writer.report_of(WriteReport({}))  # the driver adds the rows that it sends
        return TaskReport(report, outcome=InlineRows(handle, query, batch, inline, writer.rows, origin, hashed.content))
    failpoint("task.sent")
    prepared = writer.prepare()
    spans = tuple(Span(*span) for span in prepared.spans)
    transaction = TaskTransaction(
        prepared.transactional_id,
        prepared.producer_id,
        prepared.epoch,
        TransactionVersion(prepared.transaction_version),
        spans,
    )
    parts = parts_of(writer.producer)
    outcome = PreparedTask(handle, query, batch, transaction, prepared.started_ms, writer.rows, origin, hashed.content)
    return TaskReport(writer.report_of(parts.take_report()), metrics=parts.meter.interval(), outcome=outcome)


def _warn_about_many_ids(own_id: TransactionalId, task: SparkTaskInfo) -> None:
    """Warn once in a write if each task has its own Python worker, and so uses up a transactional id."""
    alone = TaskContext.get() is not None and not os.environ.get("SPARK_REUSE_WORKER")
    if alone and own_id.fencing is not None and task.partition == 0 and task.attempt == 0:
        logger.warning(
            "spark.python.worker.reuse is false: each task with more than exactlyOnceMaxInlineBytes takes a new transactional "
            "id, which the brokers remember for 7 days (transactional.id.expiration.ms). Leave workers alive"
        )
