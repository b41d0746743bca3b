"""The file in which the coordinator keeps its state: a line of text for each entry, with a CRC, appended and sometimes rewritten.

A line is whole or it does not count: the death of the process leaves at most one torn line, at the end, which is cut off when the
file is opened again. A bad line with a whole one behind it is damage, and then the broker does not start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from spark_producer.broker.coordinator.entries import Begin, Entry, from_text, to_text
from spark_producer.broker.storage.disk import PRIVATE_FILE, storage_errors, sync_data, write_private
from spark_producer.codes import Code
from spark_producer.errors import BrokerError, CorruptRecord

NAME: Final = "coordinator.log"
"""The name of the file in the data directory."""

SMALLEST_REWRITE: Final = 4 * 1024 * 1024
"""A file up to this size, in bytes, is not rewritten while the broker runs."""

logger = logging.getLogger(__name__)


class CoordinatorLog:
    """The file in a data directory that is locked. It is made with the first entry; one thread at a time may use it."""

    def __init__(self, data_dir: Path, *, sync: bool) -> None:
        """With `sync` every entry is on the disk when `append` returns; else it survives the death of the process only."""
        self._path = data_dir / NAME
        self._sync = sync
        self._file: int | None = None
        self._size = 0
        self._size_when_rewritten = 0
        self._broken = ""

    def read(self) -> list[Entry]:
        """Return all entries, and open the file for more. What is torn at its end is cut off.

        Raises:
            CorruptRecord: the file is damaged, or of another version.
            OSError: the disk refused.
        """
        if not self._path.exists():
            return []
        data = self._path.read_bytes()
        *lines, _torn = data.split(b"\n")
        whole = [_text_of(line) for line in lines]
        if None in whole:
            first = whole.index(None)
            if any(text is not None for text in whole[first:]):
                raise CorruptRecord(self._advice(f"line {first + 1} is damaged"))
            del whole[first:]
        size = sum(len(line) + 1 for line in lines[: len(whole)])
        if size < len(data):
            logger.warning(
                "%s: %d bytes at its end were torn by a crash, and are cut off", self._path, len(data) - size
            )
        try:
            entries = [from_text(text) for text in whole if text is not None]
        except ValueError as error:
            raise CorruptRecord(self._advice(str(error))) from error
        if entries and not isinstance(entries[0], Begin):
            raise CorruptRecord(self._advice("it has no beginning"))
        self._open(size)
        os.ftruncate(self._opened, size)
        self._size_when_rewritten = size
        return entries[1:]

    def _advice(self, why: str) -> str:
        return (
            f"{self._path} is not a coordinator's log ({why}). Restore it; or move it away, and every transactional id "
            "begins anew, committed offsets are lost, and open transactions hold their readers back"
        )

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries, all of them or none.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR. After a failed sync nothing is taken any more: it is not known what is on the disk.
        """
        if self._broken:
            raise BrokerError(self._broken, code=Code.KAFKA_STORAGE_ERROR)
        first = [Begin()] if self._size == 0 else []
        data = b"".join(_line(entry) for entry in [*first, *entries])
        with storage_errors(self._path):
            if self._file is None:
                self._open(self._size)
            self._write(data)
        self._size += len(data)

    def _write(self, data: bytes) -> None:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._opened, rest) :]
        except OSError:
            try:
                os.ftruncate(self._opened, self._size)  # else the next entry would stand behind half a line
            except OSError as error:
                self._broken = f"{self._path} has half an entry at its end ({error}); restart the broker"
            raise
        if self._sync:
            try:
                sync_data(self._opened)
            except OSError as error:
                self._broken = f"{self._path} could not be put on the disk ({error}); restart the broker"
                raise

    @property
    def wants_rewrite(self) -> bool:
        """Whether most of the file is out of date."""
        return self._size > max(SMALLEST_REWRITE, 4 * self._size_when_rewritten)

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Replace the whole file, which has as yet the same content in more entries.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; the old file is still there.
        """
        text = b"".join(_line(entry) for entry in [Begin(), *entries]).decode()
        self._size_when_rewritten = self._size  # if it fails, it is not tried again with every entry
        with storage_errors(self._path):
            write_private(self._path, text, sync=self._sync)
            self._size = self._size_when_rewritten = len(text)
            self.close()
            self._open(self._size)

    @property
    def _opened(self) -> int:
        assert self._file is not None
        return self._file

    def _open(self, size: int) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, PRIVATE_FILE)
        self._size = size

    def close(self) -> None:
        """Close the file. To call it again is harmless."""
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                os.close(file)


def _line(entry: Entry) -> bytes:
    text = to_text(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _text_of(line: bytes) -> str | None:
    """Return the text of a line; None if it is not whole."""
    checksum, _, text = line.partition(b" ")
    return text.decode() if checksum == b"%08x" % zlib.crc32(text) else None
