"""Free TCP ports of this machine.

Owns: the choice of ports for servers that get their port before they start.
Must not know: the servers.
"""

from __future__ import annotations

import os
import random
import socket

# Below Linux's range for outgoing connections (32768 and up): a port that is free now, and again after its
# server's restart, is not taken in between by another outgoing connection.
_RANGE = (15_000, 32_000)

# The processes of one test run each have ports of their own: one must not use the port of another.
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return `count` distinct ports that nothing listens on and that this process has not given out before."""
    found: list[int] = []
    ours = range(_RANGE[0] + _PROCESS, _RANGE[1], _PROCESSES)
    for port in random.SystemRandom().sample(ours, len(ours)):
        if len(found) == count:
            break
        if port not in _given and _is_free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"fewer than {count} free ports between {_RANGE[0]} and {_RANGE[1]}")
    _given.update(found)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
