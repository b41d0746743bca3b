"""Partitions of rows without a key: stay on one until it has a batch's worth of bytes, then move (KIP-480, KIP-794).

Owns: the current partition of each topic and the bytes it got.
Must not know: keys, or whether a batch was really sent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spark_producer.errors import ConfigError


class StickyPartitioner:
    """Hands out partitions in runs: it is asked once per run of `batch_size` bytes, never per row.

    The starting point is random, so that the many producers of a Spark job cover all partitions evenly.

    Raises (constructor):
        ConfigError: `batch_size` below 1: no run would ever end.
    """

    def __init__(self, batch_size: int, choose: random.Random | None = None) -> None:
        if batch_size < 1:
            raise ConfigError(f"the sticky partitioner needs a batch size of at least 1, not {batch_size}")
        self._batch_size = batch_size
        self._random = choose or random.Random()
        self._current: dict[str, int] = {}
        self._produced: dict[str, int] = {}

    def assign(self, topic: str, sizes: npt.NDArray[np.int64], available: Sequence[int]) -> npt.NDArray[np.int32]:
        """One partition per row of `sizes` (bytes each), chosen among the `available` ones."""
        partitions = np.empty(len(sizes), dtype=np.int32)
        ends = np.cumsum(sizes)
        row, before = 0, 0
        current, produced = self._current.get(topic), self._produced.get(topic, 0)
        while row < len(sizes):
            if current is None or current not in available or produced >= self._batch_size:
                current, produced = self._next(current, available), 0
            until = int(np.searchsorted(ends, before + self._batch_size - produced, side="left")) + 1
            until = min(until, len(sizes))
            partitions[row:until] = current
            produced += int(ends[until - 1]) - before
            row, before = until, int(ends[until - 1])
        if current is not None:
            self._current[topic], self._produced[topic] = current, produced
        return partitions

    def _next(self, current: int | None, available: Sequence[int]) -> int:
        others = [partition for partition in available if partition != current]
        return self._random.choice(others or list(available))
