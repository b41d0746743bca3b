"""The opening of a partition's segments: an end that a crash has torn is cut off, and any other damage is left as it is.

A crash leaves the last batches of the last segment unfinished, because they were not forced to the disk yet. Everything before
the recovery point was forced to it, and so were all older segments; and a whole batch after a broken one was written later. So
other damage has another cause, such as a failing disk or a person. To cut the log there, as Kafka does, would lose good records.
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.base import Recovered, UnreadableLog
from spark_producer.broker.storage.disk import PRIVATE_FILE, make_private_directory
from spark_producer.broker.storage.segments.checkpoint import NAME as CHECKPOINT
from spark_producer.broker.storage.segments.checkpoint import Checkpoint
from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.record.batch_v2 import BatchHeader

logger = escaping_logger(__name__)

DAMAGED: Final = "damaged"
"""The directory, inside the partition's, for copies of damaged segments."""


class DamagedLog(UnreadableLog):
    """The log of a partition is damaged and cannot be opened without losing records.

    offset: records from there on cannot be kept; `segment` is the one that is damaged there, with its good part as size.
    first: the base offset of the segment with which the log would begin if those before it were given up, -1 for none.
    """

    def __init__(self, message: str, *, offset: int = 0, segment: Segment | None = None, first: int = -1) -> None:
        super().__init__(message, code=Code.KAFKA_STORAGE_ERROR)
        self.offset, self.segment, self.first = offset, segment, first


def recover(
    directory: Path, checkpoint: Checkpoint | None, visit: Recovered, *, boot_id: str = "", skip_damage: bool = False
) -> list[Segment]:
    """Return the segments in `directory`, and call `visit` for each batch in order.

    If there is no segment file, one segment is returned whose file does not exist yet.

    Args:
        directory, checkpoint, visit: of the log.
        boot_id: of this run of the machine.
        skip_damage: whether a damaged log is opened up to the damage. What follows is moved to `DAMAGED`, and logged.

    Raises:
        DamagedLog: there is damage that no crash explains; the files stay as they are.
        OSError: the disk refused.
    """
    while skip_damage:
        try:
            _recovered(directory, checkpoint, _ignore, boot_id)
        except DamagedLog as error:
            logger.error("%s", error)
            _set_aside_damage(directory, error)
            checkpoint = None
        else:
            break
    return _recovered(directory, checkpoint, visit, boot_id)


def _ignore(_header: BatchHeader, _batch: bytes) -> None:
    """Ignore a batch."""


def _set_aside_damage(directory: Path, error: DamagedLog) -> None:
    """Set aside what follows damage: segments are moved, and the damaged one is cut, of which there is a copy."""
    damaged_directory = directory / DAMAGED
    make_private_directory(damaged_directory)
    after = error.offset - 1 if error.segment is None else error.segment.base_offset
    lost = [] if error.first >= 0 else [base for base in Segment.base_offsets(directory) if base > after]
    names = [Segment(directory, base).path.name for base in lost]
    for name in [*names, CHECKPOINT]:
        if (directory / name).exists():
            (directory / name).replace(_unused_path(damaged_directory / name))
    if error.segment is not None:
        _copied_aside(error.segment)
        error.segment.truncate()
    until = "on" if error.first < 0 else f"up to {error.first}"
    logger.error(
        "partition %s goes on without its records from offset %d %s: %d segments were moved to %s",
        *(directory.name, error.offset, until, len(names), damaged_directory),
    )


def _unused_path(path: Path) -> Path:
    """Return a path of this name that nothing has yet."""
    number, free = 1, path
    while free.exists():
        number, free = number + 1, path.with_name(f"{path.name}.{number}")
    return free


def _recovered(directory: Path, checkpoint: Checkpoint | None, visit: Recovered, boot_id: str) -> list[Segment]:
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
        damage = segment.recover(visit, recovery_point=recovery_point)
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
    """Check that the segment is there to which records were written, or a later one, and that it has some.

    Raises:
        DamagedLog: it is not.
    """
    is_missing = last is None or last.base_offset < base
    if is_missing or (last is not None and last.base_offset == base and not last.size):
        what = "is missing" if is_missing else "is empty"
        raise DamagedLog(
            f"partition {directory.name} is not opened: {Segment(directory, base).path} {what}, and records were written to it. "
            "Restore it from a backup. Or go on with what is there: start once with skip_damage (pyproducer broker "
            "--skip-damage)",
            offset=base + 1,
        )


def _without_deleted(directory: Path, checkpoint: Checkpoint | None) -> list[int]:
    """Remove the segment files that retention could not remove before a crash; return the base offsets of the others."""
    bases = Segment.base_offsets(directory)
    start = checkpoint.log_start_offset if checkpoint else 0
    first = max(bisect_right(bases, start) - 1, 0)  # the log may begin within a segment
    for base in bases[:first]:
        Segment(directory, base).remove()
    return bases[first:]


def _cut_torn_end(segment: Segment, damage: str, bases: list[int], recovery_point: int, *, same_boot: bool) -> None:
    """Cut the file after its good part, or raise DamagedLog if more than the end of the log is damaged.

    `same_boot`: the machine has not started again since records were written, so all that was written is there.
    """
    later = [base for base in bases if base > segment.base_offset]
    if (
        later
        or segment.next_offset < recovery_point
        or segment.has_later_batch()
        or (same_boot and segment.has_whole_batch())
    ):
        raise _damaged(segment, damage, later)
    lost = segment.path.stat().st_size - segment.size
    copied = _copied_aside(segment)
    segment.truncate()
    logger.warning(
        "%s: cut off %d bytes at byte %d, after offset %d, as a crash leaves them: %s. %s",
        *(segment.path, lost, segment.size, segment.next_offset - 1, damage, copied),
    )


def _damaged(segment: Segment, damage: str, later: list[int]) -> DamagedLog:
    directory = segment.path.parent
    also = f" and the {len(later)} segments after it" if later else ""
    return DamagedLog(
        f"partition {directory.name} is not opened: {segment.path} is damaged at byte {segment.size}, offset "
        f"{segment.next_offset} ({damage}), and no crash explains it, since later records are there or these were on the disk. "
        f"{_copied_aside(segment)}. Restore the file from a backup. Or give up all records from offset {segment.next_offset} "
        f"on{also}: start once with skip_damage (pyproducer broker --skip-damage)",
        offset=segment.next_offset,
        segment=segment,
    )


def _copied_aside(segment: Segment) -> str:
    """Copy the damaged file once, so that the original may safely be changed; return a sentence that says where the copy is."""
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


def _missing(where: Path, expected: int, found: int, *, later: bool) -> DamagedLog:
    """Return the error that records are gone, since the segment `where` is missing or ends too early."""
    return DamagedLog(
        f"partition {where.parent.name} is not opened: records from offset {expected} up to {found} were there and are missing "
        f"from {where.parent}: {where.name} is missing or too short. Restore its files from a backup. Or go on with what is "
        "there: start once with skip_damage (pyproducer broker --skip-damage)",
        offset=expected,
        first=-1 if later else found,
    )


def _last_written(directory: Path, checkpoint: Checkpoint, segments: list[Segment]) -> Path:
    """Return the segment in which the last records were."""
    written = checkpoint.written_segment
    if written > (segments[-1].base_offset if segments else -1):
        return Segment(directory, written).path
    return segments[-1].path if segments else Segment(directory, checkpoint.log_start_offset).path
