"""The Linux socket option TCP_QUICKACK, for connections that other code has opened."""

from __future__ import annotations

import socket

QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Number of the option; None where the system lacks it. See tcp(7)."""


def set_quickack(descriptor: int, option: int | None = QUICK_ACK) -> bool:
    """Make the kernel acknowledge data on this TCP socket without delay, for a while; the caller keeps the socket.

    A peer that writes in small pieces without TCP_NODELAY waits for each acknowledgement (Nagle's algorithm, RFC 896), which
    Linux delays by 40 ms. The call sends a delayed one at once. The kernel delays again after a few exchanges (tcp(7): the option
    is not permanent).

    Returns:
        Whether the option was set. It is False if the socket is not TCP, and where the system lacks the option.
    """
    if option is None:
        return False
    try:
        # Without this flag a process with a default timeout (`socket.setdefaulttimeout`) would make the connection itself
        # non-blocking, and its owner's next read would end early.
        connection = socket.socket(type=socket.SOCK_NONBLOCK, fileno=descriptor)
    except OSError:
        return False
    try:
        kind = connection.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or kind != socket.SOCK_STREAM:
            return False
        connection.setsockopt(socket.IPPROTO_TCP, option, 1)
    except OSError:
        return False
    finally:
        connection.detach()  # the descriptor is not ours to close
    return True
