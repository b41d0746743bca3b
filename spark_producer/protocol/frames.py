"""Cuts a received byte stream into frames, and provides the memory for the next bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from spark_producer.errors import RemoteProtocolError

_SIZE = struct.Struct(">i")

STAGING_BYTES = 64 * 1024
"""Small frames are received together, so that many pipelined frames cost one system call."""

MAX_SMALL_FRAME_BYTES = STAGING_BYTES - _SIZE.size
"""A larger frame is received into memory of its own."""

DEFAULT_MAX_FRAME_SIZE = 128 * 1024 * 1024

_ALERT = b"\x15\x03"
_FOREIGN_STARTS = (
    (b"HTTP", "it answers in HTTP; this is the port of a web server"),
    (b"SSH-", "it answers in SSH; this is not a broker's port"),
    (_ALERT, "it answers with a TLS alert; this is a TLS port, see security.protocol"),
    (b"\x16\x03", "it starts a TLS handshake; this port speaks plain text, see security.protocol"),
    (b"GET ", "it sends an HTTP request"),
    (b"POST", "it sends an HTTP request"),
)


_NO_MEMORY = memoryview(b"")


def _always(_: int) -> bool:
    """Admit every frame; this is the default of `admit`."""
    return True


class FrameReader:
    """Cuts a stream into frames, each without its size.

    Receive into `space()`, then call `received` with the number of bytes. A small frame is copied once, out of the
    staging area; a large one is received straight into its own memory. A returned frame owns its memory, and its owner may
    write to it.

    `admit` is asked with the size of each large frame before memory is taken for it. If it refuses, `wanted` is that
    size, and nothing may be received until `received(0)`, which asks again, has made it 0.

    `max_frame_size` applies to later frames: a peer that has logged in may be allowed larger ones.
    """

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE, admit: Callable[[int], bool] = _always) -> None:
        self.max_frame_size = max_frame_size
        """maximum bytes of a frame; it may be raised for an authenticated peer"""
        self._admit = admit
        self.wanted = 0
        self._staging = bytearray(STAGING_BYTES)
        self._filled = 0
        self._large = _NO_MEMORY
        self._large_size = 0
        self._large_filled = 0

    def space(self) -> memoryview:
        """Return the memory for the next bytes, which is never empty."""
        if self._large_size:
            return self._large[self._large_filled :]
        if not self._staging:
            self._staging = bytearray(STAGING_BYTES)
        return memoryview(self._staging)[self._filled :]

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and is not whole yet."""
        return bool(self._filled or self._large_size)

    @property
    def in_large_frame(self) -> bool:
        """Whether that frame is a large one that was admitted."""
        return bool(self._large_size)

    def rest(self) -> None:
        """Free the staging area until bytes arrive, if it is empty; this matters if there are many readers."""
        if not self._filled:
            self._staging = bytearray()

    def forget(self) -> None:
        """Free the memory of a frame that will never be whole, because no more bytes come."""
        self._staging, self._large = bytearray(), _NO_MEMORY
        self._filled = self._large_size = self._large_filled = 0

    def received(self, count: int) -> list[memoryview]:
        """Record that `count` bytes were put at the start of `space()`, and return the frames that are now complete.

        Raises:
            RemoteProtocolError: The next frame claims a negative size, or more than the maximum; `tls_alert` says whether it
                is an alert of TLS instead. If whole frames lie before it, they are returned first, and the next call
                (`received(0)` will do) raises.
        """
        if self._large_size:
            return self._received_large(count)
        self._filled += count
        return self._cut()

    def receive(self, data: bytes) -> list[memoryview]:
        """Do the same for bytes in other memory, which are copied."""
        frames: list[memoryview] = []
        view = memoryview(data)
        while view:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            frames += self.received(count)
            view = view[count:]
        return frames

    def _received_large(self, count: int) -> list[memoryview]:
        self._large_filled += count
        if self._large_filled < self._large_size:
            return []
        frame = self._large
        self._large, self._large_size, self._large_filled = _NO_MEMORY, 0, 0
        return [frame]

    def _cut(self) -> list[memoryview]:
        frames: list[memoryview] = []
        position = 0
        while self._filled - position >= _SIZE.size:
            size = self._size_at(position)
            if not 0 <= size <= self.max_frame_size:
                if frames:
                    break
                raise self._fault(size)
            start = position + _SIZE.size
            if start + size > self._filled:
                if size > MAX_SMALL_FRAME_BYTES:
                    self.wanted = 0 if self._admit(size) else size
                    if not self.wanted:
                        self._start_large(start, size)
                        position = self._filled
                break
            frames.append(memoryview(self._staging[start : start + size]))
            position = start + size
        self._staging[: self._filled - position] = self._staging[position : self._filled]
        self._filled -= position
        return frames

    def _start_large(self, start: int, size: int) -> None:
        have = self._filled - start
        # The system gives memory when it is first written: a declared size is only a claim.
        self._large = np.empty(size, dtype=np.uint8).data
        self._large[:have] = memoryview(self._staging)[start : self._filled]
        self._large_size, self._large_filled = size, have

    def _size_at(self, position: int) -> int:
        size: int = _SIZE.unpack_from(self._staging, position)[0]
        return size

    def _fault(self, size: int) -> RemoteProtocolError:
        start = _SIZE.pack(size)
        hint = next((text for prefix, text in _FOREIGN_STARTS if start.startswith(prefix)), None)
        return RemoteProtocolError(
            f"the peer announces a frame of {size} bytes, allowed are 0 to {self.max_frame_size}: "
            + (hint or "it may not speak the Kafka protocol. Check host, port and security.protocol"),
            tls_alert=start.startswith(_ALERT),
        )
