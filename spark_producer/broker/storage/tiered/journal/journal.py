"""The journal: the journal thread writes groups of records, and the force thread forces them to the disk.

Without `sync` the thread that appends a record also writes it, as long as the disk is idle. Records that are appended while a
file is forced, or while the next one is created, wait in the queue for the journal thread.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.disk import DISK_FULL_ERRNOS
from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.journal.adaptive_grouping import AdaptiveGrouping
from spark_producer.broker.storage.tiered.journal.counters import JournalCounters
from spark_producer.broker.storage.tiered.journal.file import JournalFile
from spark_producer.broker.storage.tiered.journal.group_commit import Trigger
from spark_producer.broker.storage.tiered.journal.old_files import OldFiles
from spark_producer.broker.storage.tiered.journal.queue import PendingBytes, RecordGroup, RecordQueue
from spark_producer.broker.storage.tiered.journal.reader import next_id
from spark_producer.broker.storage.tiered.journal.records import JournalRecord, Mark
from spark_producer.broker.storage.tiered.journal.settings import JournalSettings
from spark_producer.broker.storage.tiered.journal.space import SpaceWaiter
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError

MAX_WRITE_WAIT_S: Final = 0.01
"""Maximum time in seconds that `append` without `sync` waits for a record that the journal thread writes, so that the record is
usually written when `append` returns: unnoticeable, and longer than a write to the page cache."""


class _WrittenGroup(NamedTuple):
    """A group that was written and not yet forced: its records, its end in the file, and the time of its write."""

    records: Sequence[JournalRecord]
    end: int
    since: float


class Journal:
    """Writes records in the order of `append` to a new file. `replay` must have read the files of earlier runs.

    One thread may call `append`; any thread may call the methods that do not block. The callbacks are called one at a time, by
    the threads of the journal or, without `sync`, by `append`: `written` with records that were written, and whether it was in
    `append`, before it returned; and `forced` with the same records when they are on the disk; each in the order of
    `append`. `failed` is called once, and no callback after it. Callbacks must not wait for the journal.

    Records are *confirmed* when they are forced. Without `sync` they are confirmed when they are written: they are forced later,
    and `forced` is never called.

    Any error of the disk is fatal, because it is unknown which bytes a failed force has written (see `FileOps.force`). The
    `replay` of the next run finds out which records were stored. A full disk is an exception: the write is retried until there
    is space, and `full` says why records wait. So the constructor succeeds on a full disk, and the file is created later.

    `begun` is called with the id of each new file, before a record is written to it.

    Raises:
        ValueError: `replay` has not completed the last file.
        OSError: the disk refused.
    """

    def __init__(
        self,
        directory: Path,
        files: FileOps,
        settings: JournalSettings,
        *,
        sync: bool,
        written: Callable[[Sequence[JournalRecord], bool], None],
        forced: Callable[[Sequence[JournalRecord]], None],
        failed: Callable[[BaseException], None],
        begun: Callable[[int], None] = lambda _: None,
        counters: JournalCounters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = counters if counters is not None else JournalCounters()
        self._directory, self._files, self._settings, self._sync, self._clock = directory, files, settings, sync, clock
        self._call_written, self._call_forced, self._call_failed, self._call_begun = written, forced, failed, begun
        self._is_closing = False
        self._old_files = OldFiles(directory, files, settings.backups)
        self._file = self._new_file(next_id(directory, files))
        self._mark = Mark(self._file.file_id, self._file.position)
        # Without `sync` records do not share a force, so a record in the queue does not wait for others.
        self._queue = RecordQueue(settings if sync else replace(settings, flush_when_queue_empty=True), clock)
        self._grouping = AdaptiveGrouping(settings)
        self._unconfirmed = PendingBytes()
        # Lock order: `_calling`, which serializes the callbacks, then `_changed`.
        self._calling = threading.Lock()
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._due = threading.Condition(lock)  # only for the force thread, which need not wake for each group
        self._space = SpaceWaiter(
            directory, lambda: self._is_closing or self._failure is not None, self._wait_for_space
        )
        self._to_force: list[_WrittenGroup] = []
        self._written = self._forced = self._force_requested = 0
        self._all_written = self._is_forcing = self._is_late = False
        self._failure: BaseException | None = None
        try:
            self._file.begin()
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            self._space.note(error)
        work = [(self._force_all, "journal-force"), (self._write_all, "journal")]
        self._threads = [threading.Thread(target=self._run, args=[each], name=name, daemon=True) for each, name in work]
        for thread in self._threads:
            thread.start()

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the journal, None if it works."""
        return self._failure

    @property
    def full(self) -> str:
        """Message that says how much disk space is missing; empty while records do not wait for space."""
        return self._space.full

    @property
    def written_ticket(self) -> int:
        """The ticket of the last written record."""
        return self._written

    @property
    def forced_ticket(self) -> int:
        """The ticket of the last forced record."""
        return self._forced

    @property
    def waiting_bytes(self) -> int:
        """The size in bytes of the batches that are not confirmed yet."""
        return self._unconfirmed.total

    def has_memory(self, size: int) -> bool:
        """Return whether a record with a batch of `size` bytes may be appended within `max_memory_bytes`.

        All records that are not confirmed count, so that a hanging disk does not use up the memory. A record that exceeds the
        limit alone may be appended when there is no other.
        """
        waiting = self._unconfirmed.total
        return waiting == 0 or waiting + size <= self._settings.max_memory_bytes

    def append(self, record: JournalRecord) -> int:
        """Append a record, which is then written and forced; return its ticket. Tickets count up from 1.

        Without `sync` the record is usually written when this returns: there is no force that a group would share, and a switch
        to the journal thread would cost more than the write itself. If the write might block (see `_may_write_in_caller`), the
        journal thread does it, and this waits up to `MAX_WRITE_WAIT_S` for it.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the journal has failed.
            MemoryError: the record was not appended; the journal still works.
        """
        self._check()
        size = len(record.batch)
        in_caller = not self._sync and self._may_write_in_caller(size)
        self.counters.added_bytes += size
        self.counters.added += 1  # before the journal thread can write it
        try:
            if in_caller:
                self._write_in_caller(record)
            else:
                self._hand_over(record, size)
        except BaseException:  # such as a MemoryError: the record was not appended
            self.counters.added_bytes -= size
            self.counters.added -= 1
            raise
        if not self._sync and not in_caller:
            self._await_handed_over()
        return self.counters.added

    def _may_write_in_caller(self, size: int) -> bool:
        """Return whether the thread that appends a record may write it, since it must not wait for the disk.

        It may not write if the queue has records; nor if the file is full or needs more space; nor during a force. A disk that
        hangs blocks a force, of which there is one each `unsynced_force_ms`, before it blocks a write: writes go to the page
        cache as long as it has space.
        """
        return self._written == self.counters.added and not self._is_forcing and self._file.has_space(size)

    def _await_handed_over(self) -> None:
        """Wait until the journal thread has written the record, which takes no time on a working disk; but do not wait if the
        previous record was not written in time."""
        if self._is_late and self._written < self.counters.added - 1:
            return
        with contextlib.suppress(MemoryError), self._changed:  # the journal thread has the record, so it is appended
            ticket = self.counters.added
            in_time = self._changed.wait_for(
                lambda: self._written >= ticket or self._failure is not None, MAX_WRITE_WAIT_S
            )
            self._is_late = not in_time

    def _write_in_caller(self, record: JournalRecord) -> None:
        """Write a record in the thread that appends it."""
        begin = self._file.position
        try:
            self._write(RecordGroup([record], Trigger.EMPTY_QUEUE), by_caller=True)
        except BaseException as error:
            if isinstance(error, MemoryError) and self._file.position == begin:
                raise  # bytes that were written are not valid: the next record overwrites them
            if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS and self._file.position == begin:
                self._hand_over(record, len(record.batch))  # the journal thread waits for space
                return
            self._fail(error)
        self._check()

    def _hand_over(self, record: JournalRecord, size: int) -> None:
        self._unconfirmed.add(size)
        try:
            self._queue.put(record)
        except BaseException:
            self._unconfirmed.add(-size)
            raise

    def wait_written(self, ticket: int, timeout: float) -> bool:
        """Wait until the record of a ticket was written, so that its bytes are not needed any more; return whether it was.

        The journal writes the record's group at once, without a wait for more records.

        Args:
            ticket: the result of `append`; 0 for no record.
            timeout: maximum time to wait, in seconds.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the journal has failed.
        """
        if self._written < ticket:
            self._queue.request_group()
        with self._changed:
            self._changed.wait_for(lambda: self._written >= ticket or self._failure is not None, timeout)
        self._check()
        return self._written >= ticket

    def force_now(self, timeout: float) -> bool:
        """Request a force of all written records, and wait for it; return whether it was completed.

        Args:
            timeout: maximum time to wait, in seconds.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the journal has failed.
        """
        with self._changed:
            ticket = self._force_requested = max(self._written, self._force_requested)
            self._due.notify()
            self._changed.wait_for(lambda: self._forced >= ticket or self._failure is not None, timeout)
        self._check()
        return self._forced >= ticket

    def mark(self) -> Mark | None:
        """Return the position before which all records are on the disk. Without `sync`, call `force_now` before.

        Return None while there is no space for the first file of this run.
        """
        return self._mark if self._file.is_begun else None

    def drop_before(self, mark: Mark) -> None:
        """Remove the files that end before `mark`, which must be stored (`LastMark.advance`). See `OldFiles.drop_before`."""
        self._old_files.drop_before(mark)

    def keep_files(self) -> str:
        """Rename the files of earlier runs instead of removing them, once they are not needed; return their new paths."""
        return self._old_files.keep_before(self._file.file_id)

    def close(self, timeout: float = 60) -> None:
        """Write and force all appended records, and end the file. After a failure, only close it.

        Args:
            timeout: maximum time to wait for each thread, in seconds.

        Raises:
            OSError: the disk refused, or did not respond in time; `replay` finds out which records are on the disk.
        """
        had_failed = self._failure is not None
        self._queue.close()
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout)
        if any(thread.is_alive() for thread in self._threads):
            raise TimeoutError(f"the disk of {self._directory} has not responded for {timeout} s")
        if self._failure is None:
            try:
                self._file.end()
            finally:
                self._file.close()
        else:
            self._file.close()
            if not had_failed and isinstance(self._failure, OSError):
                raise self._failure

    def _check(self) -> None:
        if self._failure is not None:
            raise BrokerError(
                f"the journal in {self._directory} has failed: {self._failure}. Restart the broker",
                code=Code.KAFKA_STORAGE_ERROR,
            ) from self._failure

    def _run(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread; if it fails, the journal has failed."""
        try:
            work()
        except BaseException as error:  # any error must stop both threads
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._calling:
            with self._changed:
                first, self._failure = self._failure is None, self._failure or error
                self._changed.notify_all()
                self._due.notify()
            self._queue.cancel()
            if first:
                self._call_failed(error)

    def _write_all(self) -> None:
        """Run the journal thread."""
        self._space.retry_until_free(self._begin_file)
        while (group := self._queue.take()) is not None and self._failure is None:
            for work in (self._begin_file, partial(self._write, group, by_caller=False)):
                if not self._space.retry_until_free(work):
                    raise OSError(errno.ENOSPC, self._space.full)
        with self._changed:
            self._all_written = True
            self._due.notify()

    def _wait_for_space(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or self._failure is not None, seconds)

    def _new_file(self, file_id: int) -> JournalFile:
        return JournalFile(
            self._directory, file_id, self._files, self._settings, sync=self._sync, lock=threading.Lock()
        )

    def _begin_file(self) -> None:
        """Create the file for the next group if needed."""
        if self._failure is None and self._file.is_begun and self._file.is_full:
            self._roll()
        if self._failure is None and not self._file.is_begun:
            self._file.begin()
            self._call_begun(self._file.file_id)

    def _write(self, group: RecordGroup, *, by_caller: bool) -> None:
        """Write a group. `by_caller`: whether this is the thread that appends it; otherwise it is the journal thread."""
        if self._failure is not None:
            return
        done = self._file.write(group.records)
        counters = self.counters
        counters.count_group(group.trigger)
        counters.written_bytes += done.size
        counters.padding_bytes += done.padding
        with self._calling:
            if self._failure is not None:
                return
            if not self._sync and not by_caller:
                self._unconfirmed.take(sum(len(record.batch) for record in group.records))
            self._call_written(group.records, by_caller)
        with self._changed:
            self._written += len(group.records)
            is_first = not self._to_force
            self._to_force.append(_WrittenGroup(group.records, done.end, self._clock()))
            self._changed.notify_all()
            if self._sync or is_first or self._force_requested > self._forced:
                self._due.notify()  # else it already knows the time of the next force

    def _roll(self) -> None:
        """End the file and prepare the next one. The file is forced before, so only the last file can have a torn end."""
        with self._changed:
            self._force_requested = self._written
            self._due.notify()
            self._changed.wait_for(lambda: self._forced >= self._written or self._failure is not None)
            if self._failure is not None:
                return
        self._file.end()
        self._file = self._new_file(self._file.file_id + 1)
        self._mark = Mark(self._file.file_id, self._file.position)
        self.counters.rolls += 1

    def _force_all(self) -> None:
        """Run the force thread."""
        while groups := self._next_to_force():
            began = self._clock()
            self._file.force(groups[-1].end)
            seconds = self._clock() - began
            self.counters.dropped_bytes += self._file.drop_pages()  # before a roll ends the file
            self._file.write_forced_marker()  # before the records are confirmed
            self._is_forcing = False
            self._complete_force(groups, seconds)

    def _next_to_force(self) -> list[_WrittenGroup]:
        """Wait for groups that must be forced; return them, or an empty list after the last force."""
        with self._changed:
            while self._failure is None:
                due = self._seconds_until_due()
                if due is not None and due <= 0:
                    groups, self._to_force, self._is_forcing = self._to_force, [], True
                    return groups
                if self._all_written and not self._to_force:
                    break
                self._due.wait(due)
        return []

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until the next force, None if no record waits for it."""
        if not self._to_force:
            return None
        if self._all_written or self._force_requested > self._forced:
            return 0.0
        if self._sync:
            return self._grouping.seconds_left(self._written - self._forced, self._clock())
        return self._to_force[0].since + self._settings.unsynced_force_ms / 1000 - self._clock()

    def _complete_force(self, groups: Sequence[_WrittenGroup], seconds: float) -> None:
        records = [record for group in groups for record in group.records]
        counters = self.counters
        counters.forces += 1
        counters.force_us += int(seconds * 1_000_000)
        counters.forced_groups += len(groups)
        counters.forced_entries += len(records)
        with self._calling:
            if self._failure is not None:
                return
            if self._sync:
                self._unconfirmed.take(sum(len(record.batch) for record in records))
                self._call_forced(records)
            with self._changed:
                self._mark = Mark(self._file.file_id, groups[-1].end)
                self._forced += len(records)
                self._grouping.forced(len(records), self._written - self._forced, seconds, self._clock())
                self._changed.notify_all()
