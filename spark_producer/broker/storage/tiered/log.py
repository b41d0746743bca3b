"""The log of one partition in the tiered engine: its offsets, reads, and retention."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.base import TimestampOffset
from spark_producer.broker.storage.disk import storage_errors
from spark_producer.broker.storage.tiered.catalog import Catalog
from spark_producer.broker.storage.tiered.interfaces import EntryMissing
from spark_producer.broker.storage.tiered.journal import Mark
from spark_producer.broker.storage.tiered.location_index import IndexedBatch, LocationIndex
from spark_producer.broker.storage.tiered.log_state import LogState
from spark_producer.broker.storage.tiered.operations import LogOperations, LogRewriting
from spark_producer.broker.storage.tiered.read_path import ReadPath
from spark_producer.broker.storage.tiered.retention import count_expired
from spark_producer.broker.storage.tiered.write_cache import WriteCache
from spark_producer.broker.storage.tiered.write_cache_half import CachedBatch
from spark_producer.broker.storage.tiered.write_path import WritePath
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.record.batch_v2 import NO_TIMESTAMP, BatchHeader

logger = escaping_logger(__name__)


class TieredLog:
    """A `storage.base.Log` whose batches are in the tiers of the engine. `settings` may be replaced at any time.

    `closed` is called by `close`, with `discard`.
    """

    def __init__(
        self,
        state: LogState,
        settings: TopicSettings,
        *,
        write_path: WritePath,
        read_path: ReadPath,
        write_cache: WriteCache[Mark | None],
        index: LocationIndex,
        catalog: Catalog,
        closed: Callable[[bool], None],
        operations: LogOperations,
    ) -> None:
        self._state = state
        self._operations = operations
        self._write_path, self._read_path = write_path, read_path
        self.settings = settings
        self._write_cache, self._index, self._catalog = write_cache, index, catalog
        self._closed = closed

    @property
    def settings(self) -> TopicSettings:
        """The settings of the topic. A warning is logged if `max.message.bytes` exceeds half of the write cache."""
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._write_path.limit.warn_if_exceeded(self._state.topic, settings)

    @property
    def start_offset(self) -> int:
        """The log start offset."""
        return self._state.start_offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last confirmed batch."""
        return max(self._state.confirmed_end, self._state.start_offset)

    def admit(self, batch: memoryview, header: BatchHeader) -> int:
        """See `Log.admit`. If there is no space, the error is NOT_ENOUGH_REPLICAS, which clients retry; for a batch larger than
        half of the write cache it is MESSAGE_TOO_LARGE."""
        return self._write_path.admit(self._state, self.settings, batch, header)

    def is_confirmed(self, offset: int) -> bool:
        """See `Log.is_confirmed`."""
        if offset < self.high_watermark:
            return True
        self._write_path.check_writable()
        return False

    def is_written(self, offset: int) -> bool:
        """See `Log.is_written`: whether the journal has written the batch, but not necessarily forced it.

        Raises:
            BrokerError: as `is_confirmed`.
        """
        return offset < self._state.written_end or self.is_confirmed(offset)

    def check_offset(self, offset: int) -> None:
        """See `Log.check_offset`. Offsets that are admitted and not confirmed are in range."""
        end = self._state.end_offset
        if self.high_watermark < offset <= end:
            self._write_path.check_writable()
        if not self.start_offset <= offset <= end:
            raise BrokerError(
                f"offset {offset} is outside {self.start_offset} to {self.high_watermark} of {self._state.name}",
                code=Code.OFFSET_OUT_OF_RANGE,
            )

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, up_to: int | None = None) -> bytes:
        """See `Log.read`."""
        self.check_offset(offset)
        with self._read_errors():
            return self._read_path.read(
                self._state.log_id, offset, self._end(up_to), max_bytes, at_least_one=at_least_one
            )

    def _end(self, up_to: int | None) -> int:
        return self.high_watermark if up_to is None else min(up_to, self.high_watermark)

    def offset_upper_bound(self, offset: int, size: int) -> int:
        """See `Log.offset_upper_bound`."""
        position = self._position(offset) + size
        log_id = self._state.log_id
        found = self._write_cache.first_at_or_after_position(log_id, position)
        indexed = self._index.first_at_or_after_position(
            log_id, position
        )  # after the write cache: see `WriteCache.clear`
        return min((each.base_offset for each in (found, indexed) if each is not None), default=self._state.end_offset)

    def available(self, offset: int, at_most: int, *, up_to: int | None = None) -> int:
        """See `Log.available`."""
        end = self._end(up_to)
        offset = max(offset, self.start_offset)
        if offset >= end or at_most <= 0:
            if offset >= self.high_watermark:
                self._read_path.reader_waits(self._state.log_id, offset)
            return 0
        return min(self._position(end) - self._position(offset), at_most)

    def _position(self, offset: int) -> int:
        """Return the position in the log of the batch that holds `offset`; the end of the log if there is none."""
        if offset >= self._state.end_offset:
            return self._state.end_position
        return self._known(offset).position

    def _known(self, offset: int) -> CachedBatch | IndexedBatch:
        """Return the metadata of the batch that holds `offset`. The write cache is searched first: see `WriteCache.clear`."""
        log_id = self._state.log_id
        found = self._write_cache.cached_batch(log_id, offset) or self._index.indexed(log_id, offset)
        if found is None:
            raise BrokerError(
                f"the index of {self._state.name} has lost offset {offset}", code=Code.KAFKA_STORAGE_ERROR
            )
        return found

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """See `Log.offset_for_timestamp`."""
        found = self._first_at_or_after(timestamp)
        if found is None:
            return None
        return TimestampOffset(found.max_timestamp, max(found.base_offset, self._state.start_offset))

    def _first_at_or_after(self, timestamp: int) -> CachedBatch | IndexedBatch | None:
        state = self._state
        begin, end = state.start_offset, self.high_watermark
        cached = self._write_cache.first(
            state.log_id,
            lambda batch: batch.max_timestamp >= timestamp and begin <= batch.base_offset < end,
        )
        self._index.delete_before(state.log_id, begin)  # a flush may have added batches that were already deleted
        indexed = self._index.first_at_or_after(state.log_id, timestamp)
        found = [each for each in (cached, indexed) if each is not None and each.base_offset < end]
        return min(found, key=lambda each: each.base_offset, default=None)

    def latest_timestamp(self) -> TimestampOffset | None:
        """See `Log.latest_timestamp`."""
        state, end = self._state, self.high_watermark
        cached = self._write_cache.latest_timestamp(state.log_id, state.start_offset, end)
        self._index.delete_before(state.log_id, state.start_offset)
        indexed = self._index.latest_timestamp(state.log_id)
        latest = max((each for each in (cached, indexed) if each is not None), default=NO_TIMESTAMP)
        found = None if latest == NO_TIMESTAMP else self._first_at_or_after(latest)
        return None if found is None else TimestampOffset(found.max_timestamp, found.end_offset - 1)

    def delete_old(self, now_ms: int) -> None:
        """See `Log.delete_old`: whole ledgers are deleted, if all of their batches are confirmed."""
        state = self._state
        if self._write_path.failure is not None:
            return
        count = count_expired(state.ledgers, self.settings, now_ms, self.high_watermark)
        if not count:
            return
        start = state.ledgers[count - 1].end_offset
        with storage_errors(self._catalog.path):
            self._catalog.set_start(state.log_id, start)
            del state.ledgers[:count]
            state.start_offset = start
            self._index.delete_before(state.log_id, start)
            self._catalog.store()
        state.is_in_catalog = True
        logger.info("%s: deleted %d ledgers; the log start offset is %d", state.name, count, start)

    def delete_before(self, offset: int) -> None:
        """See `Log.delete_before`."""
        self._operations.delete_before(self._state, offset)

    @property
    def rewritable_end(self) -> int:
        """See `Log.rewritable_end`."""
        return self._operations.rewritable_end(self._state)

    def rewrite(self, end: int) -> LogRewriting:
        """See `Log.rewrite`."""
        return self._operations.rewrite(self._state, end)

    def close(self, *, discard: bool = False) -> None:
        """See `Log.close`."""
        self._closed(discard)

    @contextlib.contextmanager
    def _read_errors(self) -> Iterator[None]:
        """Raise KAFKA_STORAGE_ERROR for every read error inside the `with` block."""
        try:
            yield
        except (CorruptRecord, EntryMissing) as error:
            advice = "Restore the file from a backup; or start once with skip_damage (pyproducer broker --skip-damage)"
            raise BrokerError(
                f"{self._state.name} cannot be read: {error}. {advice}", code=Code.KAFKA_STORAGE_ERROR
            ) from error
        except OSError as error:
            raise BrokerError(f"{self._state.name} cannot be read: {error}", code=Code.KAFKA_STORAGE_ERROR) from error
