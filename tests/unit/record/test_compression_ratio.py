"""CR1: how the estimate of a topic's compression moves (spec §2.4)."""

from __future__ import annotations

import pytest

from spark_producer.record.compression import Codec
from spark_producer.record.compression_ratio import CompressionRatios


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (0.5, 0.995),  # better: one small step
        (0.998, 0.998),  # better by less than a step: what was seen
        (1.0, 1.0),
        (1.01, 1.05),  # worse: a step at least
        (1.5, 1.5),  # much worse: at once
    ],
)
def test_cr1_the_estimate_falls_slowly_and_rises_fast(observed: float, expected: float) -> None:
    ratios = CompressionRatios()
    assert ratios.estimate("t", Codec.LZ4) == 1.0
    assert ratios.observe("t", Codec.LZ4, observed) == pytest.approx(expected)
    assert ratios.estimate("t", Codec.LZ4) == pytest.approx(expected)


def test_cr1_it_reaches_what_is_observed_and_stays() -> None:
    ratios = CompressionRatios()
    seen = [ratios.observe("t", Codec.ZSTD, 0.3) for _ in range(200)]
    assert seen == sorted(seen, reverse=True)
    assert seen[138] > 0.3
    assert seen[140:] == [0.3] * 60


def test_cr1_topics_codecs_and_producers_learn_apart() -> None:
    ratios = CompressionRatios()
    ratios.observe("t", Codec.LZ4, 2.0)
    assert ratios.estimate("t", Codec.ZSTD) == 1.0
    assert ratios.estimate("u", Codec.LZ4) == 1.0
    assert CompressionRatios().estimate("t", Codec.LZ4) == 1.0


def test_cr1_a_batch_that_was_too_large_starts_the_estimate_again() -> None:
    ratios = CompressionRatios()
    for _ in range(50):
        ratios.observe("t", Codec.GZIP, 0.2)
    ratios.reset("t", Codec.GZIP, 0.4)
    assert ratios.estimate("t", Codec.GZIP) == 1.0
    ratios.reset("t", Codec.GZIP, 1.2)
    assert ratios.estimate("t", Codec.GZIP) == 1.2
