"""Files that hold a private key for as long as OpenSSL reads it, because Python's `ssl` takes keys from files only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from spark_producer.common.secret import Secret

_MEMORY_NAME = "pyproducer"


@contextmanager
def key_file(text: Secret) -> Iterator[str]:
    """Give the path of a file with `text` that nobody else can open, and that is gone afterwards.

    Where the system has files without a name in memory (memfd_create of Linux), nothing is written to a disk. Else it is a new
    file with mode 0600.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(_MEMORY_NAME, os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.reveal().encode())
            file.flush()
            path = f"/proc/self/fd/{descriptor}"
            if os.access(path, os.R_OK):  # it is not where /proc is not mounted
                yield path
                return
    descriptor, path = tempfile.mkstemp(prefix="pyproducer-")  # O_EXCL, 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.reveal().encode())
        yield path
    finally:
        os.unlink(path)  # noqa: PTH108  (a Path would do the same)
