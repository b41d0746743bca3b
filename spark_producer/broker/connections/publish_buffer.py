"""The publish buffer: while too many Produces await their response, the broker stops reading from producers.

It follows the publish buffer of Pulsar's brokers (`maxMessagePublishBufferSizeInMB`, `maxPendingPublishRequestsPerConnection`,
the reasons of `ServerCnxThrottleTracker`). Pulsar gives each thread a share of the limit; this broker has one thread with all of
it.

A Produce counts from its handling to its response. Before that, its bytes are in the buffers of its connection, which `budget`
limits; after that, its batches belong to the storage, which has limits of its own (`has_space`).
"""

from __future__ import annotations

import enum
import math
from typing import Final, Generic, TypeVar

from spark_producer.broker.memory.watermark import Watermark

UNLIMITED: Final = -1

MAX_REQUESTS: Final = 1000
"""Maximum number of Produces of one connection without a response, before it is not read from (Pulsar's default)."""

RESUME_REQUESTS: Final = 500
"""Number of Produces without a response at which the connection is read from again."""

Owner = TypeVar("Owner")


class PauseReason(enum.Enum):
    """The reasons to stop reading from a producer's connection."""

    PUBLISH_BYTES = "too many bytes of all producers await their response"
    WAITING_MEMORY = "the queued responses of all producers take too much memory"
    PENDING_REQUESTS = "too many of its own requests await their response"
    STORAGE_SPACE = "the storage has no space for its next request"


class PublishBuffer(Generic[Owner]):
    """The Produces of all connections that await their response. Only the server's thread uses it."""

    def __init__(self, limit: int, memory: Watermark) -> None:
        """Limit the bytes of requests to `limit`, -1 for no limit, and the `memory` that their queued responses take."""
        self.bytes = Watermark(math.inf if limit == UNLIMITED else limit)
        self.memory = memory
        self.is_full = False
        """Whether no producer's connection is read from."""
        self.pauses = 0
        """Number of times that a connection was paused."""
        self.paused_ms = 0.0
        """Total pause of all connections in milliseconds; pauses that have not ended are not counted."""
        self._publishers: set[Publisher[Owner]] = set()
        self._paused: dict[Publisher[Owner], float] = {}

    @property
    def paused(self) -> int:
        """Number of paused connections."""
        return len(self._paused)

    def change(self, size: int, memory: int) -> None:
        """Add bytes of requests and of memory; both may be negative."""
        self.bytes.change(size)
        self.memory.change(memory)
        before, self.is_full = self.is_full, self.bytes.is_full or self.memory.is_full
        if self.is_full != before:
            for publisher in self._publishers:
                publisher.decide()

    def add(self, publisher: Publisher[Owner]) -> None:
        """Apply the limits to a publisher, which has sent its first Produce."""
        self._publishers.add(publisher)

    def pause(self, publisher: Publisher[Owner], now: float) -> None:
        """Record that the connection is paused; `take_resumed` returns its owner later. Times are in seconds."""
        if publisher not in self._paused:
            self._paused[publisher] = now
            self.pauses += 1

    def take_resumed(self, now: float) -> list[Owner]:
        """Remove and return the owners that no longer have a reason to pause, in the order of their pauses."""
        if not self._paused:
            return []
        for publisher in self._paused:
            if publisher.deadline <= now:
                publisher.retry_space()
        resumed = [] if self.is_full else [publisher for publisher in self._paused if not publisher.is_paused]
        for publisher in resumed:
            self.paused_ms += (now - self._paused.pop(publisher)) * 1000
        return [publisher.owner for publisher in resumed]

    def has_resumable(self) -> bool:
        """Return whether `take_resumed` would return an owner."""
        return bool(self._paused) and not self.is_full and any(not publisher.is_paused for publisher in self._paused)

    def space_freed(self) -> None:
        """Let all paused publishers ask the storage for space again."""
        for publisher in self._paused:
            publisher.retry_space()

    def next_deadline(self) -> float:
        """Return the earliest deadline of the publishers that wait for space."""
        return min((publisher.deadline for publisher in self._paused if publisher.lacks_space), default=math.inf)

    def forget(self, publisher: Publisher[Owner]) -> None:
        """Forget a publisher whose connection is closed."""
        self._publishers.discard(publisher)
        self._paused.pop(publisher, None)


class Publisher(Generic[Owner]):
    """The Produce requests of one connection, the `owner`.

    produces: whether it has ever sent one; only such connections are paused.
    is_paused: whether nothing must be read from it, and none of its Produce requests handled. Several checks of each request
        read this, so it is computed when something changes.
    lacks_space: whether its next Produce request waits for space in the storage.
    deadline: the time, in seconds of the server's clock, until which that request waits; infinite if it has not waited.
    """

    def __init__(self, buffer: PublishBuffer[Owner], owner: Owner) -> None:
        self._buffer = buffer
        self.owner = owner
        self.produces = False
        self.is_paused = False
        self.lacks_space = False
        self.deadline = math.inf
        self._requests = Watermark(MAX_REQUESTS - 1, RESUME_REQUESTS)
        self._bytes = self._memory = 0

    def begin(self) -> None:
        """Record that the connection has sent its first Produce."""
        self.produces = True
        self._buffer.add(self)
        self.decide()

    def decide(self) -> None:
        """Compute `is_paused`."""
        self.is_paused = self.produces and (self._buffer.is_full or self._requests.is_full or self.lacks_space)

    @property
    def reasons(self) -> frozenset[PauseReason]:
        """All current reasons to pause."""
        if not self.produces:
            return frozenset()
        found = {
            PauseReason.PUBLISH_BYTES: self._buffer.bytes.is_full,
            PauseReason.WAITING_MEMORY: self._buffer.memory.is_full,
            PauseReason.PENDING_REQUESTS: self._requests.is_full,
            PauseReason.STORAGE_SPACE: self.lacks_space,
        }
        return frozenset(reason for reason, holds in found.items() if holds)

    def may_wait_for_space(self, now: float, throttle_s: float) -> bool:
        """Return True and let the next Produce wait for space, or False if it has waited for `throttle_s` seconds already."""
        self.deadline = min(self.deadline, now + throttle_s)
        self.lacks_space = now < self.deadline
        self.decide()
        return self.lacks_space

    def retry_space(self) -> None:
        """Let the next Produce ask the storage for space again."""
        self.lacks_space = False
        self.decide()

    def hold(self, size: int, memory: int) -> None:
        """Count a Produce of `size` bytes whose queued response takes `memory` bytes."""
        self._requests.change(1)
        self._change(size, memory)
        self.decide()

    def release(self, size: int, memory: int) -> None:
        """Stop counting a Produce whose response is sent."""
        self._requests.change(-1)
        self._change(-size, -memory)
        self.decide()

    def _change(self, size: int, memory: int) -> None:
        self._bytes += size
        self._memory += memory
        self._buffer.change(size, memory)

    def close(self) -> None:
        """Stop counting anything of this connection, which is closed."""
        self._buffer.forget(self)
        self._change(-self._bytes, -self._memory)
