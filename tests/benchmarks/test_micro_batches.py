"""The benchmark of micro-batches, small, with real Spark and real Kafka; and its page, from figures made up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.headlines import Headline
from benchmarks.micro_batches.page import Scene, headlines, page
from benchmarks.micro_batches.streams import CONTENDERS, Batch, StreamResult

ROOT = Path(__file__).parent.parent.parent


def made_up(rows: int, unix_sockets: bool) -> Scene:
    """The contenders' triggers take 100, 200 … ms, and half of it is `addBatch`."""
    results = [
        StreamResult(contender, [Batch(100 * place, 50 * place)] * 3) for place, contender in enumerate(CONTENDERS, 1)
    ]
    return Scene(rows, unix_sockets, results)


def test_the_page_compares_within_one_session() -> None:
    kept = {"rounds": 3, "warmups": 5, "scenes": [made_up(100, False).kept(), made_up(100, True).kept()]}
    text = page(json.loads(json.dumps(kept)))
    assert "## 100 rows, TCP" in text
    assert "## 100 rows, Unix sockets" in text
    assert text.count("| pyproducer | 500; 500–500 | 1.67 | 1.25 | 250; 250–250 | 1.67 | 1.25 |") == 2
    assert text.count("| JVM noop sink | 100; 100–100 |  |  | 50; 50–50 |  |  |") == 2


def test_few_rows_are_judged_by_add_batch_and_many_by_the_trigger() -> None:
    few, many = headlines([made_up(100, False), made_up(100, True), made_up(100_000, False)])
    others = ("Spark's Kafka sink", "Spark's Kafka sink, tuned")
    assert few == Headline(few.title, "ms", 250, dict(zip(others, (150, 200), strict=True)), True)
    assert many == Headline(many.title, "ms", 500, dict(zip(others, (300, 400), strict=True)), True)
    assert "write" in few.title
    assert "100,000 rows" in many.title


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_every_contender_writes_every_row_in_both_sessions() -> None:
    command = [sys.executable, "-m", "benchmarks.micro_batches", "--rows", "40", "--rounds", "1"]
    command += ["--warmups", "1", "--batches", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for contender in CONTENDERS:
        assert done.stdout.count(f"| {contender.label} |") == 2
