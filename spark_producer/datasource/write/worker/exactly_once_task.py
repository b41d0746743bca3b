"""The exactly-once write of one task: few rows travel in its message to the driver, many go out in a transaction of its own.

Rows are queued and encoded as always, but the producer holds them back. If all of them are within the limit, the driver gets them
(path A). Else the transaction is begun, and stays open with all rows acknowledged when the task reports (path B).
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from spark_producer.common.cluster import Span, Style
from spark_producer.common.escape import escaping_logger
from spark_producer.common.failpoints import failpoint
from spark_producer.config import ProducerConfig
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_assignment import BatchAssignment, SparkTaskInfo, check_admission
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
    TaskOutcome,
    WriteHandle,
)
from spark_producer.metrics import WriteReport
from spark_producer.producer import parts_of

_slots = TransactionalIdPool()
"""The transactional ids of this Python worker, which runs one task at a time."""

logger = escaping_logger("pyproducer")

_RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def write_exactly_once(
    settings: TaskSettings,
    config: ProducerConfig,
    handle: WriteHandle,
    batches: Iterator[pa.RecordBatch],
    producers: ProducerCache,
    *,
    where: SparkTaskInfo | None = None,
    slots: TransactionalIdPool = _slots,
    clock: Callable[[], float] = time.monotonic,
) -> TaskReport:
    """Write all rows of a task so that they can be committed or aborted, or none if the control record says that they are there.

    In a micro-batch all rows are read in both cases.

    Raises:
        ConfigError, ExactlyOnceError: as `check_admission`; there is no free slot; or the transaction is open for too long.
        Whatever `Producer.send_batch` and `prepare` raise. The transaction is then given up, and its id not used again.
    """
    where = where or task_info(settings.streaming)
    duty = check_admission(handle, settings.sink, where)
    compares = where.micro_batch is not None and settings.sink.exactly_once_compare == "content"
    hashed = HashedBatches(batches, hashes=compares)
    if duty.done:
        rows = None if where.micro_batch is None else _read_to_the_end(hashed)
        return TaskReport(
            WriteReport({}), outcome=Skipped(handle, duty.query, duty.batch, rows, where.origin, hashed.content)
        )
    slot = slots.take(SinkKey(handle.sink, config.bootstrap_servers), handle.fencing)
    config = dataclasses.replace(config, transactional_id=slot.transactional_id)
    producer = producers.get(config)
    parts = parts_of(producer)
    parts.meter.start_interval()
    slot.fencing = handle.fencing
    limit = inline_limit(settings.sink, where.partition)
    filling = TransactionWriter(producer, settings, limit, where.attempt, clock)
    try:
        filling.fill(iter(hashed))
        report = _finished(filling, slot, handle, duty)
        report = dataclasses.replace(report, outcome=_with_origin(report.outcome, where.origin, hashed.content))
        failpoint("task.prepared")
        _warn_of_many_ids(slot, where)
    except BaseException:  # Spark ends a task by an exception too
        slots.discard(slot)
        filling.give_up()
        producers.drop(config)
        raise
    finally:
        filling.close()
    return report


def _with_origin(outcome: TaskOutcome | None, origin: ForeachBatchOrigin, content: int | None) -> TaskOutcome | None:
    return None if outcome is None else outcome._replace(origin=origin, content=content)


def _read_to_the_end(batches: Iterable[pa.RecordBatch]) -> int:
    """Read the rows of a micro-batch that is done, drop them, and return their number, which the commit compares.

    Spark's stateful operators write their state, and tell the watermark, only when their rows are read to the end (Spark's
    StateStoreWriter). With `stateStore.checkpointFormatVersion` 2 a query whose tasks leave rows unread cannot go on.
    """
    return sum(batch.num_rows for batch in batches)


def task_info(streaming: bool) -> SparkTaskInfo:
    """Return what Spark says of the task that runs now."""
    context = TaskContext.get()
    if context is None:
        return SparkTaskInfo(None, None, streaming)
    number = context.getLocalProperty("streaming.sql.batchId")
    return SparkTaskInfo(
        context.getLocalProperty("sql.streaming.queryId"),
        None if number is None else int(number),
        streaming,
        context.partitionId(),
        context.attemptNumber(),
        run_of(context.getLocalProperty("spark.jobGroup.id")),
    )


def run_of(job_group: str | None) -> str:
    """Return the run id of a query, which is the job group that Spark sets; empty if a program has set a group of its own."""
    return job_group if job_group and _RUN.fullmatch(job_group) else ""


def _finished(
    filling: TransactionWriter, slot: TransactionalId, handle: WriteHandle, duty: BatchAssignment
) -> TaskReport:
    inline = filling.take_inline()
    if inline is not None:
        slot.fencing = None  # no transaction was begun
        report = filling.report_of(WriteReport({}))  # the driver adds the rows that it sends
        return TaskReport(report, outcome=InlineRows(handle, duty.query, duty.batch, inline, filling.rows))
    failpoint("task.sent")
    prepared = filling.prepare()
    spans = tuple(Span(*span) for span in prepared.spans)
    transaction = TaskTransaction(
        prepared.transactional_id, prepared.producer_id, prepared.epoch, Style(prepared.style), spans
    )
    parts = parts_of(filling.producer)
    outcome = PreparedTask(handle, duty.query, duty.batch, transaction, prepared.started_ms, filling.rows)
    return TaskReport(filling.report_of(parts.take_report()), metrics=parts.meter.interval(), outcome=outcome)


def _warn_of_many_ids(slot: TransactionalId, where: SparkTaskInfo) -> None:
    """Say once in a write that each of its tasks uses up an id, where every task has a Python worker of its own."""
    alone = TaskContext.get() is not None and not os.environ.get("SPARK_REUSE_WORKER")
    if alone and slot.fencing is not None and where.partition == 0 and where.attempt == 0:
        logger.warning(
            "spark.python.worker.reuse is false: each task with more than exactlyOnceMaxInlineBytes takes a new transactional "
            "id, which the brokers remember for 7 days (transactional.id.expiration.ms); leave workers alive"
        )
