"""The search for partitions whose readers of committed records get nothing more, since a transaction is open there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.offsets import LATEST, offsets
from spark_producer.cli.topic_reader import Isolation

STANDING = 5.0
"""Seconds for which a partition must stand at the same open transaction. Most end sooner, and need no word."""


class OpenTransactionNotifier:
    """Tells once of each partition that an open transaction holds its readers back.

    `positions` are the next offsets of the reader, as they are when this looks. `tell` gets the partition, the offset that is the
    next one for readers of committed records, and the end of the log.
    """

    def __init__(
        self,
        client: BlockingClient,
        topic: str,
        positions: Callable[[], Mapping[int, int]],
        tell: Callable[[int, int, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._topic = topic
        self._positions = positions
        self._report = tell
        self._clock = clock
        self._looked = clock()
        self._stands: dict[int, int] = {}
        """Where held partitions stood when they were looked at last."""
        self._told: set[int] = set()

    def look_now_and_then(self) -> None:
        """Look again after some seconds, and tell of the partitions that have not moved since.

        Raises: as `offsets`.
        """
        if self._clock() - self._looked < STANDING:
            return
        before, self._stands = self._stands, {}
        for partition, (stable, end) in self._held().items():
            self._stands[partition] = stable
            if before.get(partition) == stable:
                self._tell(partition, stable, end)
        self._looked = self._clock()

    def look(self) -> None:
        """Tell of each partition that is held back now.

        Raises: as `offsets`.
        """
        for partition, (stable, end) in self._held().items():
            self._tell(partition, stable, end)

    def _held(self) -> dict[int, tuple[int, int]]:
        """Return where readers of committed records stand, and where the log ends, of the partitions in which they differ."""
        positions = self._positions()
        wanted = [partition for partition in positions if partition not in self._told]
        if not wanted:
            return {}
        stable = offsets(self._client, self._topic, LATEST, wanted, isolation_level=Isolation.READ_COMMITTED)
        ends = offsets(self._client, self._topic, LATEST, wanted)
        return {at: (stable[at], ends[at]) for at in wanted if positions[at] >= stable[at] < ends[at]}

    def _tell(self, partition: int, stable: int, end: int) -> None:
        self._told.add(partition)
        self._report(partition, stable, end)
