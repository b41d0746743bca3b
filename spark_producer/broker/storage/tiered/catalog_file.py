"""The files of the catalog: `catalog.json`, and the changes since it was written in `catalog.<generation>`.

With thousands of partitions, writing the whole catalog takes longer than a flush may take, and a flush changes few of them. So
changes are appended, a line each, until they are as large as the file; then the file is rewritten, with the next generation. The
file of changes is created, empty, before `catalog.json` with its generation is written, so a missing one was lost.

`catalog.json` is its CRC-32C in hexadecimal, a newline, and JSON. A line of changes is a CRC, a space, and JSON without a
newline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import CorruptRecord
from spark_producer.record.checksum import crc32c

NAME: Final = "catalog.json"
_CHANGES: Final = "catalog."
_MIN_CHANGED_BYTES: Final = 64 * 1024
"""Minimum size of the changes in bytes at which the file is rewritten."""

logger = escaping_logger(__name__)


class CatalogFile:
    """The files in a directory. One thread at a time may use it. The first write of each run is a `replace`: the last appended
    line of the previous run may be torn, and a line after it would be lost."""

    def __init__(self, files: FileOps, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self.path = directory / NAME
        self.must_replace = True
        """Whether the next write must be `replace` instead of `append`."""
        self._generation = 0
        self._torn = ""
        self._size = self._max_changed_bytes = 0
        """The size of the changes in bytes, and its maximum."""

    def load(self) -> Iterator[dict[str, Any]]:
        """Yield the content of the last `replace` and of each `append` since; nothing if there is no catalog.

        Raises:
            ValueError, KeyError, TypeError: a file was not written by a broker.
            CorruptRecord: a file is damaged or missing.
            OSError: the disk refused.
        """
        names = self._files.names(self._directory)
        if NAME not in names:
            self._check_new(names)
            return
        crc, _, text = self._files.read_file(self.path).partition(b"\n")
        if int(crc, 16) != crc32c(text):
            raise ValueError("its checksum does not match")
        stored = json.loads(text)
        self._generation = int(stored.get("generation", 0))
        yield stored
        changes = self._changes(self._generation)
        if changes.name in names:
            yield from self._read_changes()
        elif stored.get("has_changes", False):
            raise CorruptRecord(
                f"{changes} is missing, and {self.path} refers to it: records that it lists would be lost. Put it back, or "
                "restore a backup of the whole data directory"
            )

    def _check_new(self, names: list[str]) -> None:
        """Check that there was no earlier catalog. The first start creates the file of changes first."""
        for name in names:
            number = name.removeprefix(_CHANGES)
            if (
                name != number
                and number.isdecimal()
                and (number != "1" or self._files.read_file(self._directory / name))
            ):
                raise CorruptRecord(missing_catalog(self.path, str(self._directory / name)))

    def _read_changes(self) -> Iterator[dict[str, Any]]:
        path = self._changes(self._generation)
        lines = self._files.read_file(path).split(b"\n")
        whole = [self._text(line) for line in lines]
        torn = next((number for number, text in enumerate(whole) if text is None), len(whole))
        if any(text is not None for text in whole[torn:]):
            raise CorruptRecord(
                f"{path} is damaged before its end. Restore it from a backup of the whole data directory"
            )
        for text in whole[:torn]:
            if text is not None:
                yield json.loads(text)
        if any(lines[torn:]):
            self._torn = path.name
            logger.warning(
                "%s: line %d, its last one, is incomplete, as a crash leaves it, and is ignored. The file is kept as "
                "%s.damaged",
                *(path, torn + 1, path.name),
            )

    def _text(self, line: bytes) -> bytes | None:
        """Return the JSON of a line, None if a crash has torn it."""
        crc, _, text = line.partition(b" ")
        try:
            return text if text and int(crc, 16) == self._checksum(text) else None
        except ValueError:
            return None

    def _checksum(self, text: bytes) -> int:
        return crc32c(text, self._generation)

    def _changes(self, generation: int) -> Path:
        return self._directory / f"{_CHANGES}{generation}"

    def replace(self, content: Mapping[str, Any]) -> None:
        """Write the whole catalog.

        Raises:
            OSError: the disk refused; a crash then leaves either the old or the new one.
        """
        self.must_replace = True
        self._generation += 1
        text = json.dumps({**content, "generation": self._generation, "has_changes": True}).encode()
        changes = self._changes(self._generation)
        if changes.name in self._files.names(self._directory):
            self._files.unlink(changes)
        self._files.close(self._files.open(changes, create=True))
        self._files.sync_directory(self._directory)
        self._files.replace_file(self.path, b"%08x\n" % crc32c(text) + text, sync=True)
        self._size, self._max_changed_bytes = 0, max(len(text), _MIN_CHANGED_BYTES)
        self.must_replace = False
        self._remove_older()

    def _remove_older(self) -> None:
        """Remove the changes of older generations, which are never read."""
        for name in self._files.names(self._directory):
            number = name.removeprefix(_CHANGES)
            if name != number and number.isdecimal() and int(number) != self._generation:
                try:
                    if name == self._torn:
                        self._files.rename(self._directory / name, self._directory / f"{name}.damaged")
                    else:
                        self._files.unlink(self._directory / name)
                except OSError as error:
                    logger.warning("%s could not be removed: %s", self._directory / name, error)

    def append(self, change: Mapping[str, Any]) -> None:
        """Append a change.

        Raises:
            OSError: the disk refused; after a crash, the change is stored or not.
        """
        self.must_replace = True  # until the append has succeeded: it is unknown which bytes a failed force has written
        text = json.dumps(change).encode()
        line = b"%08x " % self._checksum(text) + text + b"\n"
        file = self._files.open(self._changes(self._generation))
        try:
            self._files.write(file, [line], self._size)
            self._files.force(file)
        finally:
            self._files.close(file)
        self._size += len(line)
        self.must_replace = self._size >= self._max_changed_bytes


def missing_catalog(path: Path, trace: str) -> str:
    """Return the error message for a missing catalog; `trace` describes the proof that it existed."""
    return (
        f"{path} is missing, which maps the records to topics; it existed, since there is {trace}. Put it back, or restore a "
        "backup of the whole data directory"
    )
