"""The benchmark of micro-batches, small, with real Spark and real Kafka; and its page, from figures made up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.headlines import Headline
from benchmarks.micro_batches.page import Scene, draw, headlines, page
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
    assert text.count("| pyproducer | 600; 600–600 | 1.50 | 1.20 | 300; 300–300 | 1.50 | 1.20 |") == 2
    assert text.count("| JVM noop sink | 100; 100–100 |  |  | 50; 50–50 |  |  |") == 2


def test_the_first_page_has_the_write_of_few_rows_without_unix_sockets() -> None:
    (few,) = headlines([made_up(100, False), made_up(100, True), made_up(100_000, False)])
    others = ("Spark's Kafka sink", "Spark's Kafka sink, tuned")
    assert few == Headline(few.title, "ms", 300, dict(zip(others, (200, 250), strict=True)), True)
    assert few.title == "The write in a micro-batch of 100 rows"


def test_bars_of_all_scenes_have_one_scale(tmp_path: Path) -> None:
    many = Scene(100_000, False, [StreamResult(CONTENDERS[0], [Batch(900, 800)])])
    draw([made_up(100, False), many], tmp_path / "plot.svg")
    ticks = re.findall(r"<!-- (\d+) -->", (tmp_path / "plot.svg").read_text())
    assert ticks.count("1000") == 2


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.nightly
def test_every_contender_writes_every_row_in_both_sessions() -> None:
    command = [sys.executable, "-m", "benchmarks.micro_batches", "--rows", "40", "--rounds", "1"]
    command += ["--warmups", "0", "--batches", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for contender in CONTENDERS:
        assert done.stdout.count(f"| {contender.label} |") == 2
