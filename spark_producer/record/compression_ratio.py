"""Estimates of how well the records of each topic compress, so that batches reach their size after compression (KIP-126).

A producer derives them from its batches, by topic and codec. It expects a batch to compress like the worst of the last ones.
Kafka's CompressionRatioEstimator lowers its estimate by 0.005 for each batch instead. That takes hundreds of batches, which
is little data at 16 KiB a batch and much at a megabyte. Larger steps fail where data change back and forth: a batch that
turns out too large for its topic is sent twice and cut in two.
"""

from __future__ import annotations

from spark_producer.record.codecs import Codec

REMEMBERED = 16
"""The number of batches whose ratios count."""
SAFETY = 1.05
"""The factor by which an open batch is assumed to exceed the estimate."""

_NOTHING_KNOWN = (1.0,) * REMEMBERED


class CompressionRatios:
    """Compressed bytes per uncompressed byte, without the header. Several threads use it; a lost update does no harm."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, Codec], tuple[float, ...]] = {}

    def estimate(self, topic: str, codec: Codec) -> float:
        """Return the ratio to expect of the next batch, which is 1.0 until `REMEMBERED` batches are known."""
        return max(self._last.get((topic, codec), _NOTHING_KNOWN))

    def observe(self, topic: str, codec: Codec, ratio: float) -> None:
        """Add the ratio of a closed batch. A batch that does not get smaller is sent uncompressed, so it counts as 1.0."""
        self._last[topic, codec] = (*self._last.get((topic, codec), _NOTHING_KNOWN)[1:], min(ratio, 1.0))
