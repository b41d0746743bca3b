"""One socket option of Linux, for a connection that somebody else made: acknowledge at once.

Owns: the option. Must not know: whose connection it is.
"""

from __future__ import annotations

import socket

_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux only; see tcp(7)."""


def acknowledge_at_once(descriptor: int) -> bool:
    """Let the kernel acknowledge what arrives on this TCP socket without delay, for a while; the caller keeps the socket.

    A delayed acknowledgement, 40 ms on Linux, makes a peer wait that writes in small pieces without TCP_NODELAY (Nagle's
    algorithm, RFC 896). The kernel sends one that it holds back now, and goes back to delays by itself after a few exchanges
    (tcp(7): the option is not permanent).

    Returns:
        Whether it was done: False for anything but a TCP socket, and where the system does not know the option.
    """
    if _QUICK_ACK is None:
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
        connection.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
    except OSError:
        return False
    finally:
        connection.detach()  # the descriptor is not ours to close
    return True
