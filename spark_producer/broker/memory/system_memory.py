"""The memory that the operating system reports: available to this process, resident, and in the page cache.

A value that a system does not report is None: only Linux has these files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path("/")

_LIMITS: Final = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files with the memory limit of a container, of cgroups v2 and v1."""

_CACHED: Final = re.compile(r"^Cached:\s+([0-9]+) kB$", re.MULTILINE)
_RESIDENT: Final = re.compile(r"^VmRSS:\s+([0-9]+) kB$", re.MULTILINE)


class SystemMemory(NamedTuple):
    """Memory in bytes; None where the system does not report it.

    available: available to this process: the machine's or its container's.
    resident: resident memory of this process.
    page_cache: in the page cache, for files of all processes.
    """

    available: int | None
    resident: int | None
    page_cache: int | None


def system_memory(root: Path = ROOT) -> SystemMemory:
    """Return the current values; `root` is the directory of the system's files."""
    limits = [limit for limit in (_physical(), *(_number(root / name) for name in _LIMITS)) if limit is not None]
    return SystemMemory(
        min(limits, default=None),
        _kilobytes(root / "proc/self/status", _RESIDENT),
        _kilobytes(root / "proc/meminfo", _CACHED),
    )


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """Return the number in a file; None if it holds something else, such as `max`."""
    text = _text(path).strip()
    return int(text) if text.isdigit() and len(text) < 20 else None


def _kilobytes(path: Path, line: re.Pattern[str]) -> int | None:
    found = line.search(_text(path))
    return int(found[1]) * 1024 if found else None
