"""The page of Avro beside binary: it separates Spark's time to hand structs over from the encoder's time. Id: COM14."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from benchmarks.avro import LABELS, WRITES, encoder_nanoseconds, page


@pytest.mark.covers("COM14")
def test_the_encoder_is_measured_on_the_rows_of_the_benchmark() -> None:
    fields: list[pa.Field[Any]] = [
        pa.field("id", pa.int64()),
        pa.field("delay", pa.int32()),
        pa.field("distance", pa.float64()),
        pa.field("tail", pa.string()),
        pa.field("carrier", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
    kind = pa.struct(fields)
    rows = [{"id": 1, "delay": 2, "distance": 1.1, "tail": None, "carrier": "carrier 1", "at": 5}] * 100
    assert encoder_nanoseconds(pa.array(rows, kind), rounds=2) > 0


@pytest.mark.covers("COM14")
def test_the_time_of_spark_is_distinguished_from_that_of_the_encoder() -> None:
    cpu = {"read-binary": 0.2, "read-structs": 0.5, "binary": 1.0, "avro": 1.4, "to_avro": 1.5, "udf": 20.0}
    assert set(cpu) == set(WRITES) == set(LABELS)
    rounds = {name: [taken, 9 * taken, taken] for name, taken in cpu.items()}
    text = page({"seconds": rounds, "cpu": rounds, "encoder": 40.0})
    assert "Avro costs 400 ns of CPU a row more than binary does. Spark takes 300 to hand structs" in text
    assert "The encoder alone takes 40, 10,000 rows at a time: 4% of the write of binary" in text
    assert "| valueFormat=avro | 1.40 | 1.40 | 1.40× |" in text
