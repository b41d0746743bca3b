"""CR1: what the next batch is expected to pack to (the rule is not Java's: docs/compatibility.md says why)."""

from __future__ import annotations

import pytest

from spark_producer.record.codecs import Codec
from spark_producer.record.compression_ratio import REMEMBERED, CompressionRatios


def taught(*ratios: float) -> CompressionRatios:
    found = CompressionRatios()
    for ratio in ratios:
        found.observe("t", Codec.LZ4, ratio)
    return found


@pytest.mark.covers("CR1")
def test_nothing_is_expected_until_enough_batches_are_known() -> None:
    assert CompressionRatios().estimate("t", Codec.LZ4) == 1.0
    assert taught(*[0.3] * (REMEMBERED - 1)).estimate("t", Codec.LZ4) == 1.0
    assert taught(*[0.3] * REMEMBERED).estimate("t", Codec.LZ4) == 0.3


@pytest.mark.covers("CR1")
def test_the_worst_of_the_last_batches_counts_and_is_forgotten() -> None:
    known = [0.2] * REMEMBERED
    assert taught(*known, 0.5).estimate("t", Codec.LZ4) == 0.5
    assert taught(*known, 0.5, *known[1:]).estimate("t", Codec.LZ4) == 0.5
    assert taught(*known, 0.5, *known).estimate("t", Codec.LZ4) == 0.2


@pytest.mark.covers("CR1")
def test_what_does_not_get_smaller_counts_as_what_it_is_sent_as() -> None:
    assert taught(*[0.2] * REMEMBERED, 1.7).estimate("t", Codec.LZ4) == 1.0


@pytest.mark.covers("CR1")
def test_topics_codecs_and_producers_learn_apart() -> None:
    ratios = taught(*[0.2] * REMEMBERED)
    assert ratios.estimate("t", Codec.ZSTD) == 1.0
    assert ratios.estimate("u", Codec.LZ4) == 1.0
    assert CompressionRatios().estimate("t", Codec.LZ4) == 1.0
