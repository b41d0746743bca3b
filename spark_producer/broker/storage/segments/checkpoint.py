"""The file `checkpoint` in a partition's directory: its recovery point and log start offset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.disk import write_private
from spark_producer.common.escape import escaping_logger
from spark_producer.record.checksum import crc32c

logger = escaping_logger(__name__)

NAME: Final = "checkpoint"
_FORMAT: Final = 1


class Checkpoint(NamedTuple):
    """The two offsets that Kafka has in two checkpoint files, and the newest segment, so that its loss is detected.

    recovery_point: all records before it were forced to the disk, so a crash cannot have torn them.
    log_start_offset: all records before it are deleted, though a segment with some of them may still exist.
    written_segment: base offset of the newest segment with records; -1 if unknown.
    boot_id: boot id of the machine when the segment was written, in hexadecimal; empty if unknown.
    """

    recovery_point: int
    log_start_offset: int
    written_segment: int = -1
    boot_id: str = ""


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """Return the checkpoint of a partition; None if it is missing or unreadable: then the whole log must be checked."""
    path = directory / NAME
    try:
        stored = json.loads(path.read_text())
        checkpoint = Checkpoint(
            *(stored["recovery_point"], stored["log_start_offset"]),
            written_segment=stored.get("written_segment", -1),
            boot_id=stored.get("boot_id", ""),
        )
        partition = stored.get("partition", "")  # earlier versions wrote none, and no checksum
        if stored.get("crc32c", _crc(checkpoint, partition)) != _crc(checkpoint, partition):
            raise ValueError(f"its checksum does not match {stored}")
        if partition not in ("", directory.name):
            raise ValueError(f"it belongs to partition {partition}")
        if stored["format"] != _FORMAT or not _is_legal(checkpoint):
            raise ValueError(f"it has {stored}")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning(
            "%s cannot be read as a checkpoint: %s. All records of the partition are checked", path, str(error)[:100]
        )
        return None
    return checkpoint


def write_checkpoint(directory: Path, checkpoint: Checkpoint, *, sync: bool) -> None:
    """Replace the checkpoint.

    If a power failure restores the old one, that matters only if segments were deleted since; `sync` prevents it.
    """
    write_private(directory / NAME, json.dumps(_content(checkpoint, directory.name)), sync=sync)


def _is_legal(checkpoint: Checkpoint) -> bool:
    offsets = checkpoint[:3]
    return all(type(offset) is int for offset in offsets) and min(offsets[:2]) >= 0 and isinstance(checkpoint[3], str)


def _content(checkpoint: Checkpoint, partition: str) -> dict[str, int | str]:
    fields = {"format": _FORMAT, "partition": partition, **checkpoint._asdict()}
    return {**fields, "crc32c": _crc(checkpoint, partition)}


def _crc(checkpoint: Checkpoint, partition: str) -> int:
    """Return a checksum of the checkpoint.

    Without it, one flipped digit of `log_start_offset` could name a later segment, and all segments before that would be deleted.
    The name of the partition is in the file because the checkpoint of another partition would have the same effect.
    """
    fields: tuple[int | str, ...] = (*checkpoint, partition)
    if not partition:  # earlier versions wrote only the offsets, later also the segment
        fields = checkpoint[:2] if checkpoint.written_segment < 0 else checkpoint
    checksum: int = crc32c(" ".join(map(str, fields)).encode())
    return checksum
