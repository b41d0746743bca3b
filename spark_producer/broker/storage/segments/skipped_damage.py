"""Skips the damaged part of a log: a batch without records takes its place, and all other batches keep their offsets."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO, Final

from spark_producer.broker.storage.disk import PRIVATE_FILE, make_private_directory, sync_directory
from spark_producer.broker.storage.empty_batch import empty_batch
from spark_producer.broker.storage.segments.segment import COPY_BYTES, Segment
from spark_producer.common.escape import escaping_logger

DAMAGED: Final = "damaged"
"""Name of the directory for copies of damaged segments, in the partition's directory."""

MAX_OFFSETS: Final = 2**31
"""Maximum number of offsets of a batch."""

_SKIPPED: Final = ".skipped"

logger = escaping_logger(__name__)


def skip_damaged_part(directory: Path, segment: Segment | None, offset: int, until: int, is_beginning: bool) -> bool:
    """Replace what is damaged or missing between two offsets by a batch without records; return whether that was done.

    Args:
        directory: directory of the partition.
        segment: the damaged segment, of which a copy is kept; None if a segment is missing.
        offset: the first lost offset.
        until: the offset of the next batch or segment that can be read; -1 for none: then nothing is done.
        is_beginning: whether a missing segment was the first one: then nothing is done, since the log may begin later.

    Raises:
        OSError: the disk refused.
    """
    if until < offset or until - offset > MAX_OFFSETS or (segment is None and is_beginning):
        return False
    filler = empty_batch(offset, until - 1) if until > offset else b""
    path = Segment(directory, offset).path if segment is None else segment.path
    written = path.with_suffix(_SKIPPED)
    with written.open("wb") as file:
        written.chmod(PRIVATE_FILE)
        if segment is None:
            file.write(filler)
        else:
            logger.error("%s", copied_aside(segment))
            _copy_without_damage(segment, file, filler)
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)
    sync_directory(directory)
    logger.error(
        "partition %s is opened without its records from offset %d to %d, which are skipped: %d offsets",
        *(directory.name, offset, until - 1, until - offset),
    )
    return True


def _copy_without_damage(segment: Segment, file: BinaryIO, filler: bytes) -> None:
    """Copy a segment with `filler` in place of what follows its valid batches, up to the next valid one."""
    following = segment.later_batch()
    with segment.path.open("rb") as source:
        left = segment.size
        while left:
            content = source.read(min(left, COPY_BYTES))
            file.write(content)
            left -= len(content)
        file.write(filler)
        if following is not None:
            source.seek(following[1])
            shutil.copyfileobj(source, file, COPY_BYTES)


def copied_aside(segment: Segment) -> str:
    """Copy the damaged file once, so that the original can be changed; return a sentence with the path of the copy."""
    damaged_directory = segment.path.parent / DAMAGED
    size = segment.path.stat().st_size
    copy = damaged_directory / f"{segment.path.name}.{segment.path.stat().st_mtime_ns}"
    try:
        if not copy.exists() or copy.stat().st_size != size:
            make_private_directory(damaged_directory)
            shutil.copyfile(segment.path, copy)
            copy.chmod(PRIVATE_FILE)
    except OSError as error:
        return f"It could not be copied ({error})"
    return f"A copy of it is {copy}"
