"""The opening of a partition's segments: an end that a crash has torn is cut off, and any other damage is left as it is.

A crash leaves the last batches of the last segment unfinished, because they were not forced to the disk yet. Everything before
the recovery point was forced to it, and so were all older segments; and a whole batch after a broken one was written later. So
other damage has another cause, such as a failing disk or a person. To cut the log there, as Kafka does, would lose good records.
"""

from __future__ import annotations

import logging
import shutil
from bisect import bisect_right
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.base import Recovered, UnreadableLog
from spark_producer.broker.storage.disk import PRIVATE_FILE, make_private_directory
from spark_producer.broker.storage.segments.checkpoint import NAME as CHECKPOINT
from spark_producer.broker.storage.segments.checkpoint import Checkpoint
from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.codes import Code

logger = logging.getLogger(__name__)

DAMAGED: Final = "damaged"
"""The directory, inside the partition's, for copies of damaged segments."""


class DamagedLog(UnreadableLog):
    """The log of a partition is damaged and cannot be opened without losing records."""


def recover(directory: Path, checkpoint: Checkpoint | None, visit: Recovered) -> list[Segment]:
    """Return the segments in `directory`, and call `visit` for each batch in order.

    If there is no segment file, one segment is returned whose file does not exist yet.

    Raises:
        DamagedLog: there is damage that no crash explains; the files stay as they are.
        OSError: the disk refused.
    """
    bases = _without_deleted(directory, checkpoint)
    recovery_point = checkpoint.recovery_point if checkpoint else 0
    segments: list[Segment] = []
    expected = min(bases, default=0)
    if checkpoint and expected > checkpoint.log_start_offset:
        expected = checkpoint.log_start_offset
    for base in bases:
        if base != expected:
            raise _missing(directory, expected, base, later=bool(segments))
        segment = Segment(directory, base)
        segments.append(segment)
        damage = segment.recover(visit, recovery_point=recovery_point)
        if damage is not None:
            _cut_torn_end(segment, damage, bases, recovery_point)
        expected = segment.next_offset
    there_were = max(recovery_point, checkpoint.log_start_offset if checkpoint else 0) if segments else recovery_point
    if expected < there_were:
        raise _missing(directory, expected, there_were, later=False)
    return segments or [Segment(directory, expected)]


def _without_deleted(directory: Path, checkpoint: Checkpoint | None) -> list[int]:
    """Remove the segment files that retention could not remove before a crash; return the base offsets of the others."""
    bases = Segment.base_offsets(directory)
    start = checkpoint.log_start_offset if checkpoint else 0
    first = max(bisect_right(bases, start) - 1, 0)  # the log may begin within a segment
    for base in bases[:first]:
        Segment(directory, base).remove()
    return bases[first:]


def _cut_torn_end(segment: Segment, damage: str, bases: list[int], recovery_point: int) -> None:
    """Cut the file after its good part, or raise DamagedLog if more than the end of the log is damaged."""
    later = [base for base in bases if base > segment.base_offset]
    if later or segment.next_offset < recovery_point or segment.has_later_batch():
        raise _damaged(segment, damage, later)
    lost = segment.path.stat().st_size - segment.size
    segment.truncate()
    logger.warning("%s: cut off %d bytes after offset %d: %s", segment.path, lost, segment.next_offset - 1, damage)


def _damaged(segment: Segment, damage: str, later: list[int]) -> DamagedLog:
    directory, name = segment.path.parent, segment.path.name
    also = f"the {len(later)} segments with larger numbers and " if later else ""
    return DamagedLog(
        f"partition {directory.name} is not opened: {segment.path} is damaged at byte {segment.size}, offset "
        f"{segment.next_offset} ({damage}), and no crash explains it, since later records are there or these were on the disk. "
        f"{_copied_aside(segment)}. Restore the file from a backup. Or give up all records from offset {segment.next_offset} "
        f"on: stop the broker, go to {directory}, truncate -s {segment.size} {name}, remove {also}the file {CHECKPOINT}, "
        "and start it",
        code=Code.KAFKA_STORAGE_ERROR,
    )


def _copied_aside(segment: Segment) -> str:
    """Copy the damaged file once, so that the original may safely be changed; return a sentence that says where the copy is."""
    place = segment.path.parent / DAMAGED
    size = segment.path.stat().st_size
    copy = place / f"{segment.path.name}.{segment.path.stat().st_mtime_ns}"
    try:
        if not copy.exists() or copy.stat().st_size != size:
            make_private_directory(place)
            shutil.copyfile(segment.path, copy)
            copy.chmod(PRIVATE_FILE)
    except OSError as error:
        return f"It could not be copied aside ({error})"
    return f"A copy of it is {copy}"


def _missing(directory: Path, expected: int, found: int, *, later: bool) -> DamagedLog:
    also = f"the segments with numbers from {found} on and " if later else ""
    return DamagedLog(
        f"partition {directory.name} is not opened: records from offset {expected} up to {found} were there and are missing "
        f"from {directory}. Restore its files from a backup. Or go on with what is there: stop the broker, remove {also}the "
        f"file {CHECKPOINT}, and start it",
        code=Code.KAFKA_STORAGE_ERROR,
    )
