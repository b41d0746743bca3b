"""What the operating system says about the disk, in the broker's terms.

Owns: mapping OSError to KAFKA_STORAGE_ERROR, and making files and directory entries durable.
Must not know: what is stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_producer.broker import codes
from spark_producer.errors import BrokerError


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise KAFKA_STORAGE_ERROR, naming `path`, for every OSError inside."""
    try:
        yield
    except OSError as error:
        raise BrokerError(f"storage of {path} failed: {error}", code=codes.KAFKA_STORAGE_ERROR) from error


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: a file's own fsync does not promise that."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def sync_data(file: int) -> None:
    """Put a file's content on the disk (macOS has no fdatasync)."""
    getattr(os, "fdatasync", os.fsync)(file)
