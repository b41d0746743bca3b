"""One small round of the benchmarks, with real Spark and real Kafka: every contender writes every row."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.contenders import CONTENDERS, takes_part
from benchmarks.scenes import all_scenes

ROOT = Path(__file__).parent.parent.parent


def contenders_of(name: str) -> set[str]:
    return {one.label for one in CONTENDERS if takes_part(one, all_scenes(4000)[name])}


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.nightly
def test_every_contender_of_rows_of_any_length_and_of_exactly_once_writes_every_row(tmp_path: Path) -> None:
    parts = ("mixed", "exactly-once", "imports")
    page = small_round(tmp_path, parts)
    _, _, *sections = page.read_text().split("\n## ")
    assert [(tmp_path / "results" / f"{part}.json").exists() for part in parts] == [True] * len(parts)
    rows, once = map(cells, sections[:2])
    assert set(rows) == {"", *contenders_of("mixed")}
    assert set(once) == {"", *contenders_of("exactly-once")}
    assert sections[1].count(" ms for the write") == 1
    sizes = [float(row[-1]) for label, row in rows.items() if label.startswith(("pyproducer", "Spark"))]
    assert len(sizes) == 4
    assert min(sizes) > 300, "205 bytes of values, 9 of keys, and three headers"
    assert max(sizes) < 330, "every one of them writes the headers"


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.nightly
def test_every_contender_of_short_and_compressed_rows_writes_every_row(tmp_path: Path) -> None:
    parts = ("small", "compressed")
    page = small_round(tmp_path, parts)
    head, _, *sections = page.read_text().split("\n## ")
    assert "| pyproducer ÷ | Spark's sink |" in head
    tables = dict(zip(parts, map(cells, sections), strict=False))
    for part in parts:
        assert set(tables[part]) == {"", *contenders_of(part)}, part
    sizes = {label: row[-1] for table in tables.values() for label, row in table.items()}
    assert 109 < float(tables["small"]["pyproducer"][-1]) <= float(tables["small"]["Spark's sink"][-1]), (
        "keys and values, and little around them"
    )
    assert 0 < float(sizes["pyproducer, zstd"]) < float(sizes["Spark's sink, zstd"])
    assert (page.with_name("results") / "benchmarks_small.svg").exists()


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.nightly
def test_every_contender_writes_every_row_over_tls(tmp_path: Path) -> None:
    _, _, section, _ = small_round(tmp_path, ["tls"]).read_text().split("\n## ")
    table = cells(section)
    assert set(table) == {"", *contenders_of("tls")}
    assert {"pyproducer", "pyproducer, SSL", "pyproducer, SASL_SSL", "Spark's sink, SSL"} <= set(table)
    assert section.count(" ns of Python's CPU a byte") == 2


def small_round(place: Path, parts: Sequence[str]) -> Path:
    """The page of one round of some parts with few rows."""
    page = place / "benchmarks.md"
    command = [sys.executable, "-m", "benchmarks", "--rows", "4000", "--repetitions", "1", "--warmups", "0"]
    command += [argument for part in parts for argument in ("--parts", part)] + ["--out", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return page


def cells(section: str) -> dict[str, list[str]]:
    """Contender → the cells of its row."""
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return {label.strip(): [cell.strip() for cell in rest] for label, *rest in rows}
