"""The size limits for batches of topics whose brokers accept less than `batch.size` (`max.message.bytes`).

A limit is found as TCP finds its window: a rejected batch halves it. After a number of batches at the limit were acknowledged,
one batch of twice the limit is tried, which is called a probe. If the probe is acknowledged, its size is the new limit, so a
limit that was raised on the brokers is used again. If it is rejected, it is split like any other batch, and twice as many
batches pass before the next probe. No other batch is larger than the limit. A probe costs one rejected batch, in the long run
at most one in `MAX_BATCHES_BETWEEN_PROBES`.
"""

from __future__ import annotations

MIN_LIMIT_BYTES = 1024
"""Minimum limit of a topic in bytes, or `batch.size` if that is less."""

FIRST_BETWEEN = 64
"""The number of acknowledged batches at the limit before the first probe. From 64 KiB to 1 MB that is 60 MB of records."""

MAX_BATCHES_BETWEEN_PROBES = 256
"""Maximum number of such batches, after probes were rejected. Probes then cost less than a hundredth of what is sent."""


class _Limit:
    __slots__ = ("between", "probing", "size", "taken")

    def __init__(self, size: int) -> None:
        self.size = size
        """the bytes of a batch that the brokers are known to accept"""
        self.taken = 0
        """acknowledged batches since the last probe that were larger than half of the limit, so that the limit matters"""
        self.between = FIRST_BETWEEN
        self.probing = False
        """whether a probe is under way"""


class TopicLimits:
    """The limits by topic. The I/O thread writes them, and task threads read them.

    There is no lock: the thread that removes a topic from `_due` opens the probe.
    """

    def __init__(self, batch_size: int) -> None:
        """`batch_size` is the size of a batch in bytes for topics without a limit."""
        self._batch_size = batch_size
        self._limits: dict[str, _Limit] = {}
        self._due: set[str] = set()

    def __bool__(self) -> bool:
        """Return whether any topic has a limit."""
        return bool(self._limits)

    def size(self, topic: str) -> int:
        """Return the size of a batch of this topic in bytes."""
        limit = self._limits.get(topic)
        return self._batch_size if limit is None else limit.size

    def new_size(self, topic: str) -> int:
        """Return the size in bytes of a batch that is opened now, which is doubled for a probe."""
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
        """Record that a broker rejected a batch of `size` bytes as too large.

        If it was within the limit, the limit becomes half its size. A larger batch is a probe, or older than the limit.
        """
        limit = self._limits.get(topic)
        if size <= (self._batch_size if limit is None else limit.size):
            self._limits[topic] = _Limit(min(max(MIN_LIMIT_BYTES, size // 2), self._batch_size))
            self._due.discard(topic)
        elif limit is not None and limit.probing:
            limit.probing = False
            limit.between = min(2 * limit.between, MAX_BATCHES_BETWEEN_PROBES)

    def taken(self, topic: str, size: int) -> None:
        """Record that a batch of `size` bytes was acknowledged."""
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
        """Forget the limit of a topic."""
        self._limits.pop(topic, None)
        self._due.discard(topic)
