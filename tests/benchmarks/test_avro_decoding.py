"""The page of decoded Avro: the decoder beside fastavro, and the column function beside Spark's."""

from __future__ import annotations

import io
import json

import fastavro
import pyarrow as pa
import pytest

from benchmarks.avro import SCHEMA
from benchmarks.avro_decoding import DECODERS, LABELS, decoder_nanoseconds, fastavro_nanoseconds, page


@pytest.mark.covers("RD19")
def test_the_decoder_is_measured_on_the_rows_of_the_benchmark() -> None:
    out = io.BytesIO()
    row = {"id": 1, "delay": 2, "distance": 1.1, "tail": None, "carrier": "carrier 1", "at": 5}
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(SCHEMA)), row)
    batch = pa.array([b"\x00\x00\x00\x00\x07" + out.getvalue()] * 1000, pa.binary())
    ours, others = decoder_nanoseconds(batch, rounds=3), fastavro_nanoseconds(batch, rounds=2)
    assert 0 < ours < others


def test_the_page_has_the_ratios_of_seconds() -> None:
    taken = {"bytes": 0.2, "columns": 0.5, "from_avro": 1.0, "udf": 20.0}
    assert set(taken) == set(DECODERS) == set(LABELS)
    rounds = {name: [each, 9 * each, each] for name, each in taken.items()}
    text = page({"seconds": rounds, "cpu": rounds, "alone": {"columns": 58.0, "fastavro": 2800.0}})
    assert "| a UDF with fastavro | 20.00 | 20.00 | 40.00× as fast |" in text
    assert "The decoder alone takes 58 ns of CPU a row, 10,000 rows at a time; fastavro's compiled reader 2,800" in text
