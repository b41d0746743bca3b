"""The page of JSON Schema: encoder and decoder alone, and the column functions beside UDFs."""

from __future__ import annotations

import pytest

from benchmarks.json_schema import DECODED, DECODERS, ENCODED, ENCODERS, nanoseconds, page

pytestmark = pytest.mark.covers("JS2")


def test_encoder_and_decoder_are_measured_on_the_rows_of_the_benchmark() -> None:
    taken = nanoseconds(1000, 3)
    assert 0 < taken["decoder"] < taken["json"]
    assert taken["encoder"] > 0


def test_the_page_has_the_ratios_of_seconds() -> None:
    taken = {"bytes": 0.2, "columns": 0.5, "udf": 20.0}
    assert set(taken) == set(ENCODERS) == set(DECODERS) == set(ENCODED) == set(DECODED)
    rounds = {name: [each, 9 * each, each] for name, each in taken.items()}
    both = {"seconds": rounds, "cpu": rounds}
    text = page({"encoding": both, "decoding": both, "alone": {"encoder": 500.0, "decoder": 700.0, "json": 2500.0}})
    assert text.count("| a UDF with Python's json | 20.00 | 20.00 | 40.00× as fast |") == 2
    assert "Alone the encoder takes 500 ns of CPU a row and the decoder 700, 10,000 rows" in text
