"""The memory limit of all processes of this machine, or of their container, from Linux's control groups."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

_LIMITS = {"": ("/sys/fs/cgroup", "memory.max"), "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")}
"""Controller → the folder of its groups, and the file with a group's limit: control groups version 2, and version 1."""


@functools.cache
def machine_memory() -> int:
    """Return the bytes of the machine, or of the tightest control group around this process, which are read only once."""
    return smallest_limit(group_limits())


def smallest_limit(limits: list[int]) -> int:
    """Return the least of `limits` and of the bytes of the machine."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *limits])


def group_limits(root: str = "") -> list[int]:
    """Return the limits in bytes of the control groups around this process; `root` is put before every path.

    In a container the own group is at the top, but the path may be that of the host. So every folder up to the top is
    read (cgroups(7); kernel documentation, admin-guide/cgroup-v1/memory and cgroup-v2).
    """
    found = []
    for line in _read(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in _LIMITS:
                top, name = _LIMITS[controller]
                texts = [_read(f"{root}{top}{folder}/{name}").strip() for folder in _up(path)]
                found += [int(text) for text in texts if text.isdecimal()]
    return found


def _up(path: str) -> Iterator[str]:
    """Yield a folder and its parents, up to the top, which is an empty text."""
    folder = path.rstrip("/")
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - workers import no pathlib (`profiles`)
            return file.read()
    except OSError:  # not Linux, or no such group
        return ""
