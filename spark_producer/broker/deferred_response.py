"""Delayed responses: of a Fetch until there is enough to read, of a Produce until its batches are confirmed.

A handler returns one in `HandlerResult.deferred`. The request loop encodes it once it is ready or its time has passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Final

_BASE_BYTES: Final = 2048
_KEY_BYTES: Final = 1024
"""Bytes of memory that are counted for a delayed response: a base, and an amount for each key (measured: some 650)."""


class DeferredResponse(ABC):
    """A response that is sent later (Kafka's DelayedOperation). Only the broker's thread uses it.

    keys: the keys that it waits for, as in `HandlerResult.changed`: when one of them changes, `is_ready` is checked.
    wait_s: the maximum wait in seconds; after it the response is sent, ready or not.
    size: the bytes of memory that are counted for it while it waits.
    """

    carries_records: ClassVar[bool] = False
    """Whether the response carries records, like a Fetch response. It is not built while too many such responses are unsent, and
    is sent before it is ready if delayed requests take too much memory."""

    allows_next_produce: ClassVar[bool] = False
    """Whether the connection's next request is handled meanwhile, if it is a Produce. Responses keep their order."""

    def __init__(self, keys: Iterable[Hashable], wait_s: float, size: int | None = None) -> None:
        self.keys = tuple(keys)
        self.wait_s = wait_s
        self.size = waiting_size(len(self.keys)) if size is None else size

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the response can be sent before `wait_s` has passed."""

    @abstractmethod
    def response(self, max_bytes: int) -> Any:
        """Return the response in its current state, ready or not; called once.

        Args:
            max_bytes: the maximum bytes of records in it, for responses with `carries_records`.
        """


def waiting_size(keys: int) -> int:
    """Return the bytes of memory that are counted for a response that waits for `keys` keys."""
    return _BASE_BYTES + _KEY_BYTES * keys
