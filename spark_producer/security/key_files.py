"""Temporary files for private keys, because Python's `ssl` reads keys only from files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from spark_producer.common.secret import Secret

_MEMORY_NAME = "pyproducer"


@contextmanager
def key_file(text: Secret) -> Iterator[str]:
    """Yield the path of a file with `text` that only this process can open, and delete it afterwards.

    On Linux it is an anonymous file in memory (memfd_create), so that nothing is written to a disk; elsewhere a new file with
    mode 0600.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(_MEMORY_NAME, os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.reveal().encode())
            file.flush()
            path = f"/proc/self/fd/{descriptor}"
            if os.access(path, os.R_OK):  # false where /proc is not mounted
                yield path
                return
    descriptor, path = tempfile.mkstemp(prefix="pyproducer-")  # O_EXCL, 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.reveal().encode())
        yield path
    finally:
        os.unlink(path)  # noqa: PTH108  (a Path would do no better)
