"""One pass of compaction over a log, in small steps, between which the broker's one thread serves clients."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

from spark_producer.broker.log.compaction.retention import AbortedBatches, CompactionRetention
from spark_producer.broker.log.compaction.rewriting import MAX_GAP, rows_of
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.storage.base import Rewriting
from spark_producer.broker.storage.empty_batch import empty_batch
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import BatchHeader, batches, read_header

STEP_BYTES: Final = 256 * 1024
"""Number of bytes of a log that one step reads: a few milliseconds of work."""

MAX_MAP_BYTES: Final = 64 * 1024 * 1024
"""Maximum memory in bytes for the keys of a pass (Kafka's `log.cleaner.dedupe.buffer.size` is 128 MiB of hashes). A pass that
needs more stops there, and the next one continues."""

KEY_OVERHEAD: Final = 120
"""Bytes that a key takes besides its own: a dict entry and two objects."""

logger = escaping_logger(__name__)


@dataclass
class CompactionState:
    """The progress of the compaction of a log since the broker's start.

    clean_until: the offset before which each key occurs once. It is not stored; after a start the first pass finds it.
    next_horizon: when the next tombstones or markers can be removed, in milliseconds since 1970; None if there are none.
    """

    clean_until: int = 0
    next_horizon: int | None = None


@dataclass
class _Output:
    """The batches that a pass writes: the remaining ones, and an empty batch for each gap between them."""

    rewriting: Rewriting
    first_free: int = -1
    last_free: int = -1
    end: int = -1
    changed: bool = False
    waiting: list[bytes] = field(default_factory=list)

    def add(self, header: BatchHeader, left: bytes | None, old: memoryview) -> None:
        """Add the remainder of the batch with `header`; None if nothing remains."""
        self.end = header.last_offset + 1
        if left is None:
            if self.first_free >= 0 and header.last_offset - self.first_free > MAX_GAP:
                self._fill()
            if self.first_free < 0:
                self.first_free = header.base_offset
            # a lone empty batch stays as it is
            self.changed = self.changed or header.records_count > 0 or self.first_free != header.base_offset
            self.last_free = header.last_offset
            return
        self._fill()
        self.changed = self.changed or left != old
        self.waiting.append(left)

    def _fill(self) -> None:
        if self.first_free >= 0:
            self.waiting.append(empty_batch(self.first_free, self.last_free))
            self.first_free = -1

    def finish(self) -> None:
        """Add the last empty batch, if the log ends with a gap."""
        self._fill()


def compact(
    partition: Partition,
    state: CompactionState,
    now_ms: int,
    *,
    name: str = "a log",
    max_map_bytes: int = MAX_MAP_BYTES,
) -> Generator[bool, None, None]:
    """Compact a log, which messages call `name`. Each step yields whether to wait for the engine. Only the last step changes
    anything.

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR.
        CorruptRecord: a batch cannot be read; nothing has changed.
    """
    log, settings = partition.log, partition.settings
    start, end = log.start_offset, log.rewritable_end
    limit = min(end, partition.last_stable_offset)
    if limit <= start:
        return
    aborted = AbortedBatches(partition.aborted_transactions(start, end))
    latest: dict[bytes, int] = {}
    newest_ms = now_ms - settings.min_compaction_lag_ms if settings.min_compaction_lag_ms else 2**63
    first_dirty = max(state.clean_until, start)
    clean_end = yield from _last_offsets(partition, first_dirty, limit, newest_ms, aborted, latest, max_map_bytes)
    retention = CompactionRetention(
        latest, clean_end, aborted, partition.remembered_offsets(), now_ms, settings.delete_retention_ms
    )
    rewriting, is_done = log.rewrite(end), False
    try:
        output = _Output(rewriting)
        for chunk in _chunks(partition, start, end):
            for header, batch in batches(chunk):
                output.add(header, retention.retained(header, batch), batch)
            yield from _hand_over(output)
            if log.start_offset != start or not partition.settings.compacts:
                return  # records were deleted or the policy has changed meanwhile: the next pass starts again
        output.finish()
        yield from _hand_over(output)
        if output.end != end:
            raise CorruptRecord(f"the log ends at offset {output.end}, expected {end}")
        if output.changed:
            while not rewriting.commit():
                yield True
            is_done = True
    finally:
        if not is_done:
            rewriting.abort()
    state.clean_until, state.next_horizon = clean_end, retention.next_horizon
    partition.forget_aborted(retention.dropped_markers)
    if retention.without_key:
        logger.warning(
            "compaction removed %d records without a key from %s, offsets %d to %d: a compacted topic cannot have them",
            *(retention.without_key, name, start, end - 1),
        )


def _hand_over(output: _Output) -> Generator[bool, None, None]:
    for batch in output.waiting:
        while not output.rewriting.add(batch):
            yield True
    output.waiting = []
    yield False


def _chunks(partition: Partition, start: int, end: int) -> Iterator[bytes]:
    """Yield the batches of a log from one offset to another, some at a time."""
    offset = start
    while offset < end:
        chunk = partition.log.read(offset, STEP_BYTES, up_to=end)
        if not chunk:
            raise CorruptRecord(f"the log has no batch at offset {offset}")
        yield chunk
        *_, (last, _) = batches(chunk)
        offset = last.last_offset + 1


def _last_offsets(
    partition: Partition,
    start: int,
    limit: int,
    newest_ms: int,
    aborted: AbortedBatches,
    latest: dict[bytes, int],
    max_bytes: int,
) -> Generator[bool, None, int]:
    """Store the last offset of each key from `start` on in `latest`; return the offset before which all keys are known.

    It ends at `limit`, at the first batch with a record newer than `newest_ms`, or where the keys take too much memory.
    """
    size, offset = 0, start
    while offset < limit:
        chunk = partition.log.read(offset, STEP_BYTES, up_to=limit)
        if not chunk:  # the limit lies within a batch
            return offset
        for header, batch in batches(chunk):
            if header.max_timestamp > newest_ms or (size > max_bytes and latest):
                return header.base_offset
            if header.records_count and not header.is_control and not aborted.has(header):
                for row in rows_of(batch):
                    if row.key is not None:
                        if row.key not in latest:
                            size += len(row.key) + KEY_OVERHEAD
                        latest[row.key] = row.offset
            offset = header.last_offset + 1
        yield False
    return offset


def dirty_ratio(partition: Partition, state: CompactionState) -> float:
    """Return the fraction, by bytes, of the compactable log that is not compacted yet; 0 if nothing is compactable.

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR.
    """
    log = partition.log
    end = min(log.rewritable_end, partition.last_stable_offset)
    start = log.start_offset
    clean_until = min(max(state.clean_until, start), end)
    dirty = log.available(clean_until, 2**62, up_to=end)
    clean = log.available(start, 2**62, up_to=clean_until)
    return dirty / (dirty + clean) if dirty else 0.0


def is_overdue(partition: Partition, state: CompactionState, now_ms: int) -> bool:
    """Return whether a log must be compacted whatever its ratio is: its oldest uncompacted record exceeds
    `max.compaction.lag.ms`, or the delete horizon of a tombstone or marker has passed.

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR.
    """
    if state.next_horizon is not None and state.next_horizon <= now_ms:
        return True
    log = partition.log
    first = max(state.clean_until, log.start_offset)
    if first >= min(log.rewritable_end, partition.last_stable_offset):
        return False
    oldest = read_header(log.read(first, 0)).max_timestamp
    return 0 <= oldest < now_ms - partition.settings.max_compaction_lag_ms
