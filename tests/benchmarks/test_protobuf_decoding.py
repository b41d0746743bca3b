"""The page of decoded Protobuf: the decoder beside Google's library, and the column function beside a UDF."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.protobuf_decoding import DECODERS, LABELS, decoder_nanoseconds, frames, page, protobuf_nanoseconds


@pytest.mark.covers("RD22")
def test_the_decoder_is_measured_on_the_rows_of_the_benchmark() -> None:
    rows = frames(1000)
    ours, others = decoder_nanoseconds(pa.array(rows, pa.binary()), rounds=3), protobuf_nanoseconds(rows, rounds=2)
    assert 0 < ours < others


def test_the_page_has_the_ratios_of_seconds() -> None:
    taken = {"bytes": 0.2, "columns": 0.5, "udf": 20.0}
    assert set(taken) == set(DECODERS) == set(LABELS)
    rounds = {name: [each, 9 * each, each] for name, each in taken.items()}
    text = page({"seconds": rounds, "cpu": rounds, "alone": {"columns": 108.0, "protobuf": 1900.0}})
    assert "| a UDF with Google's protobuf | 20.00 | 20.00 | 40.00× as fast |" in text
    assert "The decoder alone takes 108 ns of CPU a row, 10,000 rows at a time; Google's library 1,900" in text
