"""What keeps producers from sending more than the storage takes: the broker stops reading from them, and goes on later.

It is the publish buffer of Pulsar's brokers (`maxMessagePublishBufferSizeInMB`, `maxPendingPublishRequestsPerConnection`, the
reasons of `ServerCnxThrottleTracker`). There each thread has a share of the limit; here is one thread with all of it.

A Produce is counted from its handling to its answer. Before that it is in its connection's buffers, of which `budget` keeps
account, and nothing is read behind it; after that its batches are the storage's, which has limits of its own (`has_space`).
"""

from __future__ import annotations

import enum
import math
from typing import Final, Generic, TypeVar

from spark_producer.broker.memory.watermark import Watermark

UNLIMITED: Final = -1

MAX_REQUESTS: Final = 1000
"""A connection with so many Produces that are not answered is not read from (Pulsar's default)."""

ENOUGH_REQUESTS: Final = 500
"""It is read from again when no more than these are left."""

Owner = TypeVar("Owner")


class PauseReason(enum.Enum):
    """Why nothing is read from a connection that produces."""

    PUBLISH_BYTES = "too many bytes of all producers are not answered"
    WAITING_MEMORY = "the unanswered requests of all producers take too much memory"
    PENDING_REQUESTS = "too many of its own requests are not answered"
    STORAGE_SPACE = "the storage has no room for its next request"


class PublishBuffer(Generic[Owner]):
    """The Produces of all connections that are not answered. Only the server's thread uses it."""

    def __init__(self, limit: int, memory: Watermark) -> None:
        """Count up to `limit` bytes of requests, -1 for any number; and the `memory` that unanswered requests take besides."""
        self.bytes = Watermark(math.inf if limit == UNLIMITED else limit)
        self.memory = memory
        self.is_full = False
        """Whether nothing is read from any connection that produces."""
        self.pauses = 0
        """How many times a connection was paused."""
        self.paused_ms = 0.0
        """The milliseconds for which connections were paused, all of them together; those that are paused now are not counted."""
        self._publishers: set[Publisher[Owner]] = set()
        self._paused: dict[Publisher[Owner], float] = {}

    @property
    def paused(self) -> int:
        """The number of connections that are paused."""
        return len(self._paused)

    def change(self, size: int, memory: int) -> None:
        """Count so many more bytes of requests and of memory, or fewer if they are negative."""
        self.bytes.change(size)
        self.memory.change(memory)
        before, self.is_full = self.is_full, self.bytes.is_full or self.memory.is_full
        if self.is_full != before:
            for publisher in self._publishers:
                publisher.decide()

    def add(self, publisher: Publisher[Owner]) -> None:
        """Let the limits count for it, which has sent its first Produce."""
        self._publishers.add(publisher)

    def pause(self, publisher: Publisher[Owner], now: float) -> None:
        """Note that its owner has stopped, because it has a reason to; `take_resumed` names it later. Times are in seconds."""
        if publisher not in self._paused:
            self._paused[publisher] = now
            self.pauses += 1

    def take_resumed(self, now: float) -> list[Owner]:
        """Return the owners that were paused and have no reason any more, in the order in which they were paused."""
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
        """Return whether `take_resumed` would name anybody."""
        return bool(self._paused) and not self.is_full and any(not publisher.is_paused for publisher in self._paused)

    def space_freed(self) -> None:
        """Note that the storage has room again: all who wait for it may ask."""
        for publisher in self._paused:
            publisher.retry_space()

    def next_deadline(self) -> float:
        """Return the time at which the first one has waited long enough for room."""
        return min((publisher.deadline for publisher in self._paused if publisher.lacks_space), default=math.inf)

    def forget(self, publisher: Publisher[Owner]) -> None:
        """Forget one that has gone."""
        self._publishers.discard(publisher)
        self._paused.pop(publisher, None)


class Publisher(Generic[Owner]):
    """The part of one connection, the `owner`.

    produces: whether it has ever sent a Produce: no other connection is paused.
    is_paused: whether there is a reason to read nothing from it, and to handle no Produce of it. It is asked several times for
        each request, so it is found out when something changes.
    lacks_room: whether its next Produce waits for room in the storage.
    deadline: the time, in seconds of the server's clock, until which that Produce waits; infinite if it has not waited.
    """

    def __init__(self, buffer: PublishBuffer[Owner], owner: Owner) -> None:
        self._buffer = buffer
        self.owner = owner
        self.produces = False
        self.is_paused = False
        self.lacks_space = False
        self.deadline = math.inf
        self._requests = Watermark(MAX_REQUESTS - 1, ENOUGH_REQUESTS)
        self._bytes = self._memory = 0

    def begin(self) -> None:
        """Note that it has sent a Produce."""
        self.produces = True
        self._buffer.add(self)
        self.decide()

    def decide(self) -> None:
        """Find out whether it `is_paused`."""
        self.is_paused = self.produces and (self._buffer.is_full or self._requests.is_full or self.lacks_space)

    @property
    def reasons(self) -> frozenset[PauseReason]:
        """All reasons to read nothing from it."""
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
        """Let its next Produce wait for room, and return True; or False if it has waited for `throttle_s` seconds already."""
        self.deadline = min(self.deadline, now + throttle_s)
        self.lacks_space = now < self.deadline
        self.decide()
        return self.lacks_space

    def retry_space(self) -> None:
        """Let it ask again whether there is room."""
        self.lacks_space = False
        self.decide()

    def hold(self, size: int, memory: int) -> None:
        """Count a Produce of `size` bytes, of which `memory` bytes are kept until it is answered."""
        self._requests.change(1)
        self._change(size, memory)
        self.decide()

    def release(self, size: int, memory: int) -> None:
        """Count it no longer: it is answered."""
        self._requests.change(-1)
        self._change(-size, -memory)
        self.decide()

    def _change(self, size: int, memory: int) -> None:
        self._bytes += size
        self._memory += memory
        self._buffer.change(size, memory)

    def close(self) -> None:
        """Count nothing of it any longer, because its owner has gone."""
        self._buffer.forget(self)
        self._change(-self._bytes, -self._memory)
