"""The file `checkpoint` in a partition's directory, which notes how far the segments are on the disk and where the log begins."""

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
    """The two offsets that Kafka keeps in two checkpoint files, and what proves that the newest segment was there.

    recovery_point: all records before it were forced to the disk, so a crash cannot have torn them.
    log_start_offset: all records before it are deleted, though a segment with some of them may still exist.
    written_segment: the base offset of a segment to which records were written; -1 where none is noted.
    boot_id: in which run of the machine that was, in hexadecimal; empty where it is not known.
    """

    recovery_point: int
    log_start_offset: int
    written_segment: int = -1
    boot_id: str = ""


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """Return the checkpoint of a partition; None if there is none that can be read, so that the whole log must be checked."""
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
            raise ValueError(f"its checksum does not fit {stored}")
        if partition not in ("", directory.name):
            raise ValueError(f"it is the one of partition {partition}")
        if stored["format"] != _FORMAT or not _is_legal(checkpoint):
            raise ValueError(f"it has {stored}")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("%s is no checkpoint (%s): all records of the partition are checked", path, str(error)[:100])
        return None
    return checkpoint


def write_checkpoint(directory: Path, checkpoint: Checkpoint, *, sync: bool) -> None:
    """Replace the checkpoint.

    An older one that a loss of power leaves behind does harm only if segments were deleted since; `sync` prevents that.
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

    Without it, one flipped digit of `log_start_offset` could name a later segment, and all before that would be deleted. So it
    would be with the checkpoint of another partition, whose name is in the file for that.
    """
    fields: tuple[int | str, ...] = (*checkpoint, partition)
    if not partition:  # earlier versions wrote the offsets alone, and then the segment
        fields = checkpoint[:2] if checkpoint.written_segment < 0 else checkpoint
    checksum: int = crc32c(" ".join(map(str, fields)).encode())
    return checksum
