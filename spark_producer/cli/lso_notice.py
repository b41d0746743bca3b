"""Notices about partitions in which an open transaction blocks readers of committed records: their LSO is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import LATEST

CHECK_INTERVAL = 5.0
"""Seconds between two checks. Only an LSO that has not moved between them is reported, because most transactions end sooner."""


class OpenTransactionNotifier:
    """Reports each partition once in which an open transaction blocks readers of committed records.

    `positions` returns the next offsets of the reader. `notify` gets the partition, its last stable offset (LSO), and the end of
    its log.
    """

    def __init__(
        self,
        client: BlockingClient,
        topic: str,
        positions: Callable[[], Mapping[int, int]],
        notify: Callable[[int, int, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._topic = topic
        self._positions = positions
        self._notify = notify
        self._clock = clock
        self._checked_at = clock()
        self._stable_offsets: dict[int, int] = {}
        """The LSO of each blocked partition at the last check."""
        self._reported: set[int] = set()

    def check_periodically(self) -> None:
        """Check again after `CHECK_INTERVAL`, and report the partitions whose LSO has not moved since.

        Raises: as `offsets`.
        """
        if self._clock() - self._checked_at < CHECK_INTERVAL:
            return
        before, self._stable_offsets = self._stable_offsets, {}
        for partition, (stable, end) in self._blocked().items():
            self._stable_offsets[partition] = stable
            if before.get(partition) == stable:
                self._report(partition, stable, end)
        self._checked_at = self._clock()

    def check(self) -> None:
        """Report each partition that is blocked now.

        Raises: as `offsets`.
        """
        for partition, (stable, end) in self._blocked().items():
            self._report(partition, stable, end)

    def _blocked(self) -> dict[int, tuple[int, int]]:
        """Return the LSO and the end of the log of each partition that is read up to its LSO, and whose end is later."""
        positions = self._positions()
        wanted = [partition for partition in positions if partition not in self._reported]
        if not wanted:
            return {}
        stable = offsets(self._client, self._topic, LATEST, wanted, isolation_level=IsolationLevel.READ_COMMITTED)
        ends = offsets(self._client, self._topic, LATEST, wanted)
        return {at: (stable[at], ends[at]) for at in wanted if positions[at] >= stable[at] < ends[at]}

    def _report(self, partition: int, stable: int, end: int) -> None:
        self._reported.add(partition)
        self._notify(partition, stable, end)
