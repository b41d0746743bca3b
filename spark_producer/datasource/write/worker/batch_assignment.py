"""The batch that a task is assigned to, and its admission: the task writes its rows, skips them as done already, or fails."""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark import TaskContext

from spark_producer.config import SinkOptions
from spark_producer.datasource.engine import number_without_context
from spark_producer.errors import ConfigError, ExactlyOnceError
from spark_producer.exactly_once.protocol.batch_admission import Refuse, Skip, admit
from spark_producer.exactly_once.protocol.control_record import NO_BATCH
from spark_producer.exactly_once.protocol.task_messages import ForeachBatchOrigin, WriteHandle

_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class SparkTaskInfo(NamedTuple):
    """Spark's description of a task. `query` and `micro_batch` are None in a batch write outside of `foreachBatch`; `run`, the
    run id of the query, is empty if Spark does not give it.
    """

    query: str | None
    micro_batch: int | None
    streaming: bool
    partition: int = 0
    attempt: int = 0
    run: str = ""

    @property
    def origin(self) -> ForeachBatchOrigin:
        """Return the `foreachBatch` that the task is in: the query, its run, and the micro-batch."""
        inside = not self.streaming and self.micro_batch is not None and bool(self.query)
        return ForeachBatchOrigin(self.query or "", self.run, self.micro_batch) if inside else ForeachBatchOrigin()


def task_info(streaming: bool) -> SparkTaskInfo:
    """Return Spark's description of the current task."""
    context = TaskContext.get()
    if context is None:
        return SparkTaskInfo(None, None, streaming, number_without_context())
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
    """Return the run id of a query, which Spark sets as the job group; empty if a program has set its own group."""
    return job_group if job_group and _RUN_ID.fullmatch(job_group) else ""


class BatchAssignment(NamedTuple):
    """The query and the number of a task's batch, as in `admit`. If `done`, the task writes nothing."""

    query: str
    batch: int
    done: bool = False


def check_admission(handle: WriteHandle, sink: SinkOptions, task: SparkTaskInfo) -> BatchAssignment:
    """Return the batch that a task writes, after its admission by the sink's control record.

    Raises:
        ConfigError: the write is in `foreachBatch`, and has no number, which a restart would need.
        ExactlyOnceError: the id belongs to another query or kind of write, or the checkpoint is older than what was written.
    """
    assignment = _assignment(handle.sink, sink, task)
    admission = admit(handle.last, handle.sink, assignment.query, assignment.batch, task.origin)
    if isinstance(admission, Refuse):
        raise ExactlyOnceError(f"{admission.reason}. Nothing was written")
    return assignment._replace(done=isinstance(admission, Skip))


def _assignment(sink_id: str, sink: SinkOptions, task: SparkTaskInfo) -> BatchAssignment:
    if task.streaming:
        if not task.query or task.micro_batch is None:
            raise ExactlyOnceError(
                f"exactlyOnceId {sink_id!r}: this Spark does not give tasks the query and the number of the micro-batch "
                "(sql.streaming.queryId, streaming.sql.batchId), so rows cannot be written exactly once. Use Spark 4.1 to 4.3"
            )
        return BatchAssignment(task.query, task.micro_batch)
    if sink.txn_version is not None:
        return BatchAssignment("", sink.txn_version)
    if task.micro_batch is not None:
        raise ConfigError(
            f"exactlyOnceId {sink_id!r} in foreachBatch needs txnVersion, else a restart writes the micro-batch twice. "
            'Add .option("txnVersion", batch_id), and give each write of the function its own id'
        )
    return BatchAssignment("", NO_BATCH)
