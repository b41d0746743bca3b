"""Where a record ended up, for callers that send single records.

Owns: the value that a `Future` of `Producer.send` resolves to.
Must not know: how it became known.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """Topic, partition, offset (-1 if the broker did not say) and timestamp (milliseconds) of a written record."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class PendingRecord(NamedTuple):
    """A future that waits for its batch, and the record's place and timestamp in it."""

    future: Future[RecordMetadata]
    offset_delta: int
    timestamp: int
