"""The benchmark of the broker's look into batches runs, on batches that the broker takes."""

from benchmarks.broker_validation import SHAPES, table


def test_every_shape_has_its_line() -> None:
    _, *lines = table(rounds=1)
    assert [line.split()[:2] for line in lines] == [[f"{records:,}", codec.name] for records, codec in SHAPES]
