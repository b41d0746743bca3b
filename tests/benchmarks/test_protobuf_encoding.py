"""The page of encoded Protobuf: the encoder beside Google's library, and the column function beside a UDF."""

from __future__ import annotations

from benchmarks.column_functions import first_flights
from benchmarks.protobuf_decoding import descriptors, frames, message_class
from benchmarks.protobuf_encoding import ENCODERS, LABELS, PREFIX, encoder_nanoseconds, page, protobuf_nanoseconds
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.protobuf.plan import plan_of


def test_the_encoder_is_measured_on_the_rows_of_the_benchmark() -> None:
    batch = first_flights(1000)
    kind = message_class(descriptors())
    encoded = encode_column(ColumnFormat(PREFIX, plan_of(kind.DESCRIPTOR, batch.type, "value")), batch)
    assert encoded.column is not None
    assert encoded.column.to_pylist() == frames(1000)
    ours, others = encoder_nanoseconds(batch, rounds=3), protobuf_nanoseconds(batch, rounds=2)
    assert 0 < ours < others


def test_the_page_has_the_ratios_of_seconds() -> None:
    taken = {"bytes": 0.2, "columns": 0.5, "udf": 20.0}
    assert set(taken) == set(ENCODERS) == set(LABELS)
    rounds = {name: [each, 9 * each, each] for name, each in taken.items()}
    text = page({"seconds": rounds, "cpu": rounds, "alone": {"columns": 58.0, "protobuf": 1900.0}})
    assert "| a UDF with Google's protobuf | 20.00 | 20.00 | 40.00× as fast |" in text
    assert "The encoder alone takes 58 ns of CPU a row, 10,000 rows at a time; Google's library 1,900" in text
