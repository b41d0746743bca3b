"""Sends the bad rows of one task to the dead-letter topic, by the producer that writes the good ones.

So they are in the same transaction, if any. An error of the dead-letter topic is an error of the write.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import pyarrow as pa

from spark_producer.common.escape import escaping_logger
from spark_producer.config import SinkOptions
from spark_producer.config.dead_letter_rules import brokers_find_bad_rows, dead_letter_classes
from spark_producer.datasource.write.dead_letters.bounds import Bounds
from spark_producer.datasource.write.dead_letters.records import (
    DeadRecord,
    LetterOrigin,
    as_batch,
    from_bad_rows,
    from_broker_refusal,
    from_dead_record,
    message_of,
    truncate,
)
from spark_producer.datasource.write.schema_mismatch import MismatchedPiece
from spark_producer.errors import IllegalState
from spark_producer.kernel.arrays import Int64Array
from spark_producer.metrics import WriteReport
from spark_producer.producer import Producer, parts_of
from spark_producer.producer.bad_rows import CLASS_BY_ERROR_CODE, BadRowClass, new_collector
from spark_producer.producer.producer import send_batch_collecting_bad_rows
from spark_producer.record.columns import take_rows

logger = escaping_logger("pyproducer")

AT_ONCE = 1000
"""Maximum dead records that are built and sent together, since they are Python objects meanwhile."""

_Item = TypeVar("_Item")


class DeadLetters:
    """Sends the rows of one task: good ones to their topics, bad ones to `topic`.

    After each piece of rows it sends those that brokers have rejected meanwhile, so that few are held at a time.
    """

    def __init__(
        self, producer: Producer, sink: SinkOptions, origin: LetterOrigin, unix_ms: Callable[[], int] | None = None
    ) -> None:
        """Raise `IllegalState` if the sink has no `deadLetterTopic`."""
        if sink.dead_letter_topic is None:
            raise IllegalState("dead letters need a topic")
        self.topic = sink.dead_letter_topic
        self.rows = 0
        """The number of rows passed to `send`, good and bad."""
        self._producer = producer
        self._meter = parts_of(producer).meter
        self._sink = sink
        self._with_error_headers = sink.dead_letter_headers
        self._origin = origin
        self._unix_ms = unix_ms or (lambda: time.time_ns() // 1_000_000)
        self._bounds = Bounds(sink.max_bad_records, sink.max_bad_records_ratio)
        wanted = [BadRowClass(name) for name in dead_letter_classes(sink.dead_letter_classes)]
        self._collector = new_collector(producer.config, wanted, (self.topic,))
        self.asks_brokers = brokers_find_bad_rows(sink)
        """Whether brokers may find rows bad."""
        self._again = new_collector(producer.config, (BadRowClass.SIZE,))
        """For dead records that are too large for their topic: they are sent without their large parts."""

    def send(self, piece: pa.RecordBatch, unfit: MismatchedPiece | None = None) -> None:
        """Queue the rows of an Arrow batch, except those that are `unfit` for their schemas.

        Raises: as `Producer.send_batch`, also for the dead-letter topic.
            TooManyBadRows: the task has more bad rows than the options allow.
        """
        first_row, self.rows = self.rows, self.rows + piece.num_rows
        sink, rows = self._sink, piece
        numbers: int | Int64Array = first_row
        if unfit is not None:
            self._collector.add_schema_mismatches(unfit.rejected(first_row, sink.topic))
            fit = unfit.fit()
            rows, numbers = take_rows(piece, fit), first_row + fit
        send_batch_collecting_bad_rows(
            self._producer,
            rows,
            self._collector,
            topic=sink.topic,
            first_row=numbers,
            with_headers=sink.include_headers,
        )
        if self._collector:
            self._bury(self._found(piece, first_row, unfit))
        if self._collector.refused or self._again.refused:
            self._bury_refused()

    def flush(self) -> None:
        """Wait until every row is acknowledged, the good ones and the dead ones.

        Raises: as `Producer.flush`. TooManyBadRows: as `send`.
        """
        self._producer.flush()
        while self._bury_refused():
            self._producer.flush()
        self._bounds.check(self.rows)

    def report_of(self, found: WriteReport) -> WriteReport:
        """Return a task's report with a separate count of dead records, and log a warning if there are any."""
        if self._bounds.rejected:
            by = ", ".join(f"{bad} {count}" for bad, count in self._bounds.rejected_by.items())
            logger.warning(
                "%d of %d rows of task %d went to the dead-letter topic %r (by class: %s). The first ones: %s",
                self._bounds.rejected, self.rows, self._origin.task, self.topic, by, self._bounds.reasons(),
            )  # fmt: skip
        return found.with_dead_letters(self.topic, self._bounds.rejected_by)

    def _found(self, piece: pa.RecordBatch, first_row: int, unfit: MismatchedPiece | None) -> Iterator[DeadRecord]:
        """Yield the rows of a piece that were not queued, in the order of the checks."""
        found = self._collector.take()
        for group in found:
            self._bounds.add(group.bad.value, len(group.rows), (row.message for row in group.rows))
        self._bounds.check(self.rows)
        for group in found:
            yield from from_bad_rows(
                group, piece, first_row, self._origin, with_headers=self._sink.include_headers,
                with_error_headers=self._with_error_headers, now_ms=self._unix_ms(), unfit=unfit,
            )  # fmt: skip

    def _bury_refused(self) -> bool:
        """Send the rows that brokers have rejected; return whether there were any."""
        found = self._collector.refused.take()
        for refused in found:
            self._bounds.add(
                CLASS_BY_ERROR_CODE[refused.error.code].value,
                len(refused.rows),
                map(message_of(refused), refused.rows, refused.texts),
            )
        self._bounds.check(self.rows)
        for refused in found:
            self._bury(
                from_broker_refusal(
                    refused, self._origin, with_error_headers=self._with_error_headers, now_ms=self._unix_ms()
                )
            )
        too_large = self._again.refused.take()
        for refused in too_large:
            self._send_smaller(from_dead_record(refused))
        return bool(found or too_large)

    def _bury(self, records: Iterator[DeadRecord]) -> None:
        """Send records to the dead-letter topic, and count them by their original topic."""
        for some in batched(records, AT_ONCE):
            for topic, count in Counter(record.topic for record in some).items():
                self._meter.events.rows_rejected(topic, count, self._meter.clock())
            self._send_smaller(self._too_large(some))

    def _too_large(self, records: Sequence[DeadRecord]) -> list[DeadRecord]:
        """Queue records; return those that are too large for any request."""
        if not records:
            return []
        send_batch_collecting_bad_rows(self._producer, as_batch(records), self._again, topic=self.topic)
        rows = [found.row for group in self._again.take() for found in group.rows]
        return [records[row] for row in sorted(rows)]

    def _send_smaller(self, records: Sequence[DeadRecord]) -> None:
        """Queue records without their largest parts; a record that is too large without them fails like any other row."""
        while records:
            shrunk = [(record, truncate(record)) for record in records]
            hopeless = [record for record, found in shrunk if found is None]
            if hopeless:
                self._producer.send_batch(as_batch(hopeless), topic=self.topic)
                self._producer.flush()
            records = self._too_large([found for _, found in shrunk if found is not None])


def batched(items: Iterator[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield lists of up to `size` items, as `itertools.batched` of Python 3.12 does."""
    while some := list(islice(items, size)):
        yield some
