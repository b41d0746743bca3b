"""The readers of streams, which Spark pickles for the tasks: one for Spark from 4.2 on, and one for 4.0 and 4.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_producer.datasource.error_boundary import hide_internal_traceback, hide_traceback_of_iterator
from spark_producer.datasource.interpreter import freeze_once
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.datasource.read.task_ranges import TopicRangesPartition
from spark_producer.datasource.spark_compat import (
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from spark_producer.datasource.task_format import StampedTask
from spark_producer.datasource.task_start import acknowledge_in_task
from spark_producer.errors import PyProducerError

if TYPE_CHECKING:  # the driver handles no rows, and tasks no offsets
    import pyarrow as pa

    from spark_producer.datasource.read.driver.offset_json import OffsetJson
    from spark_producer.datasource.read.driver.stream_offsets import StreamOffsets


class StreamReader(StampedTask, DataSourceStreamReader):
    """What the stream readers for all versions of Spark share."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self.settings = settings
        self.schema = schema
        self._stream: StreamOffsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to the driver's process."""
        return self.__dict__ | {"_stream": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the reader in a task (executor)."""
        super().__setstate__(state)
        acknowledge_in_task()

    @property
    def stream(self) -> StreamOffsets:
        """The offsets of the stream, made at first use."""
        if self._stream is None:
            from spark_producer.datasource.read.driver.stream_offsets import StreamOffsets

            self._stream = StreamOffsets(self.settings)
            freeze_once()
        return self._stream

    @hide_internal_traceback
    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """Return the offsets at which a new query starts (driver)."""
        from spark_producer.datasource.read.driver.offset_json import to_json

        return to_json(self.stream.initial())

    @hide_internal_traceback
    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the ranges of each task of a micro-batch (driver)."""
        from spark_producer.datasource.read.driver.offset_json import from_json
        from spark_producer.datasource.read.driver.range_splitting import tasks_of

        ends = from_json(end)
        ranges = self.stream.ranges(from_json(start), ends)
        return [TopicRangesPartition(task, ends.topic_ids) for task in tasks_of(ranges, self.settings.source)]

    @hide_traceback_of_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task (executor), and yield their rows."""
        from spark_producer.datasource.read.worker.read_task import read_task

        return read_task(self.settings, self.schema, partition)

    def stop(self) -> None:
        """Close the connections (driver)."""
        if self._stream is not None:
            self._stream.close()

    def _next_ends(self, start: OffsetJson, *, limited: bool) -> OffsetJson:
        from spark_producer.datasource.read.driver.offset_json import from_json, to_json

        return to_json(self.stream.next_ends(from_json(start), limited=limited))


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """The reader of `spark.readStream.format("pyproducer")` from Spark 4.2 on.

    It has no `commit`: Spark calls that one micro-batch late, and never for the last one of the trigger availableNow.
    """

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options set. Spark passes it to `latestOffset`, unless the trigger has no limit."""
        source = self.settings.source
        if source.max_offsets_per_trigger is not None:
            return ReadMaxRows(source.max_offsets_per_trigger)
        if source.min_offsets_per_trigger is not None:
            return ReadMinRows(source.min_offsets_per_trigger)
        return ReadAllAvailable()

    @hide_internal_traceback
    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark's name
        """Return the end of the micro-batch that begins at `start` (driver)."""
        return self._next_ends(start, limited=not isinstance(limit, ReadAllAvailable))

    @hide_internal_traceback
    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802 - Spark's name
        """Return the latest offsets of the last look-up, for the progress of the query (driver)."""
        from spark_producer.datasource.read.driver.offset_json import LoggedOffsets, to_json

        return to_json(LoggedOffsets(self.stream.latest, {})) if self.stream.latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query at the latest offsets of this moment (driver)."""
        self.stream.prepare_for_available_now()


class UnlimitedStreamReader(StreamReader):
    """The reader of `spark.readStream.format("pyproducer")` for Spark 4.0 and 4.1, which ask for the latest offset of all."""

    _start: OffsetJson | None = None
    """The end of the last micro-batch."""

    @hide_internal_traceback
    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the ranges of each task of a micro-batch (driver)."""
        self._start = end
        return super().partitions(start, end)

    @hide_internal_traceback
    def commit(self, end: OffsetJson) -> None:
        """Commit the offsets of a finished micro-batch to `commitGroup`, if it is set (driver)."""
        from spark_producer.datasource.read.driver.offset_json import from_json

        self.stream.commit(from_json(end).offsets)

    @hide_internal_traceback
    def latestOffset(self) -> OffsetJson:  # type: ignore[override]  # noqa: N802 - as pyspark 4.0
        """Return the end of the next micro-batch (driver)."""
        return self._next_ends(self._start or {}, limited=False)


class RefusedStreamReader(DataSourceStreamReader):
    """The reader of a stream whose options or columns are wrong: each call raises the error."""

    def __init__(self, error: PyProducerError) -> None:
        self.error = error

    @hide_internal_traceback
    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """Raise the error (driver)."""
        raise self.error

    @hide_internal_traceback
    def latestOffset(self, *_: object) -> OffsetJson:  # noqa: N802 - Spark's name
        """Raise the error (driver)."""
        raise self.error

    @hide_internal_traceback
    def partitions(self, *_: object) -> Sequence[InputPartition]:
        """Raise the error (driver)."""
        raise self.error

    @hide_internal_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Spark's signature
        """Raise the error (executor)."""
        raise self.error


def stream_reader_of(settings: SourceSettings, schema: StructType) -> StreamReader:
    """Return the stream reader for the running version of Spark."""
    return (LimitedStreamReader if HAS_READ_LIMITS else UnlimitedStreamReader)(settings, schema)
