"""How large batches of a topic may be where its brokers take less than `batch.size` (`max.message.bytes`).

Owns: what was refused and what was taken, by topic, and when a larger batch is tried. Must not know: batches, queues, pools.

As TCP finds its window: a refusal halves the limit. After a number of batches that were taken at the limit, one batch of twice
its size is tried, a probe: if it is taken, its size is the new limit, so a limit that was raised is used again; if it is
refused, it is split as any other, and twice as many batches pass before the next. No other batch is larger than what is known
to be taken: a probe costs one refused batch, at most one in `MOST_BETWEEN`.
"""

from __future__ import annotations

LEAST_LIMIT = 1024
"""Bytes: a topic's batches do not become smaller than that, or than `batch.size`, because its brokers refuse larger ones."""

FIRST_BETWEEN = 64
"""Batches that are taken at the limit before one of twice its size is tried: from 64 KiB to 1 MB that is 60 MB of records."""

MOST_BETWEEN = 256
"""The same, after probes were refused: they cost less than a hundredth of what is sent, for as long as the limit stays."""


class _Limit:
    __slots__ = ("between", "probing", "size", "taken")

    def __init__(self, size: int) -> None:
        self.size = size
        """bytes of a batch that the brokers take, as far as is known"""
        self.taken = 0
        """batches since the last probe that show the limit to be in use: they had more than half of it"""
        self.between = FIRST_BETWEEN
        self.probing = False
        """whether a probe was handed out of which nothing was heard yet"""


class TopicLimits:
    """Written by the I/O thread, read by task threads. There is no lock: whoever takes a topic out of `_due` has the probe."""

    def __init__(self, batch_size: int) -> None:
        """`batch_size`: bytes of a batch where no broker has refused one."""
        self._batch_size = batch_size
        self._limits: dict[str, _Limit] = {}
        self._due: set[str] = set()

    def __bool__(self) -> bool:
        """Whether any topic has a limit."""
        return bool(self._limits)

    def size(self, topic: str) -> int:
        """Bytes of a batch of this topic."""
        limit = self._limits.get(topic)
        return self._batch_size if limit is None else limit.size

    def new_size(self, topic: str) -> int:
        """Bytes of a batch that is opened now: twice as many if a larger one is to be tried."""
        limit = self._limits.get(topic)
        if limit is None:
            return self._batch_size
        if topic not in self._due:
            return limit.size
        try:
            self._due.remove(topic)
        except KeyError:  # another thread was faster
            return limit.size
        limit.probing = True
        return min(2 * limit.size, self._batch_size)

    def refused(self, topic: str, size: int) -> None:
        """A batch of `size` bytes was too large. If it was no larger than asked for, the topic gets batches of half its size;
        larger ones are probes, or were there before."""
        limit = self._limits.get(topic)
        if size <= (self._batch_size if limit is None else limit.size):
            self._limits[topic] = _Limit(min(max(LEAST_LIMIT, size // 2), self._batch_size))
            self._due.discard(topic)
        elif limit is not None and limit.probing:
            limit.probing = False
            limit.between = min(2 * limit.between, MOST_BETWEEN)

    def taken(self, topic: str, size: int) -> None:
        """A batch of `size` bytes was acknowledged."""
        limit = self._limits.get(topic)
        if limit is None:
            return
        if size >= self._batch_size:
            self.forget(topic)
        elif size > limit.size:
            limit.size = size
            if limit.probing:
                limit.probing, limit.between = False, FIRST_BETWEEN
        elif 2 * size > limit.size:
            limit.taken += 1
            if limit.taken >= limit.between:
                limit.taken = 0
                self._due.add(topic)

    def forget(self, topic: str) -> None:
        """The topic has no limit that is known of."""
        self._limits.pop(topic, None)
        self._due.discard(topic)
