"""The smallest engine: batches in lists. It shows that the broker asks for nothing but what the Protocols say."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_producer.broker.counters import MetricReading, gauge, readings
from spark_producer.broker.settings import UNLIMITED, BrokerSettings, TopicSettings
from spark_producer.broker.storage.base import LEADER_EPOCH, Recovered, TimestampOffset
from spark_producer.broker.storage.engines import OpenStorage
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import BatchHeader, assign_base_offset, read_header


@dataclass
class MemoryCounters:
    """The counters of the smallest engine."""

    logs: int = gauge("logs in memory")


class MemoryStorage:
    """Logs in memory, gone when it is closed. With `confirms_at_once` false it is as slow as a disk under a journal: batches stay
    unconfirmed until `confirm_all`, or for ever once `fail` was called. With `writes_at_once` false they are not even written
    until `write_all`. It takes requests of any size until the test sets `free_bytes`.

    `on_available` is called with `at_most` whenever a log is asked what is available; what it raises is raised there.
    """

    name = "memory"

    def __init__(
        self,
        data_dir: Path,
        settings: BrokerSettings,
        *,
        confirms_at_once: bool = True,
        writes_at_once: bool = True,
        on_available: Callable[[int], None] = lambda at_most: None,
    ) -> None:
        self.confirms_at_once = confirms_at_once
        self._on_available = on_available
        self.logs: dict[tuple[str, int], MemoryLog] = {}
        self.writes_at_once = writes_at_once
        self._confirmed: Callable[[str, int], None] = lambda topic, partition: None
        self._space_freed: Callable[[], None] = lambda: None
        self.free_bytes: float = math.inf
        self.cursors: dict[tuple[str, int], bool] = {}

    def watch(self, confirmed: Callable[[str, int], None], space_freed: Callable[[], None]) -> None:
        self._confirmed, self._space_freed = confirmed, space_freed

    def has_space(self, size: int) -> bool:
        return size <= self.free_bytes

    def check_largest_batch(self, size: int) -> None:
        """Any size is accepted."""

    def cursor_changed(self, topic: str, partition: int, exists: bool) -> None:
        self.cursors[topic, partition] = exists

    def readings(self) -> Iterable[MetricReading]:
        return readings("memory_storage", MemoryCounters(len(self.logs)))

    def free(self, free_bytes: float = math.inf) -> None:
        """Set the free bytes and wake producers, as a write cache does after a flush."""
        self.free_bytes = free_bytes
        self._space_freed()

    def partitions(self) -> list[str]:
        return []

    def orphaned(self, topics: Mapping[str, int]) -> list[str]:
        return [f"{topic}-{index}" for topic, index in self.logs if index >= topics.get(topic, 0)]

    def recover(self, topics: Mapping[str, int]) -> None:
        """Recover nothing."""

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> MemoryLog:
        log = self.logs.get((topic, partition))
        if log is None:
            return self.create(topic, partition, settings)
        for header, batch in log.batches:
            recovered(header, batch if header.is_control else b"")
        return log

    def create(self, topic: str, partition: int, settings: TopicSettings) -> MemoryLog:
        self.logs[topic, partition] = MemoryLog(
            settings,
            self._on_available,
            confirms_at_once=self.confirms_at_once,
            writes_at_once=self.writes_at_once,
        )
        return self.logs[topic, partition]

    def delete(self, partitions: Collection[tuple[str, int]]) -> None:
        for partition in partitions:
            del self.logs[partition]

    def close(self) -> bool:
        self.logs.clear()
        return True

    def confirm_all(self) -> None:
        """Confirm all batches, as a journal does after a sync."""
        for place, log in self.logs.items():
            log.confirmed = len(log.batches)
            self._confirmed(*place)

    def write_all(self) -> None:
        """Note all batches as written, as a journal does before a sync."""
        for place, log in self.logs.items():
            log.written = len(log.batches)
            self._confirmed(*place)

    def fail(self) -> None:
        """Fail all logs, as a journal does after a disk error."""
        for place, log in self.logs.items():
            log.failed = True
            self._confirmed(*place)


class MemoryLog:
    """Each batch with its header; the first `confirmed` of them may be read."""

    def __init__(
        self,
        settings: TopicSettings,
        on_available: Callable[[int], None],
        *,
        confirms_at_once: bool,
        writes_at_once: bool,
    ) -> None:
        self.settings = settings
        self._on_available = on_available
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.confirmed = 0
        self.written = 0
        self.failed = False
        self.confirms_at_once = confirms_at_once
        self._written_at_once = writes_at_once
        self._begin = 0

    @property
    def start_offset(self) -> int:
        return max(self.batches[0][0].base_offset if self.batches else 0, self._begin)

    @property
    def high_watermark(self) -> int:
        return self.batches[self.confirmed - 1][0].last_offset + 1 if self.confirmed else self.start_offset

    @property
    def _end(self) -> int:
        return self.batches[-1][0].last_offset + 1 if self.batches else self._begin

    @property
    def _readable(self) -> list[tuple[BatchHeader, bytes]]:
        return self.batches[: self.confirmed]

    def admit(self, batch: memoryview, header: BatchHeader) -> int:
        if self.failed:
            raise self._failure()
        base_offset = self._end
        stored = bytearray(batch)
        assign_base_offset(memoryview(stored), base_offset, LEADER_EPOCH)
        self.batches.append((header._replace(base_offset=base_offset), bytes(stored)))
        if self.confirms_at_once:
            self.confirmed = len(self.batches)
        return base_offset

    def is_written(self, offset: int) -> bool:
        written = len(self.batches) if self._written_at_once else max(self.written, self.confirmed)
        if any(header.base_offset <= offset <= header.last_offset for header, _ in self.batches[:written]):
            return True
        return self.is_confirmed(offset)

    def is_confirmed(self, offset: int) -> bool:
        if offset >= self.high_watermark and self.failed:
            raise self._failure()
        return offset < self.high_watermark

    def _failure(self) -> BrokerError:
        return BrokerError("the journal failed", code=Code.KAFKA_STORAGE_ERROR)

    def check_offset(self, offset: int) -> None:
        if self.failed and self.high_watermark < offset <= self._end:
            raise self._failure()
        if not self.start_offset <= offset <= self._end:
            raise BrokerError(f"offset {offset} is outside", code=Code.OFFSET_OUT_OF_RANGE)

    def _from(self, offset: int, up_to: int | None) -> list[tuple[BatchHeader, bytes]]:
        end = self._end if up_to is None else up_to
        return [each for each in self._readable if offset <= each[0].last_offset < end]

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, up_to: int | None = None) -> bytes:
        self.check_offset(offset)
        found = b""
        for _, batch in self._from(offset, up_to):
            if len(found) + len(batch) > max_bytes and (found or not at_least_one):
                break
            found += batch
        return found

    def offset_upper_bound(self, offset: int, size: int) -> int:
        for header, batch in self._from(offset, None):
            if size <= 0:
                return header.base_offset
            size -= len(batch)
        return self.high_watermark

    def available(self, offset: int, at_most: int, *, up_to: int | None = None) -> int:
        self._on_available(at_most)
        return min(sum(len(batch) for _, batch in self._from(offset, up_to)), max(at_most, 0))

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        found = (header for header, _ in self._readable if header.max_timestamp >= timestamp)
        start = self.start_offset
        return next((TimestampOffset(each.max_timestamp, max(each.base_offset, start)) for each in found), None)

    def latest_timestamp(self) -> TimestampOffset | None:
        newest = max((header for header, _ in self._readable), key=lambda header: header.max_timestamp, default=None)
        return TimestampOffset(newest.max_timestamp, newest.last_offset) if newest else None

    def delete_old(self, now_ms: int) -> None:
        """Drop old batches: this log deletes single batches."""
        while self.confirmed and self._is_old(now_ms):
            self._begin = max(self._begin, self.batches[0][0].last_offset + 1)
            self._drop_first()

    def _is_old(self, now_ms: int) -> bool:
        kept = self.settings
        left = sum(len(batch) for _, batch in self.batches[1:])
        too_many = kept.retention_bytes != UNLIMITED and left >= kept.retention_bytes
        return too_many or (
            kept.retention_ms != UNLIMITED and now_ms - self.batches[0][0].max_timestamp > kept.retention_ms
        )

    def delete_before(self, offset: int) -> None:
        self._begin = max(self._begin, offset)
        while self.confirmed and self.batches[0][0].last_offset < self._begin:
            self._drop_first()

    def _drop_first(self) -> None:
        self.batches.pop(0)
        self.confirmed -= 1
        self.written = max(self.written - 1, 0)

    @property
    def rewritable_end(self) -> int:
        """The base offset of the last readable batch, which is not rewritten."""
        return self._readable[-1][0].base_offset if self._readable else self.start_offset

    def rewrite(self, end: int) -> MemoryRewriting:
        return MemoryRewriting(self, end)

    def close(self, *, discard: bool = False) -> None:
        """Do nothing: no batch is kept."""


class MemoryRewriting:
    """New batches for those of a log before an offset. Each call of `add` and `commit` is refused once, as by a busy engine."""

    def __init__(self, log: MemoryLog, end: int) -> None:
        self._log, self._end = log, end
        self._batches: list[tuple[BatchHeader, bytes]] = []
        self._is_busy = False

    def _busy(self) -> bool:
        self._is_busy = not self._is_busy
        return self._is_busy

    def add(self, batch: bytes) -> bool:
        if self._busy():
            return False
        self._batches.append((read_header(batch), batch))
        return True

    def commit(self) -> bool:
        if self._busy():
            return False
        log = self._log
        count = sum(header.last_offset < self._end for header, _ in log.batches)
        log.batches[:count] = self._batches
        log.confirmed += len(self._batches) - count
        log.written = max(log.written + len(self._batches) - count, 0)
        return True

    def abort(self) -> None:
        self._batches = []


AN_ENGINE: OpenStorage = MemoryStorage
"""The same, as the broker sees it: mypy compares it here with `Storage`, and its logs with `Log`."""
