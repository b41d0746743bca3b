"""Writes one task on an executor: small Arrow batches are joined, and sent by a producer of this Python worker.

Spark reuses a worker for many tasks and kills it without warning. So all rows are acknowledged before `write_task` returns,
and nothing depends on exit handlers (docs/design.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from spark_producer import kernel
from spark_producer.accumulator.incomplete_batches import IncompleteBatches
from spark_producer.config import ProducerConfig
from spark_producer.config.control_topics import add_control_topic
from spark_producer.datasource.engine import is_sail
from spark_producer.datasource.interpreter import gc_freeze_on_second_task, limit_malloc_trim
from spark_producer.datasource.jvm_socket import JvmConnection
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_sizing import gather, pieces
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.executor_memory import default_buffer_memory
from spark_producer.datasource.write.worker.task_writer import task_rows
from spark_producer.producer import Producer, parts_of

WARNED = ".pyproducer-warned-of-kernel"
"""Name of the file by which the workers of an executor know that one of them has warned of the portable kernel."""

_producers = ProducerCache()
"""The producers of this Python worker, which runs one task at a time."""


def write_task(
    settings: TaskSettings, batches: Iterator[pa.RecordBatch], producers: ProducerCache = _producers
) -> TaskReport:
    """Write all rows, wait for their acknowledgement, and return the commit message. The producer comes from `producers`.

    In an exactly-once write the rows are not visible yet: the driver commits them, in the report or in an open transaction.

    Raises:
        The errors of `Producer.send_batch` and `flush`, or of `write_exactly_once`. The producer is then closed, and the
        next task of its sink gets a new one; the producers of other sinks stay.
    """
    jvm = JvmConnection()
    gc_freeze_on_second_task()
    limit_malloc_trim()
    _warn_of_kernel()
    add_control_topic(settings.sink.exactly_once_control_topic)
    rows = jvm.answered(batches)
    if not is_sail():
        report = _write(settings, rows, producers)
    else:  # other tasks of this process run at the same time
        own = ProducerCache()
        try:
            report = _write(settings, rows, own)
        finally:
            own.clear()
    jvm.answer_at_once()
    return report


def _write(settings: TaskSettings, rows: Iterator[pa.RecordBatch], producers: ProducerCache) -> TaskReport:
    config = worker_config(settings)
    if settings.handle is None:
        return _write_at_least_once(config, settings, rows, producers)
    from spark_producer.datasource.write.worker.exactly_once_task import (
        write_exactly_once,  # imported here: other writes do not need it
    )

    return write_exactly_once(settings, config, settings.handle, rows, producers)


def _warn_of_kernel() -> None:
    """Warn if the portable kernel is in use. Only one worker of each executor logs it."""
    if kernel.LOADED.problem and _is_first_of_executor():
        kernel.warn_once()


def _is_first_of_executor() -> bool:
    """Return whether this is the first call on this executor. A file in the application's directory records it."""
    from pathlib import Path  # imported here: with the compiled kernel no worker needs it

    try:
        from pyspark import SparkFiles  # Sail may run with the client of Spark Connect alone, which has none

        Path(SparkFiles.getRootDirectory(), WARNED).touch(exist_ok=False)
    except FileExistsError:
        return False
    except (ImportError, OSError, AssertionError, TypeError):  # the file cannot be created, or Spark is not running
        return True
    return True


def _write_at_least_once(
    config: ProducerConfig, settings: TaskSettings, batches: Iterator[pa.RecordBatch], producers: ProducerCache
) -> TaskReport:
    producer = producers.get(config)
    parts = parts_of(producer)
    parts.meter.start_interval()
    rows, incomplete = task_rows(producer, settings), parts.accumulator.incomplete
    try:
        for piece in pieces(gather(_deferring_linger(batches, incomplete), rows.wanted)):
            rows.send(piece)
            del piece  # otherwise it would be alive while the next one is read
        rows.flush()
    except BaseException:
        producers.drop(config)
        raise
    finally:
        incomplete.defer_linger(False)
    return TaskReport(rows.report_of(parts.take_report()), metrics=parts.meter.interval())


def _deferring_linger(batches: Iterator[pa.RecordBatch], incomplete: IncompleteBatches) -> Iterator[pa.RecordBatch]:
    """Yield `batches`. Rows linger only while the next batch is read: after the last one the task flushes at once."""
    for batch in batches:
        incomplete.defer_linger(True)
        yield batch
        del batch
        incomplete.defer_linger(False)
    incomplete.defer_linger(True)


def worker_config(settings: TaskSettings) -> ProducerConfig:
    """Return the configuration of a task. Its `buffer.memory`, if it is not set, is the default for this worker."""
    context = TaskContext.get() if settings.buffer_memory_unset else None
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
