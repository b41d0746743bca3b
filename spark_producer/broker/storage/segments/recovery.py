"""Recovery of a partition's segments: the torn end after a crash is cut off, and any other damage is left as it is.

A crash leaves the last batches of the last segment incomplete, because they were not forced to the disk. Everything before the
recovery point was forced, and so were all older segments; and a whole batch after a damaged one was written later. So other
damage has another cause, such as a failing disk. To truncate the log there, as Kafka does, would lose valid records.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from spark_producer.broker.storage.base import Recovered, UnreadableLog
from spark_producer.broker.storage.disk import make_private_directory
from spark_producer.broker.storage.segments.checkpoint import NAME as CHECKPOINT
from spark_producer.broker.storage.segments.checkpoint import Checkpoint
from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.broker.storage.segments.skipped_damage import DAMAGED, copied_aside, skip_damaged_part
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.record.batch_v2 import BatchHeader

logger = escaping_logger(__name__)


class DamagedLog(UnreadableLog):
    """The log of a partition is damaged and cannot be opened without losing records.

    offset: the first offset whose records would be lost.
    segment: the damaged segment; its `size` is the end of its valid batches.
    until: the offset of the next batch or segment that can be read; -1 for none.
    is_beginning: whether the records before `until` are the first ones of the log.
    """

    def __init__(
        self,
        message: str,
        *,
        offset: int = 0,
        segment: Segment | None = None,
        until: int = -1,
        is_beginning: bool = False,
    ) -> None:
        super().__init__(message, code=Code.KAFKA_STORAGE_ERROR)
        self.offset, self.segment, self.until, self.is_beginning = offset, segment, until, is_beginning


def recover(
    directory: Path, checkpoint: Checkpoint | None, visit: Recovered, *, boot_id: str = "", skip_damage: bool = False
) -> list[Segment]:
    """Return the segments in `directory`, and call `visit` for each batch in order.

    If there is no segment file, return one segment whose file does not exist yet.

    Args:
        directory, checkpoint, visit: of the log.
        boot_id: boot id of the machine.
        skip_damage: whether a damaged log is opened without what is damaged, which is copied or moved to `DAMAGED`, and logged.
            Then all batches are checked.

    Raises:
        DamagedLog: a crash does not explain the damage. The files are not changed.
        OSError: the disk refused.
    """
    while skip_damage:
        try:
            _recovered(directory, checkpoint, _ignore, boot_id, check_all=True)
        except DamagedLog as error:
            logger.error("%s", error)
            if not skip_damaged_part(directory, error.segment, error.offset, error.until, error.is_beginning):
                _set_aside_damage(directory, error)
                checkpoint = None
        else:
            break
    return _recovered(directory, checkpoint, visit, boot_id)


def _ignore(_header: BatchHeader, _batch: bytes) -> None:
    """Ignore a batch."""


def _set_aside_damage(directory: Path, error: DamagedLog) -> None:
    """Set the records from damage on aside: copy and truncate the damaged segment, and move the following ones."""
    damaged_directory = directory / DAMAGED
    make_private_directory(damaged_directory)
    after = error.offset - 1 if error.segment is None else error.segment.base_offset
    lost = [] if error.is_beginning else [base for base in Segment.base_offsets(directory) if base > after]
    names = [Segment(directory, base).path.name for base in lost]
    for name in [*names, CHECKPOINT]:
        if (directory / name).exists():
            (directory / name).replace(_unused_path(damaged_directory / name))
    if error.segment is not None:
        copied_aside(error.segment)
        error.segment.truncate()
    until = f"to {error.until}" if error.is_beginning else "on"
    logger.error(
        "partition %s is opened without its records from offset %d %s: %d segments were moved to %s",
        *(directory.name, error.offset, until, len(names), damaged_directory),
    )


def _unused_path(path: Path) -> Path:
    """Return `path`, with a number appended if it exists."""
    number, free = 1, path
    while free.exists():
        number, free = number + 1, path.with_name(f"{path.name}.{number}")
    return free


def _recovered(
    directory: Path, checkpoint: Checkpoint | None, visit: Recovered, boot_id: str, *, check_all: bool = False
) -> list[Segment]:
    bases = _without_deleted(directory, checkpoint)
    recovery_point = checkpoint.recovery_point if checkpoint else 0
    segments: list[Segment] = []
    expected = min(bases, default=0)
    if checkpoint and expected > checkpoint.log_start_offset:
        expected = checkpoint.log_start_offset
    for base in bases:
        if base != expected:
            raise _missing(Segment(directory, expected).path, expected, base, later=bool(segments))
        segment = Segment(directory, base)
        segments.append(segment)
        damage = segment.recover(visit, recovery_point=0 if check_all else recovery_point)
        if damage is not None:
            same_boot = checkpoint is not None and boot_id != "" and checkpoint.boot_id == boot_id
            _cut_torn_end(segment, damage, bases, recovery_point, same_boot=same_boot)
        expected = segment.next_offset
    expected_end = max(recovery_point, checkpoint.log_start_offset if checkpoint else 0) if segments else recovery_point
    if checkpoint is not None and expected < expected_end:
        raise _missing(_last_written(directory, checkpoint, segments), expected, expected_end, later=False)
    if checkpoint is not None and checkpoint.written_segment >= 0:
        _check_written(directory, checkpoint.written_segment, segments[-1] if segments else None)
    return segments or [Segment(directory, expected)]


def _check_written(directory: Path, base: int, last: Segment | None) -> None:
    """Check that the newest segment with records exists, or a later one, and is not empty.

    Raises:
        DamagedLog: it is missing or empty.
    """
    is_missing = last is None or last.base_offset < base
    if is_missing or (last is not None and last.base_offset == base and not last.size):
        what = "is missing" if is_missing else "is empty"
        raise DamagedLog(
            f"partition {directory.name} is not opened: {Segment(directory, base).path} {what}, but records were written to it. "
            "Restore it from a backup. Or start once with skip_damage (pyproducer broker --skip-damage), and the partition is "
            "opened without these records",
            offset=base + 1,
        )


def _without_deleted(directory: Path, checkpoint: Checkpoint | None) -> list[int]:
    """Remove the segments before the log start offset, whose deletion a crash interrupted; return the other base offsets."""
    bases = Segment.base_offsets(directory)
    start = checkpoint.log_start_offset if checkpoint else 0
    first = max(bisect_right(bases, start) - 1, 0)  # the log may begin within a segment
    for base in bases[:first]:
        Segment(directory, base).remove()
    return bases[first:]


def _cut_torn_end(segment: Segment, damage: str, bases: list[int], recovery_point: int, *, same_boot: bool) -> None:
    """Truncate the segment after its valid batches, or raise DamagedLog if this is not the torn end of the log.

    `same_boot`: the machine has not been restarted since records were written, so no written byte is missing.
    """
    later = [base for base in bases if base > segment.base_offset]
    if (
        later
        or segment.next_offset < recovery_point
        or segment.later_batch() is not None
        or (same_boot and segment.has_whole_batch())
    ):
        raise _damaged(segment, damage, later)
    lost = segment.path.stat().st_size - segment.size
    copied = copied_aside(segment)
    segment.truncate()
    logger.warning(
        "%s: cut off %d bytes at byte %d, after offset %d, an incomplete batch as a crash leaves it: %s. %s",
        *(segment.path, lost, segment.size, segment.next_offset - 1, damage, copied),
    )


def _damaged(segment: Segment, damage: str, later: list[int]) -> DamagedLog:
    directory = segment.path.parent
    following = segment.later_batch()
    until = following[0] if following is not None else later[0] if later else -1
    lost = f"to {until - 1}" if until >= 0 else "on"
    return DamagedLog(
        f"partition {directory.name} is not opened: {segment.path} is damaged at byte {segment.size}, offset "
        f"{segment.next_offset} ({damage}). A crash does not explain it, since later records exist or these were on the disk. "
        f"{copied_aside(segment)}. Restore the file from a backup. Or lose all records from offset {segment.next_offset} "
        f"{lost}: start once with skip_damage (pyproducer broker --skip-damage)",
        offset=segment.next_offset,
        segment=segment,
        until=until,
    )


def _missing(path: Path, expected: int, found: int, *, later: bool) -> DamagedLog:
    """Return the error that records are missing, since the segment at `path` is missing or too short."""
    return DamagedLog(
        f"partition {path.parent.name} is not opened: records from offset {expected} up to {found} are missing from "
        f"{path.parent}: {path.name} is missing or too short. Restore its files from a backup. Or start once with skip_damage "
        "(pyproducer broker --skip-damage), and the partition is opened without these records",
        offset=expected,
        until=found,
        is_beginning=not later,
    )


def _last_written(directory: Path, checkpoint: Checkpoint, segments: list[Segment]) -> Path:
    """Return the path of the segment that had the last records."""
    written = checkpoint.written_segment
    if written > (segments[-1].base_offset if segments else -1):
        return Segment(directory, written).path
    return segments[-1].path if segments else Segment(directory, checkpoint.log_start_offset).path
