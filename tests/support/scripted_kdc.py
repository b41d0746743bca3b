"""A KDC by script: it refuses every request with one number of RFC 4120, or never answers.

Owns: the encoding of KRB-ERROR (RFC 4120, 5.9.1). Must not know: the package under test.
"""

from __future__ import annotations

import socket
import threading
from typing import Self

REALM = "TEST.PYPRODUCER"
SKEW = 37
"""KRB_AP_ERR_SKEW: the clocks differ too much."""


class ScriptedKdc:
    """Context manager: one UDP socket. With `code` None it never answers."""

    def __init__(self, code: int | None) -> None:
        self._code = code
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.requests = 0
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="scripted-kdc")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(20)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            _, sender = self._socket.recvfrom(65_536)
            if self._closing:
                return
            self.requests += 1
            if self._code is not None:
                self._socket.sendto(krb_error(self._code), sender)


def krb_error(code: int) -> bytes:
    """Return a KRB-ERROR with a number."""
    text = [_tagged(0x1B, part.encode()) for part in ("krbtgt", REALM)]
    name = _tagged(0x30, _field(0, _tagged(2, b"\x02")) + _field(1, _tagged(0x30, b"".join(text))))
    fields = (
        _field(0, _tagged(2, b"\x05")),
        _field(1, _tagged(2, b"\x1e")),
        _field(4, _tagged(0x18, b"20260101000000Z")),
        _field(5, _tagged(2, b"\x00")),
        _field(6, _tagged(2, bytes([code]))),
        _field(9, text[1]),
        _field(10, name),
    )
    return _tagged(0x7E, _tagged(0x30, b"".join(fields)))


def _field(number: int, content: bytes) -> bytes:
    return _tagged(0xA0 + number, content)


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([tag, size] if size < 128 else [tag, 0x81, size]) + content
