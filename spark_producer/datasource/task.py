"""The write of one task, on an executor: small Arrow batches are joined, and sent by a producer of this Python worker.

Spark reuses a worker for many tasks and kills it without warning. So all rows are acknowledged before `write_task` returns,
and nothing depends on exit handlers (docs/design.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from spark_producer import kernel
from spark_producer.config import ProducerConfig, SinkOptions
from spark_producer.datasource.cache import ProducerCache
from spark_producer.datasource.commit import TaskReport
from spark_producer.datasource.executor_memory import default_buffer_memory
from spark_producer.datasource.loopback import JvmConnection
from spark_producer.datasource.process import freeze_at_second_task, keep_memory_once
from spark_producer.datasource.writers import TaskSettings as TaskSettings
from spark_producer.kernel.views import PIECE_BYTES
from spark_producer.producer import Parts, Producer, parts_of

GATHERED_PARTITION_BYTES = 128 << 10
"""The bytes for one partition above which an append costs almost nothing beside the bytes themselves. More are not gathered,
since joining batches copies them."""


_producers = ProducerCache()
"""The producers of this Python worker, which runs one task at a time."""


def write_task(settings: TaskSettings, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write all rows and wait for their acknowledgement.

    Raises:
        Whatever `Producer.send_batch` and `flush` raise. The producer is then closed, and the next task of its sink gets
        a new one; the producers of other sinks stay.
    """
    jvm = JvmConnection()
    freeze_at_second_task()
    keep_memory_once()
    kernel.warn_once()
    config = worker_config(settings)
    producer = cached_producer(config)
    parts = parts_of(producer)
    parts.meter.start_lap()
    try:
        _send_all(producer, settings.sink, jvm.answered(batches))
        producer.flush()
    except BaseException:
        drop_producer(config)
        raise
    report = TaskReport(parts.take_report(), metrics=parts.meter.lap())
    jvm.answer_at_once()
    return report


def worker_config(settings: TaskSettings) -> ProducerConfig:
    """Return the configuration as a task uses it: with the memory that its worker can have, unless that was set."""
    context = TaskContext.get() if settings.own_memory else None
    if context is None:
        return settings.config
    return dataclasses.replace(settings.config, buffer_memory=default_buffer_memory(context.getLocalProperty))


def cached_producer(config: ProducerConfig) -> Producer:
    """Return this worker's producer of a configuration, or a new one if there is none or it has failed."""
    return _producers.get(config)


def drop_producer(config: ProducerConfig | None = None) -> None:
    """Close this worker's producer of a configuration (None: all its producers) without waiting."""
    if config is None:
        _producers.clear()
    else:
        _producers.drop(config)


def _send_all(producer: Producer, sink: SinkOptions, batches: Iterator[pa.RecordBatch]) -> None:
    row = 0
    for piece in _pieces(_gather(parts_of(producer), sink.topic, batches)):
        producer.send_batch(piece, topic=sink.topic, first_row=row, with_headers=sink.include_headers)
        row += piece.num_rows
        del piece  # otherwise it would be alive while the next one is read


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut large batches into even slices, since the scratch memory of the kernel grows with the slice that it copies."""
    for batch in batches:
        # Headers are copied more often than keys and values.
        limit = PIECE_BYTES // 2 if "headers" in batch.schema.names else PIECE_BYTES
        count = -(-batch.nbytes // (limit + limit // 2))
        step = -(-batch.num_rows // max(1, count))
        yield from (batch.slice(first, step) for first in range(0, batch.num_rows, max(1, step)))
        del batch


def _gather(parts: Parts, topic: str | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join Arrow batches until each has enough rows for each partition, so that a cost per batch is not one per row.

    With few partitions, or large rows, every Arrow batch is passed on as it is. While the next batch is read, only those that
    are being gathered are held.
    """
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if held and batch.nbytes >= PIECE_BYTES:  # a joined column might exceed the 2 GiB that 32-bit offsets reach
            held_bytes = 0
            yield _joined(held)
        held.append(batch)
        held_bytes += batch.nbytes
        del batch
        if held_bytes >= _bytes_to_gather(parts, topic):
            held_bytes = 0
            yield _joined(held)
    if held:
        yield _joined(held)


def _bytes_to_gather(parts: Parts, topic: str | None) -> int:
    partitions = parts.partition_count(topic)
    return min(partitions * min(parts.config.batch_size // 2, GATHERED_PARTITION_BYTES), PIECE_BYTES)


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join all batches into one, and empty the list."""
    joined = held[0] if len(held) == 1 else pa.lib.concat_batches(held)  # pa's own name of it is missing in the stubs
    held.clear()
    return joined
