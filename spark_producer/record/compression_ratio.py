"""How small the records of a topic become, learnt from its batches, so that batches fill their size *compressed*.

Owns: the estimates of one producer, by topic and codec (spec: kafka_producer.md §2.4; Kafka's CompressionRatioEstimator,
which keeps them for the whole process). Must not know: how anything is compressed.
"""

from __future__ import annotations

from spark_producer.record.compression import Codec

IMPROVING_STEP = 0.005
"""How far one batch that packs better lowers the estimate: slowly, for a batch that comes out too large must be split."""
DETERIORATING_STEP = 0.05
"""How far one batch that packs worse raises it, at least."""
SAFETY = 1.05
"""An open batch is taken to be this much larger than the estimate says."""


class CompressionRatios:
    """Compressed bytes per uncompressed byte, header excluded. Used by several threads: a lost update is harmless."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, Codec], float] = {}

    def estimate(self, topic: str, codec: Codec) -> float:
        """What to expect of the next batch: 1.0 at first."""
        return self._ratios.get((topic, codec), 1.0)

    def observe(self, topic: str, codec: Codec, ratio: float) -> float:
        """Learn from a closed batch; the new estimate."""
        estimate = self.estimate(topic, codec)
        if ratio > estimate:
            estimate = max(estimate + DETERIORATING_STEP, ratio)
        elif ratio < estimate:
            estimate = max(estimate - IMPROVING_STEP, ratio)
        self._ratios[topic, codec] = estimate
        return estimate

    def reset(self, topic: str, codec: Codec, ratio: float) -> None:
        """Start again after a batch was too large for the broker; `ratio` is that batch's own."""
        self._ratios[topic, codec] = max(1.0, ratio)
