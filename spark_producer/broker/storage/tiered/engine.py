"""The assembly of a tiered engine from its parts, its start and its stop."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_producer.broker.counters import MetricReading
from spark_producer.broker.storage.disk import DISK_FULL_ERRNOS
from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.catalog import Catalog
from spark_producer.broker.storage.tiered.counters import TierCounters
from spark_producer.broker.storage.tiered.cursors import Cursors
from spark_producer.broker.storage.tiered.directories import (
    check_new_engine,
    engine_directories,
    log_shared_devices,
    prepare_directories,
)
from spark_producer.broker.storage.tiered.flush import Flush, FlushTargets
from spark_producer.broker.storage.tiered.flusher import Flusher
from spark_producer.broker.storage.tiered.journal import (
    MIN_ALIGNMENT,
    Journal,
    LastMark,
    Mark,
    force_again,
    replay,
)
from spark_producer.broker.storage.tiered.ledger_directories import open_ledgers
from spark_producer.broker.storage.tiered.log_state import LogState
from spark_producer.broker.storage.tiered.options import TieredOptions
from spark_producer.broker.storage.tiered.read_ahead import ReadAheadLimits
from spark_producer.broker.storage.tiered.read_cache import ReadCache
from spark_producer.broker.storage.tiered.read_path import ReadPath
from spark_producer.broker.storage.tiered.recovery import Recovery
from spark_producer.broker.storage.tiered.tail_cache import TailCache
from spark_producer.broker.storage.tiered.traces import traces
from spark_producer.broker.storage.tiered.write_cache import WriteCache
from spark_producer.broker.storage.tiered.write_path import WritePath
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord

DISK_TIMEOUT_S: Final = 30.0
"""Maximum time in seconds that the stop of an engine waits for a disk that does not respond: once for the journal when the logs
are closed, and once for all other parts. So the broker logs the state of its data before systemd kills it, after 90 s by default
(DefaultTimeoutStopSec). On a working disk a flush of the write cache takes about a second."""

logger = escaping_logger(__name__)


class Engine:
    """All parts between the logs of `TieredStorage` and the disk. `TieredStorage` documents the errors."""

    def __init__(
        self, directory: Path, files: FileOps, options: TieredOptions, *, sync: bool, clock_ms: Callable[[], int]
    ) -> None:
        self.directory = directory
        self.counters = TierCounters()
        self._files, self._options, self.sync = files, options, sync
        self._disk_timed_out = False
        self.write_cache: WriteCache[Mark | None] = (
            WriteCache(  # first, since the system may lack the memory: no file is created before
                options.write_cache_bytes // 2, self._mark, swapped=self._swapped, counters=self.counters.write_cache
            )
        )
        self._read_cache = ReadCache(options.read_cache_bytes, self.counters.read_cache)
        check_new_engine(files, directory, options)
        files.make_directory(directory)
        self.catalog = Catalog(files, directory)
        self._check_traces()
        self.directories = prepare_directories(files, directory, options, self.catalog)
        if sync:
            log_shared_devices(files, directory, self.directories, are_chosen=options.chooses_directories)
        self.ledgers = open_ledgers(files, self.directories.ledgers, self.catalog, options)
        self.last_mark = LastMark(self.directories.ledgers, files, skip_damage=options.skip_damage)
        self.read_path = self._make_read_path()
        recovery = Recovery(self.catalog, self.ledgers, options.roll, clock_ms, skip_damage=options.skip_damage)
        self.write_path = WritePath(
            write_cache=self.write_cache,
            catalog=self.catalog,
            states=recovery.states,
            sync=sync,
            roll=options.roll,
            clock_ms=clock_ms,
            admitted=self.read_path.admitted,
        )
        recovery.read_index()
        records = replay(
            *(self.directories.journal, files, self.last_mark.latest),
            newest=self.last_mark.newest,
            skip_damage=options.skip_damage,
        )
        recovery.replay(records, self.write_cache, self._flush_replayed)
        self.journal = self.write_path.journal = self._open_journal()
        if recovery.journal_only:
            kept = self.journal.keep_files()
            for name, count in recovery.journal_only.items():
                logger.error(
                    "partition %s is damaged, and %d of its batches are kept in the journal: %s", name, count, kept
                )
        self.flusher = self._make_flusher()
        self._finish_recovery()

    def start(self) -> None:
        """Start the flusher's thread. Until then nothing else changes the logs."""
        self.flusher.start()

    def _check_traces(self) -> None:
        """Check that a missing catalog never existed."""
        try:
            self.catalog.check_new(traces(self._files, *engine_directories(self.directory, self._options)))
        except CorruptRecord as error:
            if not self._options.skip_damage:
                raise
            logger.error("%s. All records are kept, and their topics start empty", error)

    def _mark(self) -> Mark | None:
        journal = self.write_path.journal
        return None if journal is None else journal.mark()

    def _swapped(self) -> None:
        if self.write_path.journal is not None:
            self.flusher.wake()

    def _make_read_path(self) -> ReadPath:
        options, counters, clock = self._options, self.counters, time.monotonic
        return ReadPath(
            tail=TailCache(options.tail_cache_bytes, counters.tail, clock, ttl_ms=options.tail_ttl_ms),
            cursors=Cursors(counters.cursor, clock),
            write_cache=self.write_cache,
            read_cache=self._read_cache,
            index=self.ledgers,
            entry_logs=self.ledgers,
            limits=ReadAheadLimits(options.read_ahead_entries, options.read_cache_bytes // 2),
            counters=counters,
            clock=clock,
        )

    def _open_journal(self) -> Journal:
        settings = self._options.journal
        if not self.sync:  # each record is a group, and whole pages have no benefit without a force
            settings = replace(settings, alignment=MIN_ALIGNMENT)
        return Journal(
            self.directories.journal,
            self._files,
            settings,
            sync=self.sync,
            written=self.write_path.written,
            forced=self.write_path.forced,
            failed=self.write_path.failed,
            begun=self.last_mark.note_file,
            counters=self.counters.journal,
        )

    def _targets(self, journal: Journal | None) -> FlushTargets:
        return FlushTargets(
            self.write_cache,
            self.ledgers,
            self.catalog,
            self.last_mark,
            journal,
            sync=self.sync,
            journal_timeout_s=self._options.journal_timeout_s,
            counters=self.counters.flush,
        )

    def _make_flusher(self) -> Flusher:
        return Flusher(
            self._targets(self.journal),
            self._options,
            flushes_failed=self.write_path.flushes_failed,
            cleared=self.write_path.space_freed,
            collect_garbage=self.ledgers.collect,
            expire=self.read_path.expire,
            counters=self.counters.flush,
        )

    def _flush_replayed(self) -> None:
        """Flush the write cache during a replay. The mark does not move, so the replay can be repeated."""
        self.write_cache.swap()
        waiting = self.write_cache.flushing
        if waiting is not None:
            Flush(*waiting, self._targets(None)).run()

    def _finish_recovery(self) -> None:
        """Flush the replayed batches, so that they are on the disk before they can be read, and drop the old journal files.

        Without `sync`, an error of the disk does not prevent reads: the flush thread retries. With it, only batches that are
        certainly on the disk may be read.
        """
        try:
            self.flusher.flush_now()
            self.catalog.store()
            for state in self.write_path.states.values():
                state.is_in_catalog = True  # so that their first batches do not wait for the disk of the catalog
            mark = self.journal.mark()
            if mark is not None:
                self.last_mark.advance(mark)
                self.journal.drop_before(mark)
        except OSError as error:
            if self.sync and not self.write_cache.is_empty:
                try:
                    self._force_replayed(error)
                except OSError:
                    self.close(flush=False)
                    raise
            logger.warning("%s: the replayed batches could not be flushed: %s", self.directory, error)

    def _force_replayed(self, error: OSError) -> None:
        """Force the replayed batches in the journal, if the disk is full, since that needs no space.

        Raises:
            OSError: the disk refused, or `error` is not that of a full disk.
        """
        if error.errno not in DISK_FULL_ERRNOS:
            raise error
        force_again(self.directories.journal, self._files, self.last_mark.latest)

    def find(self, topic: str, partition: int) -> LogState | None:
        """Return the state of the log of a partition, None if it has none."""
        entry = self.catalog.find(topic, partition)
        return None if entry is None else self.write_path.states[entry.log_id]

    def add(self, topic: str, partition: int) -> LogState:
        """Create a log for a partition."""
        state = LogState.of(self.catalog.add(topic, partition), 0, 0)
        self.write_path.states[state.log_id] = state
        return state

    def remove(self, state: LogState) -> None:
        """Delete a log. The catalog is not stored yet."""
        self.catalog.remove(state.log_id)
        self.write_path.states.pop(state.log_id, None)
        self.write_path.limit.forget(state.topic)
        self.write_cache.forget(state.log_id)
        ledger = self.ledgers.of(state.log_id)
        ledger.index.delete_log(state.log_id)
        if state.has_records:
            ledger.collector.request()
        self.read_path.forget(state.log_id)
        self.flusher.wake()

    def set_aside(self, state: LogState) -> None:
        """Set the records of a log aside. Its partition has no log afterwards."""
        self.catalog.set_aside(state.log_id)

    def states_with_records(self) -> list[LogState]:
        """Return the states of all logs with records, except for those that were set aside."""
        found = [self.write_path.states[entry.log_id] for entry in self.catalog.entries() if not entry.is_lost]
        return [state for state in found if state.has_records]

    def readings(self) -> Iterator[MetricReading]:
        """Return all counters of all tiers. Any thread may call this."""
        counters, journal = self.counters, self.journal
        counters.journal.queue = counters.journal.added - journal.written_ticket
        counters.journal.memory = journal.waiting_bytes
        counters.index.rows = self.ledgers.row_count
        counters.index.block_cache_bytes = sum(ledger.index.memory_bytes for ledger in self.ledgers)
        return counters.readings()

    def force(self) -> None:
        """Force all admitted batches to the disk.

        Raises:
            OSError: the disk did not respond in time.
            BrokerError: the journal has failed.
        """
        if self.journal.full:
            raise OSError(errno.ENOSPC, self.journal.full, str(self.directories.journal))
        ticket = self.journal.counters.added
        timeout = (
            0.0 if self._disk_timed_out else DISK_TIMEOUT_S
        )  # else each of the logs would wait when they are closed one after another
        end = time.monotonic() + timeout
        written = self.journal.wait_written(ticket, timeout)
        left = max(0.0, end - time.monotonic())
        if not written or (self.journal.forced_ticket < ticket and not self.journal.force_now(left)):
            self._disk_timed_out = True
            raise TimeoutError(f"the disk of {self.directories.journal} has not responded for {DISK_TIMEOUT_S} s")

    def close(self, *, flush: bool) -> bool:
        """Stop all threads and close all files, after a flush of the write cache if `flush` is true.

        An error of the disk is logged: all confirmed batches are in the journal. If the disk does not respond within
        `DISK_TIMEOUT_S`, that is logged too, and False is returned: a thread still waits for it, so no other process may use the
        directory until this one has ended.
        """
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self._close(flush=flush)
            except BaseException as error:
                failed.append(error)

        closing = threading.Thread(target=work, name="close", daemon=True)
        closing.start()
        closing.join(DISK_TIMEOUT_S)
        if closing.is_alive():
            self._log_unflushed()
            return False
        if failed:
            raise failed[0]
        return True

    def _log_unflushed(self) -> None:
        cache, journal = self.counters.write_cache, self.journal
        logger.error(
            "%s: the disk has not responded for %s s, so the broker stops without it. %d batches (%s bytes) are not flushed; "
            "those of them that were confirmed are in the journal, which the next start reads. %d batches are not in the "
            "journal, and were not confirmed. The directory stays locked until this process has ended",
            *(self.directory, DISK_TIMEOUT_S, cache.entries, f"{cache.bytes:,}"),
            self._unconfirmed(journal),
        )

    def _unconfirmed(self, journal: Journal) -> int:
        return journal.counters.added - (journal.forced_ticket if self.sync else journal.written_ticket)

    def _close(self, *, flush: bool) -> None:
        self.flusher.close()
        with contextlib.ExitStack() as stack:
            stack.callback(self.ledgers.close)
            stack.callback(self._read_cache.close)
            try:
                if flush and self.write_path.failure is None:
                    self.flusher.flush_now()
                self.catalog.store()
            except (OSError, BrokerError) as error:
                logger.warning("%s: the write cache was not flushed: %s", self.directory, error)
            try:
                self.journal.close()
            except OSError as error:
                logger.error("%s: the journal could not be closed: %s", self.directory, error)
