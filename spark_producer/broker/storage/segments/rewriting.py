"""The rewriting of the first segments of a log: new files are written beside them, and then replace all of them at once.

The new files are `<base offset>.cleaned`. When all of them are complete, the file `rewritten` lists them: from then on they are
valid, and the old segments are not. After a crash, the next start completes the replacement if that file exists; else it removes
the new files. (Kafka renames each file to `.swap` for that.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import storage_errors, sync_directory, write_private
from spark_producer.broker.storage.segments.segment import SUFFIX, Segment
from spark_producer.common.escape import escaping_logger
from spark_producer.record.batch_v2 import read_header
from spark_producer.record.checksum import crc32c

CLEANED: Final = ".cleaned"
NAME: Final = "rewritten"

logger = escaping_logger(__name__)


class SegmentRewriting:
    """A `Rewriting` of the segments in `directory` before the offset `end`. `finished` is called with the new segments."""

    def __init__(
        self,
        directory: Path,
        end: int,
        segment_bytes: int,
        *,
        sync: bool,
        finished: Callable[[int, list[Segment], OSError | None], None],
        check_directory: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory, self._end, self._segment_bytes = directory, end, segment_bytes
        self._sync, self._finished, self._check_directory = sync, finished, check_directory
        self._segments: list[Segment] = []

    def add(self, batch: bytes) -> bool:
        """See `Rewriting.add`. The engine is never busy."""
        header = read_header(batch)
        with storage_errors(self._directory):
            self._check_directory()
            if not self._segments or self._segments[-1].size + header.size > self._segment_bytes:
                self._begin(header.base_offset)
            self._segments[-1].append([memoryview(batch)], header)
        return True

    def _begin(self, base_offset: int) -> None:
        segment = Segment(self._directory, base_offset, CLEANED)
        segment.remove()
        self._segments.append(segment)
        segment.create()

    def commit(self) -> bool:
        """See `Rewriting.commit`. The engine is never busy."""
        with storage_errors(self._directory):
            self._check_directory()
            if self._sync:
                for segment in self._segments:
                    segment.sync()
                sync_directory(self._directory)
            write_private(
                self._directory / NAME,
                _content([segment.base_offset for segment in self._segments], self._end),
                sync=self._sync,
            )
            failure = None
            try:
                finish_rewriting(self._directory, sync=self._sync)
            except OSError as error:
                failure = error
            for segment in self._segments:
                segment.path = segment.path.with_suffix(SUFFIX)
            self._finished(self._end, self._segments, failure)
            if failure is not None:
                raise failure
        return True

    def abort(self) -> None:
        """See `Rewriting.abort`. The next start removes the files that cannot be removed now."""
        for segment in self._segments:
            try:
                self._check_directory()
                segment.remove()
            except OSError as error:
                logger.warning("%s is not needed any more, and could not be removed: %s", segment.path, error)
        self._segments = []


def finish_rewriting(directory: Path, *, sync: bool) -> None:
    """Replace the old segments by the new ones if these are valid, else remove the new ones.

    Raises:
        OSError: the disk refused. The next call continues.
    """
    named = _named(directory)
    for cleaned in directory.glob(f"*{CLEANED}"):
        if named is None:
            cleaned.unlink()
    if named is None:
        return
    bases, end = named
    for base in Segment.base_offsets(directory):
        if base < end and base not in bases:
            Segment(directory, base).remove()
    for base in bases:
        cleaned = Segment(directory, base, CLEANED).path
        if cleaned.exists():
            cleaned.replace(Segment(directory, base).path)
    if sync:
        sync_directory(directory)
    (directory / NAME).unlink()


def _content(bases: list[int], end: int) -> str:
    return json.dumps({"bases": bases, "end": end, "crc32c": _crc(bases, end)})


def _crc(bases: list[int], end: int) -> int:
    checksum: int = crc32c(" ".join(map(str, [*bases, end])).encode())
    return checksum


def _named(directory: Path) -> tuple[list[int], int] | None:
    """Return the base offsets of the new segments and the offset at which they end, None if there is no list of them.

    Raises:
        OSError: the list cannot be read, so it is unknown which segments are valid.
    """
    try:
        stored = json.loads((directory / NAME).read_text())
        bases, end = stored["bases"], stored["end"]
        if stored["crc32c"] != _crc(bases, end):
            raise ValueError("its checksum does not match")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(
            f"{directory / NAME} cannot be read, so it is unknown which segments are valid: {error}. Restore the directory from "
            "a backup"
        ) from error
    return bases, end
