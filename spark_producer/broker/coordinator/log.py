"""The coordinator's log: a text file with one line for each entry, with a CRC, appended to and sometimes rewritten.

Only complete lines count: the death of the process leaves at most one torn line, which is truncated when the file is opened
again. A complete line with a wrong CRC is damage, and so is a missing or shortened file: then the broker does not start, unless
damage is to be skipped. `broker.json` has the length of the file at its creation, after a rewrite, once a minute, and at the last
stop of the broker.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from spark_producer.broker.coordinator.entries import Entry, LogStart, from_text, to_text
from spark_producer.broker.data_directory import COORDINATOR_LOG
from spark_producer.broker.storage.disk import (
    PRIVATE_FILE,
    is_at,
    moved_error,
    storage_errors,
    sync_data,
    sync_directory,
    write_private,
)
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord

NAME: Final = COORDINATOR_LOG
DAMAGED: Final = f"{NAME}.damaged"
"""The name of the copy of a damaged or torn file."""

MIN_REWRITE_BYTES: Final = 4 * 1024 * 1024
"""Minimum size in bytes at which the file is rewritten while the broker runs."""

NOTE_INTERVAL_S: Final = 60.0
"""Seconds between two notes of the length of the file. After a kill, an older copy is noticed if it lacks more than that."""

logger = escaping_logger(__name__)


class CoordinatorLog:
    """The file in a locked data directory. It is created with the first entry. One thread at a time may use it."""

    def __init__(
        self,
        data_dir: Path,
        *,
        sync: bool,
        known_bytes: int = 0,
        note_length: Callable[[int], None] = lambda _: None,
        skip_damage: bool = False,
        check_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the log; `read` must follow.

        Args:
            data_dir: the data directory.
            sync: whether every entry is on the disk when `append` returns; else it only survives the death of the process.
            known_bytes: minimum length that the file had, 0 if there was none.
            note_length: stores the minimum length on the disk; may raise OSError.
            skip_damage: whether damaged lines are skipped, and the broker starts.
            check_moved: raises OSError once the data directory was moved or replaced.
        """
        self._path = data_dir / NAME
        self._known_bytes, self._note_length, self._skip_damage = known_bytes, note_length, skip_damage
        self._sync, self._check_moved = sync, check_moved
        self._file: int | None = None
        self._size = 0
        self._size_when_rewritten = 0
        self._broken = ""
        self.was_damaged = False
        """Whether `read` has skipped damage, so that the remaining entries must be written with `rewrite`."""

    def read(self) -> list[Entry]:
        """Return all entries, and open the file for appending. A torn end is truncated, and a copy kept.

        Raises:
            CorruptRecord: the file is damaged, missing though it existed, or of another version.
            OSError: the disk refused.
        """
        if not self._path.exists():
            if self._known_bytes:
                self._refuse(f"the file is missing, and had at least {self._known_bytes} bytes")
            return []
        data = self._path.read_bytes()
        *lines, torn = data.split(b"\n")
        whole = [text for line in lines if (text := _text_of(line)) is not None]
        damage = self._damage(lines, len(data) - len(torn))
        if damage:
            self._refuse(damage)
            self.was_damaged = True
            self._path.replace(self._path.with_name(DAMAGED))
            logger.error(
                "%s: %d damaged lines are skipped; the file is kept as %s", self._path, len(lines) - len(whole), DAMAGED
            )
        try:
            entries = [from_text(text) for text in whole]
        except ValueError as error:
            raise CorruptRecord(self._advice(str(error))) from error
        if damage:
            return [entry for entry in entries if not isinstance(entry, LogStart)]
        if entries and not isinstance(entries[0], LogStart):
            raise CorruptRecord(self._advice("its first entry is missing"))
        self._truncate(data, len(data) - len(torn))
        return entries[1:]

    def _damage(self, lines: list[bytes], size: int) -> str:
        """Return what is wrong with the complete lines, which have `size` bytes; empty if nothing is."""
        bad = next((number for number, line in enumerate(lines, 1) if _text_of(line) is None), None)
        if bad is not None:
            return f"line {bad} is damaged"
        if size < self._known_bytes:
            return f"its complete lines have {size} bytes, and had at least {self._known_bytes}"
        return ""

    def _refuse(self, why: str) -> None:
        """Raise CorruptRecord, unless damage is to be skipped."""
        if not self._skip_damage:
            raise CorruptRecord(self._advice(why))
        logger.error("%s: %s; its lost transactions and offsets are skipped", self._path, why)

    def _truncate(self, data: bytes, size: int) -> None:
        """Open the file, and truncate the torn line after `size` bytes."""
        if size < len(data):
            kept = f"a copy of the file is {DAMAGED}"
            try:
                self._path.with_name(DAMAGED).write_bytes(data)
                self._path.with_name(DAMAGED).chmod(PRIVATE_FILE)
            except OSError as error:
                kept = f"the file could not be copied ({error.strerror})"
            torn = len(data) - size
            logger.warning(
                "%s: the last %d bytes are truncated: a crash left an incomplete write; %s", self._path, torn, kept
            )
        self._open(size)
        os.ftruncate(self._opened, size)
        self._size_when_rewritten = size
        if size and not self._known_bytes:  # a file of an earlier version
            self._try_to_note_length(len(_line(LogStart())))

    def _advice(self, why: str) -> str:
        return (
            f"{self._path} is damaged: {why}. Restore it from a backup; or start once with skip_damage (pyproducer broker "
            "--skip-damage): then the lost transactional ids and committed offsets are forgotten, and lost transactions stay "
            "open (hanging), so that readers of committed records wait there"
        )

    def _try_to_note_length(self, size: int) -> None:
        """Store the length of the file. If a full disk refuses, a later loss of the file would not be noticed."""
        try:
            self._note_length(size)
            self._known_bytes = size
        except OSError as error:
            logger.warning(
                "%s: its length could not be stored in broker.json, so a loss of the file would not be noticed: %s",
                self._path,
                error,
            )

    def append(self, entries: Iterable[Entry]) -> None:
        """Append entries, all of them or none.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR. After a failed sync every append fails, because the content of the disk is unknown.
        """
        if self._broken:
            raise BrokerError(self._broken, code=Code.KAFKA_STORAGE_ERROR)
        data = b"".join(map(_line, entries))
        with storage_errors(self._path):
            if self._size == 0:
                self._begin()
            elif not is_at(self._opened, self._path):
                raise moved_error(self._path)
            self._write(data)
        self._size += len(data)

    def _begin(self) -> None:
        """Create the file with its first line, and store its length."""
        first = _line(LogStart())
        self._check_moved()
        if self._file is None:
            self._open(0)
        self._write(first)
        try:
            if not self._sync:
                sync_data(self._opened)
            sync_directory(self._path.parent)
            self._note_length(len(first))
        except OSError:
            os.ftruncate(self._opened, 0)
            raise
        self._known_bytes = self._size = len(first)

    def _write(self, data: bytes) -> None:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._opened, rest) :]
        except OSError:
            try:
                os.ftruncate(self._opened, self._size)  # else the next entry would follow half a line
            except OSError as error:
                self._broken = f"{self._path} ends with half an entry: {error}. Restart the broker"
            raise
        if self._sync:
            try:
                sync_data(self._opened)
            except OSError as error:
                self._broken = f"{self._path} could not be synced to the disk: {error}. Restart the broker"
                raise

    @property
    def wants_rewrite(self) -> bool:
        """Whether most of the file is obsolete."""
        return self._size > max(MIN_REWRITE_BYTES, 4 * self._size_when_rewritten)

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Replace the file by one with `entries`, which have the same effect as its own and are fewer.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; the old file is still there.
        """
        text = b"".join(_line(entry) for entry in [LogStart(), *entries]).decode()
        self._size_when_rewritten = self._size  # a failed rewrite is not retried with every entry
        with storage_errors(self._path):
            self._check_moved()
            self._note_length(len(_line(LogStart())))  # the file becomes shorter than it was
            write_private(self._path, text, sync=True)
            size = len(text.encode())
            self._close()
            self._open(size)
            self._size_when_rewritten = size
        self._try_to_note_length(size)

    @property
    def _opened(self) -> int:
        assert self._file is not None
        return self._file

    def _open(self, size: int) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, PRIVATE_FILE)
        self._size = size

    def note_length(self) -> None:
        """Force the file to the disk and store its length, if it has grown since the last time. Errors are logged at most."""
        has_grown = self._file is not None and self._size not in (0, self._known_bytes)
        if has_grown and not self._broken and is_at(self._opened, self._path):
            with contextlib.suppress(OSError):
                sync_data(self._opened)
                self._try_to_note_length(self._size)

    def close(self) -> None:
        """Close the file, and store its length. A second call does nothing."""
        self.note_length()
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                os.close(file)


def _line(entry: Entry) -> bytes:
    text = to_text(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _text_of(line: bytes) -> str | None:
    """Return the text of a line; None if its CRC is wrong."""
    checksum, _, text = line.partition(b" ")
    return text.decode() if checksum == b"%08x" % zlib.crc32(text) else None
