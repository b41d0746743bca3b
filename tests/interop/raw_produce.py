"""Produce requests made by hand, in versions 0 to 7, so that a test says which bytes a broker gets.

Owns: these frames (Kafka's protocol guide, Produce API). Must not know: the package under test.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple, Self

SECONDS = 60.0
_LATER_FIELDS = {2: 8, 5: 8}
"""version → bytes of a field that its answer has more: log append time, log start offset"""


class Answer(NamedTuple):
    """The broker's answer for the one partition."""

    error: int
    base_offset: int


class RawProducer:
    """One connection to the broker that leads the partitions; every wait ends after a minute with TimeoutError."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), SECONDS)
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def produce(self, topic: str, records: bytes | memoryview, version: int = 7, partition: int = 0) -> Answer:
        """Send one batch (or message set) with acks=all and wait for the answer."""
        self._sent += 1
        name = struct.pack(">h", len(topic)) + topic.encode()
        body = b"".join((
            struct.pack(">hhi", 0, version, self._sent),
            struct.pack(">h", 4) + b"test",
            struct.pack(">h", -1) if version >= 3 else b"",  # no transactional id
            struct.pack(">hii", -1, 30_000, 1),
            name,
            struct.pack(">iii", 1, partition, len(records)),
            records,
        ))  # fmt: skip
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        fixed = struct.Struct(f">ii{len(name)}siihq")
        correlation, topics, _, partitions, index, error, base_offset = fixed.unpack_from(answer)
        assert (correlation, topics, partitions, index) == (self._sent, 1, 1, partition)
        later = sum(width for since, width in _LATER_FIELDS.items() if version >= since)
        assert size == fixed.size + later + (4 if version >= 1 else 0)
        return Answer(error, base_offset)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            assert piece, f"the broker closed after {len(data)} of {count} bytes"
            data += piece
        return bytes(data)
