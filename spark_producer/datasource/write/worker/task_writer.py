"""Sends the rows of one task by a producer and reports them, with or without dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from spark_producer.config import SinkOptions
from spark_producer.datasource.engine import number_without_context
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_sizing import bytes_to_gather
from spark_producer.metrics import WriteReport
from spark_producer.producer import Producer, parts_of

if TYPE_CHECKING:  # loaded only by writes with dead letters or schemas
    from spark_producer.datasource.write.dead_letters.letters import DeadLetters
    from spark_producer.datasource.write.dead_letters.records import LetterOrigin
    from spark_producer.datasource.write.schema_mismatch import MismatchedPiece
    from spark_producer.schemas.column_format import Formats


class TaskWriter:
    """Encodes and sends the rows of one task. Without `letters` the first bad row fails the task."""

    def __init__(
        self,
        producer: Producer,
        sink: SinkOptions,
        formats: Formats | None = None,
        letters: DeadLetters | None = None,
    ) -> None:
        self.rows = 0
        """The number of rows passed to `send`."""
        self._producer = producer
        self._sink = sink
        self._formats = formats
        self._letters = letters

    @property
    def may_be_refused(self) -> bool:
        """Whether brokers may reject rows that then go to the dead-letter topic, which the driver could not do."""
        return self._letters is not None and self._letters.asks_brokers

    @property
    def may_come_back(self) -> bool:
        """Whether the task itself must wait for acknowledgements: dead letters, too, may be too large for their topic."""
        return self._letters is not None

    def send(self, piece: pa.RecordBatch) -> None:
        """Queue the rows of an Arrow batch.

        Raises: as `Producer.send_batch`. TooManyBadRows: more rows are bad than the options allow.
            RecordError: a row does not fit its schema; the message has the row and the field.
        """
        unfit: MismatchedPiece | None = None
        if self._formats is not None:
            from spark_producer.datasource.write.column_formats import encode_piece  # loaded only if used

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
        """Return the task's report with a separate count of dead letters."""
        return found if self._letters is None else self._letters.report_of(found)

    def wanted(self) -> int:
        """Return the bytes of rows to gather before they are sent."""
        parts = parts_of(self._producer)
        return bytes_to_gather(parts.partition_count(self._sink.topic), parts.config.batch_size)


def task_rows(producer: Producer, settings: TaskSettings) -> TaskWriter:
    """Return the writer of the running task, which sends bad rows to the dead-letter topic if the sink has one."""
    sink, formats = settings.sink, settings.formats
    if sink.dead_letter_topic is None:
        return TaskWriter(producer, sink, formats)
    from spark_producer.datasource.write.dead_letters.letters import DeadLetters

    return TaskWriter(producer, sink, formats, DeadLetters(producer, sink, _origin(settings)))


def _origin(settings: TaskSettings) -> LetterOrigin:
    """Return the origin of the running task's dead letters.

    A query identifies its micro-batch by its id, which its checkpoint keeps, so a repeated micro-batch has the same name. Other
    writes, also those of `foreachBatch`, can be several in one micro-batch: they have the id that the driver gave them.
    """
    from spark_producer.datasource.write.dead_letters.records import LetterOrigin

    context = TaskContext.get()
    if context is None:
        return LetterOrigin(number_without_context(), 0, "batch write", settings.write_id)
    number, query = (context.getLocalProperty(name) for name in ("streaming.sql.batchId", "sql.streaming.queryId"))
    task, attempt = context.partitionId(), context.attemptNumber()
    if number is None:
        return LetterOrigin(task, attempt, "batch write", settings.write_id)
    execution = query if settings.streaming and query else settings.write_id
    return LetterOrigin(task, attempt, f"micro-batch {number}", f"{execution}/{number}")
