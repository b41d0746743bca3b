"""Fakes for the tests of accumulator and sender: an accumulator with a clock that is stopped, columns in one line, a decoder.

Owns: threads whose outcome is waited for.
Must not know: what is tested.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from kafka.record.memory_records import MemoryRecords

from spark_producer.accumulator import (
    BufferPool,
    Callback,
    Compression,
    PartitionQueue,
    ProducerBatch,
    RecordAccumulator,
    RecordFuture,
)
from spark_producer.accumulator.completion import BatchCompletion
from spark_producer.accumulator.drainer import Drainer
from spark_producer.accumulator.incomplete_batches import IncompleteBatches
from spark_producer.accumulator.readiness import ReadyCheck
from spark_producer.common.cluster import TopicPartition
from spark_producer.kernel import NO_HEADERS, ArrangedRows, BinaryColumn, RecordColumns, SingleRecord
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.compression_ratio import CompressionRatios
from tests.fakes.fake_clock import FakeClock

DEADLINE = 20.0
TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
NODE = 1


class Runner(threading.Thread):
    """Runs one call; `outcome` is its result or its exception."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.outcome: Any = None
        self.done = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:
            self.outcome = error
        finally:
            self.done.set()

    def result(self) -> Any:
        """Return the call's result, or raise its error."""
        assert self.done.wait(DEADLINE), "the call did not end"
        self.join(DEADLINE)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def rows_of(values: Sequence[bytes | None], timestamps: Sequence[int] | int = 1_700_000_000_000) -> ArrangedRows:
    """Values without keys, in their order."""
    times = timestamps if isinstance(timestamps, int) else np.array(timestamps, dtype=np.int64)
    columns = RecordColumns(BinaryColumn(pa.array(values, pa.binary())), timestamps=times)
    return ArrangedRows(columns, np.arange(len(values)))


def values_in(data: bytes | memoryview) -> list[bytes | None]:
    """The values of sealed record batches, read by kafka-python, which checks the CRC."""
    found: list[bytes | None] = []
    records = MemoryRecords(bytes(data))
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [record.value for record in batch]
    return found


def values_of(batch: ProducerBatch) -> list[bytes | None]:
    """The values of one batch, sealed for the purpose."""
    batch.write_header()
    return values_in(batch.data)


class OneLeader:
    """All partitions are led by `NODE`, but for those named otherwise."""

    numbers = itertools.count()

    def __init__(self, others: Mapping[TopicPartition, tuple[int, int]] | None = None) -> None:
        self.others = others or {}
        self.number = next(self.numbers)

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        return self.others.get(place, (NODE, 0))


@dataclass
class AccumulatorFakes:
    """An accumulator under a clock that the test turns."""

    clock: FakeClock
    pool: BufferPool
    accumulator: RecordAccumulator
    compression: Compression | None
    ratios: CompressionRatios
    wakeups: list[float] = field(default_factory=list)
    leaders: OneLeader = field(default_factory=OneLeader)

    @property
    def incomplete(self) -> IncompleteBatches:
        return self.accumulator.incomplete

    @property
    def drainer(self) -> Drainer:
        return self.accumulator.drainer

    @property
    def completion(self) -> BatchCompletion:
        return self.accumulator.completion

    def append(self, *values: bytes | None, tp: TopicPartition = TP) -> None:
        rows = rows_of(values)
        self.accumulator.append(tp, rows, 0, len(rows))

    def append_one(
        self, value: bytes, timestamp: int = 0, callback: Callback | None = None, tp: TopicPartition = TP
    ) -> RecordFuture:
        return self.accumulator.append_one(tp, SingleRecord(None, value, NO_HEADERS, timestamp), callback)

    def ready(self) -> list[TopicPartition]:
        """The partitions with a batch worth sending, in the order in which they will be taken."""
        self.check()
        return [queue.topic_partition for queue in self.drainer._readiness.listed(NODE) or ()]

    def check(self) -> ReadyCheck:
        return self.drainer.ready(self.clock.now, self.leaders)

    def next_time(self) -> float | None:
        return self.check().next_time

    def try_take(self, tp: TopicPartition = TP, max_bytes: int = 1 << 40) -> ProducerBatch | None:
        """The head of one partition, if it is ready; the others stay as they are."""
        self.check()
        listed = self.drainer._readiness.listed(NODE) or deque()
        others = [queue for queue in listed if queue.topic_partition != tp]
        mine = [queue for queue in listed if queue.topic_partition == tp]
        listed.clear()
        listed.extend(mine)
        taken = self.drainer.drain(NODE, max_bytes, self.clock.now)
        listed.extendleft(reversed(others))
        return taken[0] if taken else None

    def take(self, tp: TopicPartition = TP) -> ProducerBatch:
        batch = self.try_take(tp)
        assert batch is not None
        return batch

    def queue(self, tp: TopicPartition = TP) -> PartitionQueue:
        return self.incomplete.queues[tp]

    def complete(self, batch: ProducerBatch, base_offset: int = 0, log_append_time: int = -1) -> None:
        self.completion.remove_in_flight(batch)
        self.completion.complete(batch, base_offset, log_append_time)
        self.completion.refresh([batch.queue], self.clock.now)

    def fail(self, batch: ProducerBatch, error: Exception) -> None:
        self.completion.remove_in_flight(batch)
        self.completion.fail(batch, error)
        self.completion.refresh([batch.queue], self.clock.now)

    def put_back(self, batch: ProducerBatch, backoff: float = 0.1) -> None:
        batch.retry_at = self.clock.now + backoff
        self.completion.remove_in_flight(batch)
        self.completion.reenqueue(batch)
        self.completion.refresh([batch.queue], self.clock.now)

    def split(self, batch: ProducerBatch) -> None:
        self.completion.remove_in_flight(batch)
        self.completion.split(batch)
        self.completion.refresh([batch.queue], self.clock.now)

    def expire(self) -> list[ProducerBatch]:
        """Fail expired batches, as the sender does."""
        expired = self.completion.take_expired(self.clock.now)
        for batch in expired:
            self.completion.fail(batch, self.completion.expiry_error(batch, self.clock.now))
        self.completion.refresh([batch.queue for batch in expired], self.clock.now)
        return expired


def accumulator_fakes(
    *,
    memory: int = 1 << 20,
    batch_size: int = 1024,
    linger: float = 0.010,
    delivery_timeout: float = 120.0,
    max_block: float = 0.0,
    keep_order: bool = False,
    codec: Codec = Codec.NONE,
    new_pool: Callable[[int, int, FakeClock], BufferPool] = BufferPool,
    new_compressor: Callable[[Codec, int | None], Compressor] = Compressor,
) -> AccumulatorFakes:
    clock = FakeClock()
    wakeups: list[float] = []
    pool, ratios = new_pool(memory, batch_size, clock), CompressionRatios()
    compression = None if codec is Codec.NONE else Compression(codec, None, pool, ratios, new_compressor)
    accumulator = RecordAccumulator(
        pool,
        batch_size=batch_size,
        linger=linger,
        delivery_timeout=delivery_timeout,
        max_block=max_block,
        keep_order=keep_order,
        clock=clock,
        wakeup=lambda: wakeups.append(clock.now),
        compression=compression,
    )
    return AccumulatorFakes(clock, pool, accumulator, compression, ratios, wakeups)


@contextmanager
def encoding_stopped(monkeypatch: Any, error: BaseException | None = None) -> Iterator[tuple[Any, Any]]:
    """Every append waits between (reached, go on) events, as if the encoder took long, then fails with `error`."""
    reached, go_on = threading.Event(), threading.Event()
    append = ProducerBatch.append

    def slow(batch: ProducerBatch, rows: ArrangedRows, first: int, stop: int) -> int:
        reached.set()
        assert go_on.wait(DEADLINE)
        if error is not None:
            raise error
        return append(batch, rows, first, stop)

    with monkeypatch.context() as patch:
        patch.setattr(ProducerBatch, "append", slow)
        yield reached, go_on
        go_on.set()
