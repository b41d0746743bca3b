"""Requests whose answer comes later: a Fetch until there is enough to read, a Produce until its batches are confirmed.

A handler returns such a request in `Answer.pending`. `clients` asks it for its response once it is ready or its time is up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Final

_BASE: Final = 2048
_FOR_EACH_KEY: Final = 1024
"""The bytes of memory that are counted for a waiting request: a base, and so many for each key (measured: some 650)."""


class DeferredResponse(ABC):
    """A request that is answered later. Only the broker's thread uses it.

    keys: what it waits for, as `Answer.changed` names it; whenever one of them changes, it is asked whether it `is_ready`.
    wait_s: the seconds that it may wait; after that it is answered all the same.
    size: the bytes of memory that are counted for it while it waits.
    """

    carries_records: ClassVar[bool] = False
    """Whether the answer carries records, as that of a Fetch: it is held back while too many of such answers wait to be sent, and
    it is answered before it is ready if requests that wait take too much memory."""

    allows_next_produce: ClassVar[bool] = False
    """Whether the connection's next request is handled meanwhile, if it is a Produce. Answers keep their order all the same."""

    def __init__(self, keys: Iterable[Hashable], wait_s: float, size: int | None = None) -> None:
        self.keys = tuple(keys)
        self.wait_s = wait_s
        self.size = waiting_size(len(self.keys)) if size is None else size

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the request need not wait any longer."""

    @abstractmethod
    def response(self, max_bytes: int) -> Any:
        """Return the response as it is true now, ready or not; it is called once.

        Args:
            room: the most bytes of records in the answer, for requests that `carries_records`.
        """


def waiting_size(keys: int) -> int:
    """Return the bytes of memory that a request which waits for so many keys takes."""
    return _BASE + _FOR_EACH_KEY * keys
