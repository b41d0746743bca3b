"""The page of Avro beside binary: what Spark takes to hand structs over is told apart from what the encoder takes. Id: COM14."""

from __future__ import annotations

from benchmarks.avro import LABELS, WRITES, page


def test_com14_what_is_ours_is_what_is_left_without_spark_s_part() -> None:
    cpu = {"read-binary": 0.2, "read-structs": 0.5, "binary": 1.0, "avro": 1.4, "to_avro": 1.5, "udf": 20.0}
    assert set(cpu) == set(WRITES) == set(LABELS)
    rounds = {name: [taken, 9 * taken, taken] for name, taken in cpu.items()}
    text = page({"seconds": rounds, "cpu": rounds})
    assert "Avro costs 400 ns of CPU a row more than binary does. Of these Spark takes 300 " in text
    assert "the encoder takes the rest, 100: +10% of the write of binary" in text
    assert "| valueFormat=avro | 1.40 | 1.40 | 1.40× |" in text
