"""What a task has to do, by the ticket of its execution and by what Spark says of it: write, or nothing, or refuse."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.config import SinkOptions
from spark_producer.errors import ConfigError, ExactlyOnceError
from spark_producer.exactly_once.protocol.batch_admission import Refuse, Skip, admit
from spark_producer.exactly_once.protocol.control_record import NO_BATCH
from spark_producer.exactly_once.protocol.task_messages import ForeachBatchOrigin, WriteHandle


class SparkTaskInfo(NamedTuple):
    """What Spark says of a task. `query` and `micro_batch` are None in a batch write outside of `foreachBatch`; `run`, the run id
    of the query, is empty if Spark does not say it.
    """

    query: str | None
    micro_batch: int | None
    streaming: bool
    partition: int = 0
    attempt: int = 0
    run: str = ""

    @property
    def origin(self) -> ForeachBatchOrigin:
        """The query in whose `foreachBatch` the task writes, its run, and the micro-batch."""
        inside = not self.streaming and self.micro_batch is not None and bool(self.query)
        return ForeachBatchOrigin(self.query or "", self.run, self.micro_batch) if inside else ForeachBatchOrigin()


class BatchAssignment(NamedTuple):
    """The query and the number of the batch that a task's message bears, as `admit` takes them; `done`: write nothing."""

    query: str
    batch: int
    done: bool = False


def check_admission(handle: WriteHandle, sink: SinkOptions, where: SparkTaskInfo) -> BatchAssignment:
    """Compare what is to be written with what the sink's control record says of it.

    Raises:
        ConfigError: the write is in `foreachBatch`, and has no number that a restart would find again.
        ExactlyOnceError: the id belongs to another query or kind of write, or the checkpoint is older than what was written.
    """
    duty = _wanted(handle.sink, sink, where)
    admission = admit(handle.last, handle.sink, duty.query, duty.batch, where.origin)
    if isinstance(admission, Refuse):
        raise ExactlyOnceError(f"{admission.reason}. Nothing was written")
    return duty._replace(done=isinstance(admission, Skip))


def _wanted(sink_id: str, sink: SinkOptions, where: SparkTaskInfo) -> BatchAssignment:
    if where.streaming:
        if not where.query or where.micro_batch is None:
            raise ExactlyOnceError(
                f"exactlyOnceId {sink_id!r}: this Spark does not tell tasks the query and the number of the micro-batch "
                "(sql.streaming.queryId, streaming.sql.batchId), so rows cannot be written exactly once: use Spark 4.1 to 4.3"
            )
        return BatchAssignment(where.query, where.micro_batch)
    if sink.txn_version is not None:
        return BatchAssignment("", sink.txn_version)
    if where.micro_batch is not None:
        raise ConfigError(
            f"exactlyOnceId {sink_id!r} in foreachBatch needs txnVersion, else a restart writes the micro-batch twice: "
            'add .option("txnVersion", batch_id), and give each write of the function an id of its own'
        )
    return BatchAssignment("", NO_BATCH)
