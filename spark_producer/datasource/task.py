"""The write of one task, on an executor.

Owns: the gathering of small batches, the producers of this Python worker.
Must not know: how rows become bytes (`Producer`), or which producers are kept (`cache`).

Spark reuses a worker for many tasks and kills it without warning; so everything is acknowledged before `write_task`
returns, and nothing depends on exit handlers (docs/design.md).
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
"""for one partition: an append that brings this much costs next to nothing beside its bytes, and joining batches copies them"""


_producers = ProducerCache()
"""of this Python worker, which runs one task at a time"""


def write_task(settings: TaskSettings, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write all rows and wait for their acknowledgement.

    Raises:
        Whatever `Producer.send_batch` and `flush` raise; the producer is closed then, and the next task of its sink gets
        a new one; those of other sinks are left alone.
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
    """The configuration as a task uses it: with the memory that its worker can have, unless it was set."""
    context = TaskContext.get() if settings.own_memory else None
    if context is None:
        return settings.config
    return dataclasses.replace(settings.config, buffer_memory=default_buffer_memory(context.getLocalProperty))


def cached_producer(config: ProducerConfig) -> Producer:
    """This worker's producer of a configuration; a new one if there is none, or the last one can do no more."""
    return _producers.get(config)


def drop_producer(config: ProducerConfig | None = None) -> None:
    """Close this worker's producer of a configuration, or all of them, without waiting."""
    if config is None:
        _producers.clear()
    else:
        _producers.drop(config)


def _send_all(producer: Producer, sink: SinkOptions, batches: Iterator[pa.RecordBatch]) -> None:
    row = 0
    for piece in _pieces(_gather(parts_of(producer), sink.topic, batches)):
        producer.send_batch(piece, topic=sink.topic, first_row=row, with_headers=sink.include_headers)
        row += piece.num_rows
        del piece  # or it would be alive while the next one is read


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Large batches in even slices: what the kernel copies of one slice is all the scratch memory there is."""
    for batch in batches:
        # Headers are copied more often than keys and values.
        limit = PIECE_BYTES // 2 if "headers" in batch.schema.names else PIECE_BYTES
        count = -(-batch.nbytes // (limit + limit // 2))
        step = -(-batch.num_rows // max(1, count))
        yield from (batch.slice(first, step) for first in range(0, batch.num_rows, max(1, step)))
        del batch


def _gather(parts: Parts, topic: str | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join Arrow batches until each brings enough for each partition: cost per batch must not become per row.

    With few partitions, or large rows, every Arrow batch is passed on as it is. No batch is held while the next is read
    but those that are being gathered.
    """
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if held and batch.nbytes >= PIECE_BYTES:  # joined, a column might pass the 2 GiB that 32-bit offsets reach
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
    """All of them as one, taken out of the list."""
    joined = held[0] if len(held) == 1 else pa.concat_batches(held)
    held.clear()
    return joined
