"""One small round of the benchmarks, with real Spark and real Kafka: every contender writes every row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.contenders import CONTENDERS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_every_contender_writes_every_row(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    command = [sys.executable, "-m", "benchmarks", "--rows", "4000", "--repetitions", "1", "--warmups", "0"]
    command += ["--scenes", "small", "--scenes", "compressed", "--out", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    text = page.read_text()
    for contender in CONTENDERS:
        assert text.count(f"| {contender.label} |") == 1
    assert "the client CPU" in text
    sizes = {line.split("|")[1].strip(): line.split("|")[-3] for line in text.splitlines() if line.startswith("| ")}
    assert 109 < float(sizes["pyproducer"]) <= float(sizes["Spark's Kafka sink"]), (
        "keys and values, and little around them"
    )
    assert 0 < float(sizes["pyproducer, zstd"]) < float(sizes["Spark's Kafka sink, zstd"])
    assert page.with_suffix(".svg").exists()
