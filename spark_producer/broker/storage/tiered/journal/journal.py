"""The journal itself: one thread writes groups of records, and another one forces what was written to the disk.

Where nobody waits for the disk, records are written by those who append them, as long as the disk has nothing else to do: what
comes while a file is forced, or ended and the next one begun, waits in the queue for the journal's thread.
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
from spark_producer.broker.storage.tiered.journal.file_names import ids_in, name_of
from spark_producer.broker.storage.tiered.journal.group_commit import Trigger
from spark_producer.broker.storage.tiered.journal.queue import RecordGroup, RecordQueue
from spark_producer.broker.storage.tiered.journal.reader import next_id
from spark_producer.broker.storage.tiered.journal.records import JournalRecord, Mark
from spark_producer.broker.storage.tiered.journal.settings import JournalSettings
from spark_producer.broker.storage.tiered.journal.space import SpaceWaiter
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError

MAX_WRITE_WAIT_S: Final = 0.01
"""For how long a record that another thread writes is waited for without `sync`, so that it is usually written when `append`
returns: less than people notice, more than a write to the page cache takes."""
KEPT_SUFFIX: Final = ".kept"
"""The suffix of a file that is kept although the journal does not need it."""


class _WrittenGroup(NamedTuple):
    """A group that was written and not yet forced: its records, where it ends, and when it was written."""

    records: Sequence[JournalRecord]
    end: int
    since: float


class Journal:
    """Writes records in the order of `append`, in a new file from `open` on. `replay` must have read the files of earlier lives.

    `append`, `has_memory` and all that returns at once may be called by any thread, `append` by one. The functions are called
    from the journal's threads, or without `sync` by `append`, one at a time: `written` with records that were written, and with
    whether `append` has written them, which has not returned then; and `forced` with the same records once they are on the disk;
    each in the order of `append`. Or `failed`, once, and after it neither of them. They must not wait for the journal.

    Records are *confirmed* when they are forced. Without `sync` they are when they are written: they are forced some time later,
    and `forced` is never called.

    Any error of the disk is fatal, because nobody knows what a force that failed has written (see `FileOps.force`). The next life
    finds out by `replay` which records were kept. But a disk that has no space for a group is asked again, until it has
    (`full` says why records wait): so `open` succeeds too, and the file is begun as soon as there is space.

    `begun` is called with the id of each file that was begun, before any record is written to it.

    Raises:
        ValueError: `replay` has not read the last file to its end.
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
        self._kept: set[int] = set()
        self._file = self._new_file(next_id(directory, files))
        self._mark = Mark(self._file.file_id, self._file.position)
        # Without `sync` nobody shares a force, so a record that is in the queue waits for no others.
        self._queue = RecordQueue(settings if sync else replace(settings, flush_when_queue_empty=True), clock)
        self._grouping = AdaptiveGrouping(settings)
        self._unconfirmed = _PendingBytes()
        # Locks in this order: `_calling`, which keeps callbacks apart, then `_changed`.
        self._calling = threading.Lock()
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._due = threading.Condition(lock)  # for the force thread alone, which need not wake for each group
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
        """The error with which the journal ended, None if it works."""
        return self._failure

    @property
    def full(self) -> str:
        """Why records wait for space on the disk, and how much of it is missing; empty while they do not."""
        return self._space.full

    @property
    def written_ticket(self) -> int:
        """The ticket of the last record that was written."""
        return self._written

    @property
    def forced_ticket(self) -> int:
        """The ticket of the last record that is on the disk."""
        return self._forced

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the batches that are not confirmed yet."""
        return self._unconfirmed.total

    def has_memory(self, size: int) -> bool:
        """Return whether a record with a batch of so many bytes may be appended within `max_memory_bytes`.

        Those that are not confirmed count: a disk that is stuck must not take more and more memory. A record that is larger by
        itself has room when there is no other.
        """
        waiting = self._unconfirmed.total
        return waiting == 0 or waiting + size <= self._settings.max_memory_bytes

    def append(self, record: JournalRecord) -> int:
        """Have a record written and forced; return its ticket, at once. Tickets count up from 1.

        Without `sync` the record is usually written when this returns: nobody waits for the disk, so there is nothing that a
        group would share, and to hand it to a thread would cost more than the write itself. It is handed over where that might
        wait for the disk (see `_may_write_in_caller`), for which it waits a moment.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the journal has failed.
            MemoryError: the record was not taken; the journal works on.
        """
        self._check()
        size = len(record.batch)
        in_caller = not self._sync and self._may_write_in_caller(size)
        self.counters.added_bytes += size
        self.counters.added += 1  # before the journal's thread can write it
        try:
            if in_caller:
                self._write_in_caller(record)
            else:
                self._hand_over(record, size)
        except BaseException:  # such as a MemoryError: nobody has the record
            self.counters.added_bytes -= size
            self.counters.added -= 1
            raise
        if not self._sync and not in_caller:
            self._await_handed_over()
        return self.counters.added

    def _may_write_in_caller(self, size: int) -> bool:
        """Return whether a record may be written by the one who appends it, who must not wait for the disk.

        It may not while records are before it in the queue; nor if the file is full or needs more space, for which the disk is
        asked; nor during a force. A disk that is stuck shows that first, since a write goes to the page cache as long as that
        takes it; and there is one each `unsynced_force_ms`.
        """
        return self._written == self.counters.added and not self._is_forcing and self._file.has_space(size)

    def _await_handed_over(self) -> None:
        """Wait until the record that was handed over is written, which a disk that works has done at once; but not if the one
        before it was waited for in vain."""
        if self._is_late and self._written < self.counters.added - 1:
            return
        with contextlib.suppress(MemoryError), self._changed:  # nobody may take back what the journal's thread has
            ticket = self.counters.added
            in_time = self._changed.wait_for(
                lambda: self._written >= ticket or self._failure is not None, MAX_WRITE_WAIT_S
            )
            self._is_late = not in_time

    def _write_in_caller(self, record: JournalRecord) -> None:
        """Write a record in the thread of the one who appends it."""
        begin = self._file.position
        try:
            self._write(RecordGroup([record], Trigger.EMPTY_QUEUE), by_caller=True)
        except BaseException as error:
            if isinstance(error, MemoryError) and self._file.position == begin:
                raise  # what may have been written does not count: the next record is written over it
            if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS and self._file.position == begin:
                self._hand_over(record, len(record.batch))  # wake the thread that waits for space
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

        Args:
            ticket: what `append` returned; 0 for no record.
            timeout: how many seconds to wait at most. The records are written without waiting for more of them.

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
        """Have everything forced that was written before, and wait for it; return whether it was.

        Args:
            timeout: how many seconds to wait at most.

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
        """Return the place before which all records are on the disk. Without `sync`, call `force_now` before.

        It is None while there is no space for the first file of this life.
        """
        return self._mark if self._file.is_begun else None

    def drop_before(self, mark: Mark) -> None:
        """Remove the files that end before `mark`, except for the newest `backups` of them. It is for one thread at a time, and
        the mark must have been kept before (`LastMark.advance`).

        Raises:
            OSError: a file could not be removed; a later call tries again.
        """
        old = [file_id for file_id in ids_in(self._directory, self._files) if file_id < mark.file_id]
        for file_id in old[: len(old) - self._settings.backups] if self._settings.backups else old:
            path = self._directory / name_of(file_id)
            if file_id in self._kept:
                self._files.rename(path, path.with_name(path.name + KEPT_SUFFIX))
            else:
                self._files.unlink(path)

    def keep_files(self) -> str:
        """Have the files of earlier lives renamed once they are not needed, and not removed; return their later names."""
        self._kept = {file_id for file_id in ids_in(self._directory, self._files) if file_id < self._file.file_id}
        return ", ".join(str(self._directory / name_of(file_id)) + KEPT_SUFFIX for file_id in sorted(self._kept))

    def close(self, timeout: float = 60) -> None:
        """Write and force what was appended, and end the file. After a failure, only close it.

        Args:
            timeout: how many seconds to wait at most for each thread.

        Raises:
            OSError: the disk refused, or has not answered in time; which records are on it, `replay` finds out.
        """
        had_failed = self._failure is not None
        self._queue.close()
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout)
        if any(thread.is_alive() for thread in self._threads):
            raise TimeoutError(f"the disk of {self._directory} has not answered for {timeout} s")
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
                f"the journal in {self._directory} has failed, and takes records again after a restart: {self._failure}",
                code=Code.KAFKA_STORAGE_ERROR,
            ) from self._failure

    def _run(self, work: Callable[[], None]) -> None:
        """Do the work of a thread; if it fails, the journal has failed."""
        try:
            work()
        except BaseException as error:  # an error of whatever kind must stop both threads
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
        """The journal's thread."""
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
        """Have a file that takes the next group."""
        if self._failure is None and self._file.is_begun and self._file.is_full:
            self._roll()
        if self._failure is None and not self._file.is_begun:
            self._file.begin()
            self._call_begun(self._file.file_id)

    def _write(self, group: RecordGroup, *, by_caller: bool) -> None:
        """Write a group. `by_caller`: in the thread of the one who appends it, else in the journal's."""
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
                self._due.notify()  # else it knows already when it has to force

    def _roll(self) -> None:
        """End the file, and begin the next one. All of it is on the disk before, so only the last file can have a torn end."""
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
        """The force thread."""
        while groups := self._next_to_force():
            began = self._clock()
            self._file.force(groups[-1].end)
            seconds = self._clock() - began
            self.counters.dropped_bytes += self._file.drop_pages()  # before a roll may end the file
            self._file.write_forced_marker()  # before anybody is told
            self._is_forcing = False
            self._complete_force(groups, seconds)

    def _next_to_force(self) -> list[_WrittenGroup]:
        """Wait for groups that must be forced; return all of them, none once there will be no more."""
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
        """Return for how long nothing must be forced yet, None as long as nothing is written."""
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


class _PendingBytes:
    """A number that one thread makes larger, and another one smaller."""

    def __init__(self) -> None:
        self._added = self._taken = 0

    @property
    def total(self) -> int:
        return self._added - self._taken

    def add(self, size: int) -> None:
        self._added += size

    def take(self, size: int) -> None:
        self._taken += size
