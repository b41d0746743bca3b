"""How small the records of a topic become, learnt from its batches, so that batches fill their size *compressed*.

Owns: the estimates of one producer, by topic and codec (KIP-126). Must not know: how anything is
compressed.

A batch is expected to pack like the worst of the last ones. Kafka's CompressionRatioEstimator lowers its estimate by 0.005
for each batch instead: that takes hundreds of batches, which is little of 16 KiB and much of a megabyte, and larger steps go
wrong where data changes back and forth: a batch that comes out too large for its topic is sent twice and cut in two.
"""

from __future__ import annotations

from spark_producer.record.codecs import Codec

REMEMBERED = 16
"""Batches whose ratios count"""
SAFETY = 1.05
"""An open batch is taken to be this much larger than the estimate says."""

_NOTHING_KNOWN = (1.0,) * REMEMBERED


class CompressionRatios:
    """Compressed bytes per uncompressed byte, header excluded. Used by several threads: a lost update is harmless."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, Codec], tuple[float, ...]] = {}

    def estimate(self, topic: str, codec: Codec) -> float:
        """What to expect of the next batch: 1.0 until `REMEMBERED` of them are known."""
        return max(self._last.get((topic, codec), _NOTHING_KNOWN))

    def observe(self, topic: str, codec: Codec, ratio: float) -> None:
        """Learn from a closed batch. What does not get smaller is sent as it is: it counts as 1.0."""
        self._last[topic, codec] = (*self._last.get((topic, codec), _NOTHING_KNOWN)[1:], min(ratio, 1.0))
