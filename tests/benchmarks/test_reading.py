"""The parts about reading: their tables, and one small round in which every source reads every row."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import Run
from benchmarks.reading import kafka_to_kafka, streams, whole_topics
from benchmarks.reading.sources import PAIRS, STREAMS, WHOLE
from benchmarks.reading.topics import Scene, event
from tests.benchmarks.test_run import small_round


def run(rate: float) -> dict[str, Any]:
    return dataclasses.asdict(Run(1_000_000, 1 / rate, 0.5, 1.0, 0.2, 0.0, 0))


def test_rates_of_whole_topics_are_compared_with_sparks_source() -> None:
    scene = Scene("small", 1_000_000, 100)
    runs = {source.name: [run(1.0), run(9.0), run(1.0)] for source in WHOLE} | {"pyproducer": [run(2.5)] * 3}
    results = {"scenes": [dataclasses.asdict(scene)], "runs": {"small": runs}, "warmups": 1}
    text = whole_topics.page(results)
    assert "| pyproducer | 2.50; 2.50–2.50 | 2.50 | 0.50 | 1.00 | 0.20 |" in text
    assert "| Spark's source | 1.00; 1.00–9.00 | 1.00 | 0.50 | 1.00 | 0.20 |" in text
    assert whole_topics.headlines(results)[0].ours == pytest.approx(2.5)


def test_sources_that_read_different_rows_are_an_error() -> None:
    scene = Scene("small", 3, 100)
    whole_topics.check_equal({"spark": (3, 7), "pyproducer": (3, 7)}, scene)
    for wrong in ((3, 8), (2, 7)):
        with pytest.raises(RuntimeError, match="different rows"):
            whole_topics.check_equal({"spark": (3, 7), "pyproducer": wrong}, scene)
    with pytest.raises(RuntimeError, match="different rows"):
        whole_topics.check_equal({"spark": (2, 7), "pyproducer": (2, 7)}, scene)


def test_pairs_are_compared_with_sparks_pair() -> None:
    results = {"rows": 1_000_000, "runs": {source.name: [run(1.0)] for source in PAIRS} | {"pyproducer": [run(2.0)]}}
    assert "| pyproducer | 2.00 | 2.00 | 1.50 |" in kafka_to_kafka.page(results)
    assert "| Spark's source and sink, tuned | 1.00 | 1.00 | 1.50 |" in kafka_to_kafka.page(results)


def test_micro_batches_are_shown_by_step() -> None:
    times = {source.name: [{"triggerExecution": 90.0, "addBatch": 50.0, "latestOffset": 5.0}] for source in STREAMS}
    assert "| pyproducer | 90 | 5 | 0 | 0 | 50 | 0 | 0 |" in streams.page({"rows": 100, "times": times})
    assert streams.headlines({"rows": 100, "times": times})[0].lower_is_better


def test_values_of_compressed_scenes_have_their_length() -> None:
    assert {len(event(number, [0, 1, 2, 3], 100)) for number in (0, 999_999)} == {100}


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.nightly
def test_every_source_reads_every_row(tmp_path: Path) -> None:
    page = small_round(tmp_path, ["read", "read-stream", "kafka-to-kafka"])
    table = (tmp_path / "benchmarks_reading.md").read_text()
    assert all(table.count(f"| {source.label} |") == len(whole_topics.scenes(1)) for source in WHOLE)
    assert all(f"| {source.label} |" in page.read_text() for source in STREAMS)
