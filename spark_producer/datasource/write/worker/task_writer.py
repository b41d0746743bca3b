"""The rows of one task and their producer: how they are sent, and what is reported, with or without dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from spark_producer.config import SinkOptions
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_sizing import bytes_to_gather
from spark_producer.metrics import WriteReport
from spark_producer.producer import Producer, parts_of

if TYPE_CHECKING:  # only writes with dead letters or schemas pay for them
    from spark_producer.datasource.write.dead_letters.letters import DeadLetters
    from spark_producer.datasource.write.dead_letters.records import Origin
    from spark_producer.datasource.write.schema_mismatch import MismatchedPiece
    from spark_producer.schemas.column_format import Formats


class TaskWriter:
    """Encodes and sends the rows of one task. Without `letters` the first row that cannot be written ends the task."""

    def __init__(
        self,
        producer: Producer,
        sink: SinkOptions,
        formats: Formats | None = None,
        letters: DeadLetters | None = None,
    ) -> None:
        self.rows = 0
        """The number of rows that were handed over."""
        self._producer = producer
        self._sink = sink
        self._formats = formats
        self._letters = letters

    @property
    def may_be_refused(self) -> bool:
        """Whether rows may come back from brokers to be sent elsewhere, which the driver could not do."""
        return self._letters is not None and self._letters.asks_brokers

    @property
    def may_come_back(self) -> bool:
        """Whether the task must wait for the brokers' answers itself: dead letters, too, may be too large for their topic."""
        return self._letters is not None

    def send(self, piece: pa.RecordBatch) -> None:
        """Queue the rows of an Arrow batch.

        Raises: as `Producer.send_batch`. TooManyBadRows: more of them are bad than may be.
            RecordError: A row does not fit its schema; the text names the row and the field.
        """
        unfit: MismatchedPiece | None = None
        if self._formats is not None:
            from spark_producer.datasource.write.column_formats import encode_piece  # only those who ask for it pay

            piece, unfit = encode_piece(piece, self._formats)
        if self._letters is not None:
            self._letters.send(piece, unfit)
        else:
            if unfit is not None:
                unfit.rejected(self.rows, self._sink.topic).raise_first()
            self._producer.send_batch(
                piece, topic=self._sink.topic, first_row=self.rows, with_headers=self._sink.include_headers
            )
        self.rows += piece.num_rows

    def flush(self) -> None:
        """Wait until every row is acknowledged.

        Raises: as `Producer.flush`. TooManyBadRows: as `send`.
        """
        if self._letters is not None:
            self._letters.flush()
        else:
            self._producer.flush()

    def report_of(self, found: WriteReport) -> WriteReport:
        """Return the task's report, in which dead letters are counted apart."""
        return found if self._letters is None else self._letters.report_of(found)

    def wanted(self) -> int:
        """Return the bytes of rows that should be gathered before they are sent."""
        parts = parts_of(self._producer)
        return bytes_to_gather(parts.partition_count(self._sink.topic), parts.config.batch_size)


def task_rows(producer: Producer, settings: TaskSettings) -> TaskWriter:
    """Return the rows of the task that runs now, which go to a dead-letter topic if they are bad and the sink has one."""
    sink, formats = settings.sink, settings.formats
    if sink.dead_letter_topic is None:
        return TaskWriter(producer, sink, formats)
    from spark_producer.datasource.write.dead_letters.letters import DeadLetters

    return TaskWriter(producer, sink, formats, DeadLetters(producer, sink, _origin(settings)))


def _origin(settings: TaskSettings) -> Origin:
    """Return what dead letters say of the task that runs now.

    A query names its micro-batch by its id, which its checkpoint keeps, so a micro-batch that is repeated has the same name. All
    other writes, those of `foreachBatch` too, may be several in one micro-batch: they bear the name that the driver gave them.
    """
    from spark_producer.datasource.write.dead_letters.records import Origin

    context = TaskContext.get()
    if context is None:
        return Origin(0, 0, "batch write", settings.write_id)
    number, query = (context.getLocalProperty(name) for name in ("streaming.sql.batchId", "sql.streaming.queryId"))
    task, attempt = context.partitionId(), context.attemptNumber()
    if number is None:
        return Origin(task, attempt, "batch write", settings.write_id)
    execution = query if settings.streaming and query else settings.write_id
    return Origin(task, attempt, f"micro-batch {number}", f"{execution}/{number}")
