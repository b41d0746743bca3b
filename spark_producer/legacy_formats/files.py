"""The rewriting of log files in an older message format, for `pyproducer downconvert`; no half-written file remains."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from spark_producer.errors import ConfigError
from spark_producer.legacy_formats import record_sets
from spark_producer.legacy_formats.down_conversion import ConversionLoss


def convert_file(
    log: Path, output: Path, *, message_format_version: str, compression_type: str = "none"
) -> tuple[int, ConversionLoss]:
    """Rewrite `log` into `output`, which must not exist; return the bytes written, and the losses.

    `output` gets its name when it is complete. Until then it has another name in the same directory, and is removed if the
    conversion ends early, also by Ctrl-C. `log` must not get shorter meanwhile: it is mapped into memory, and reading past its
    end kills the process (SIGBUS). Its size is checked before each set, which makes this unlikely.

    Raises:
        ConfigError: `log` is not a regular file, or got shorter; `output` exists; one of them cannot be read or written; or
            there is no such version or codec.
        RecordBatchError, CorruptRecord: As in `record_sets.convert`.
    """
    try:
        with open(log, "rb", opener=_open_at_once) as source:
            data = _content(source, log)
            sets = record_sets.convert(
                data, message_format_version=message_format_version, compression_type=compression_type
            )
            return write_sets(_while_whole(sets, source, log, len(data)), output)
    except OSError as error:
        raise ConfigError(f"cannot convert {log} into {output}: {error}") from None


def write_sets(sets: Iterable[tuple[bytes, ConversionLoss]], output: Path) -> tuple[int, ConversionLoss]:
    """Write a new file of these sets, which appears when it is complete; return its bytes, and the sum of the losses.

    Raises:
        FileExistsError: There is such a file already, or by the time of the last set. OSError: it cannot be written.
    """
    with _whole_or_not_at_all(output) as target:
        written, lost = 0, ConversionLoss()
        for messages, missing in sets:
            written += target.write(messages)
            lost = lost.plus(missing)
    return written, lost


def _while_whole(
    sets: Iterable[tuple[bytes, ConversionLoss]], source: BinaryIO, log: Path, size: int
) -> Iterator[tuple[bytes, ConversionLoss]]:
    """Yield the sets, as long as the log that they are read from is not shorter than it was."""
    for one in sets:
        if os.fstat(source.fileno()).st_size < size:
            raise ConfigError(
                f"{log} cannot be converted: it got shorter while it was read. Convert a copy that is not written to"
            )
        yield one


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for the other end if the file is a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _content(source: BinaryIO, log: Path) -> memoryview:
    status = os.fstat(source.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(
            f"{log} cannot be converted: it is not a regular file, but a pipe or a device. Copy its content into a file first"
        )
    if status.st_size == 0:
        return memoryview(b"")
    return memoryview(mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ))


@contextlib.contextmanager
def _whole_or_not_at_all(output: Path) -> Iterator[BinaryIO]:
    """Open a new file that becomes `output` at the end, or is removed if there was an error."""
    if os.path.lexists(output):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(output))
    unfinished = output.with_name(f".pyproducer-{secrets.token_hex(6)}.part")
    try:
        with unfinished.open("xb") as target:
            yield target
        output.open("xb").close()  # fails if there is one by now; only our own, empty file is replaced
        try:
            unfinished.replace(output)
        except BaseException:
            output.unlink(missing_ok=True)
            raise
    finally:
        unfinished.unlink(missing_ok=True)
