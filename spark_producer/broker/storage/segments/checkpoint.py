"""The file `checkpoint` in a partition's directory, which notes how far the segments are on the disk and where the log begins."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.disk import write_private
from spark_producer.record.checksum import crc32c

logger = logging.getLogger(__name__)

NAME: Final = "checkpoint"
_FORMAT: Final = 1


class Checkpoint(NamedTuple):
    """The two offsets that Kafka keeps in two checkpoint files.

    recovery_point: all records before it were forced to the disk, so a crash cannot have torn them.
    log_start_offset: all records before it are deleted, though a segment with some of them may still exist.
    """

    recovery_point: int
    log_start_offset: int


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """Return the checkpoint of a partition; None if there is none that can be read, so that the whole log must be checked."""
    path = directory / NAME
    try:
        stored = json.loads(path.read_text())
        checkpoint = Checkpoint(stored["recovery_point"], stored["log_start_offset"])
        if stored.get("crc32c", _crc(checkpoint)) != _crc(checkpoint):  # earlier versions wrote none
            raise ValueError(f"its checksum does not fit {stored}")
        if stored["format"] != _FORMAT or any(type(offset) is not int or offset < 0 for offset in checkpoint):
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
    write_private(directory / NAME, json.dumps(_content(checkpoint)), sync=sync)


def _content(checkpoint: Checkpoint) -> dict[str, int]:
    return {"format": _FORMAT, **checkpoint._asdict(), "crc32c": _crc(checkpoint)}


def _crc(checkpoint: Checkpoint) -> int:
    """Return a checksum of the checkpoint.

    Without it, one flipped digit of `log_start_offset` could name a later segment, and all before that would be deleted.
    """
    checksum: int = crc32c(" ".join(map(str, checkpoint)).encode())
    return checksum
