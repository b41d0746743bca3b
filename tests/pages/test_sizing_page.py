"""docs/sizing.md: its figures are those of the benchmarks and of the code, and its example is calculated by its own rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.measured import COLUMNS, SCENES, figures, with_measured_table
from spark_producer.config import KAFKA_FIELDS
from spark_producer.datasource.write.worker import executor_memory
from spark_producer.datasource.write.worker.executor_memory import (
    MAX_BUFFER_MEMORY,
    MIN_BUFFER_MEMORY,
    default_buffer_memory,
)
from tests.fakes.accumulator_fakes import accumulator_fakes

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "sizing.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
"""The page without line ends."""
BENCHMARKS = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
MIB = 1 << 20
BESIDE = executor_memory.WORKER_OVERHEAD // MIB
"""MiB of a worker without its pool."""

EXECUTORS = re.findall(r"^\| ([^|]+ cores[^|]*|the same[^|]*) \| (`spark[^|]+) \| (\d+) MiB \|$", PAGE, re.MULTILINE)
POOLS = re.findall(r"^\| (\d+) MiB \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
EXAMPLE = TEXT.partition("## An example ")[2]


def pool_of(settings: dict[str, str]) -> int:
    """Return the default buffer memory in MiB, on YARN unless the settings are of Kubernetes."""
    master = "k8s://host" if "spark.kubernetes.resource.type" in settings else "yarn"
    return default_buffer_memory((settings | {"spark.master": master}).get) // MIB


def test_the_measured_figures_are_those_of_the_benchmarks() -> None:
    assert with_measured_table(PAGE, BENCHMARKS) == PAGE, "run `make docs`"
    (ratio,) = re.findall(r"of 256 MiB gave ([\d.]+×)", TEXT)
    thousand = next(scene for scene in SCENES if scene.part == "thousand-partitions")
    rates = [
        float(figures(BENCHMARKS, thousand._replace(contender=name))[0])
        for name in ("pyproducer", "pyproducer, buffer.memory 32 MiB")
    ]
    assert f"{rates[0] / rates[1]:.2f}×" == ratio


def test_a_scene_that_is_not_there_any_more_is_an_error() -> None:
    found = figures(BENCHMARKS, SCENES[0])
    assert len(found) == len(COLUMNS)
    assert all(float(figure) > 0 for figure in found)
    with pytest.raises(LookupError, match="has no 'pyproducer' under 'nothing of this name'"):
        figures(BENCHMARKS, SCENES[0]._replace(heading="nothing of this name"))


def test_the_pools_of_the_executors_are_the_defaults() -> None:
    assert len(EXECUTORS) == 5
    for executor, marked, expected in EXECUTORS:
        settings = dict(setting.split("=") for setting in re.findall(r"`(spark[^`]+)`", marked))
        assert pool_of(settings) == int(expected), executor


def test_the_batches_of_the_pools_are_those_of_the_accumulator() -> None:
    batch_size = KAFKA_FIELDS["batch.size"].default
    assert isinstance(batch_size, int)
    assert len(POOLS) == 3
    for mib, *sizes in POOLS:
        accumulator = accumulator_fakes(memory=int(mib) * MIB, batch_size=batch_size).accumulator
        for partitions, size in zip((4, 200, 1_000), sizes, strict=True):
            assert f"{accumulator.full_size('flights', partitions):,}" == size


def test_the_parts_of_a_workers_memory_are_those_that_defaults_are_made_of() -> None:
    parts = dict(re.findall(r"^\| ([^|]+) \| (?:up to )?(\d+(?: to \d+)?) \| [^|]*\|$", PAGE, re.MULTILINE))
    assert int(parts["the interpreter, with PySpark and Arrow"]) + int(parts["rows in hand"]) == BESIDE
    assert (
        parts["encoded batches, waiting and in flight"] == f"{MIN_BUFFER_MEMORY // MIB} to {MAX_BUFFER_MEMORY // MIB}"
    )
    assert f"workers × ({BESIDE} MiB + 2 × the pool" in TEXT
    assert f"{executor_memory.WORKER_ADDRESS_SPACE // MIB} MiB" in TEXT


def test_the_warning_is_true() -> None:
    overhead = round((32 << 10) * 0.1)
    assert (
        f"{overhead:,} MiB, and 16 workers of {BESIDE} + {MIN_BUFFER_MEMORY // MIB} MiB want "
        f"{16 * (BESIDE + MIN_BUFFER_MEMORY // MIB):,} of it" in TEXT
    )
    assert overhead < 16 * (BESIDE + MIN_BUFFER_MEMORY // MIB) + (32 << 10) // 20, "the JVM's own part is not there"


def test_the_example_is_calculated_by_the_rules_of_the_page() -> None:
    python, jvm, log = (figures(BENCHMARKS, SCENES[1])[COLUMNS.index(name)] for name in ("Python", "JVM", "log B"))
    assert f"{python} + {jvm} = {float(python) + float(jvm):.2f} CPU seconds" in EXAMPLE
    assert f"({log} a row)" in EXAMPLE
    pool = 2 * 200 * 100_000 / MIB
    assert f"2 × 200 × 100,000 bytes = {pool:.0f} MiB" in EXAMPLE
    overhead = round((8 << 10) / 20) + 4 * (BESIDE + 2 * round(pool))
    assert f"= {overhead:,} MiB" in EXAMPLE
    (setting,) = re.findall(r"`spark\.executor\.memoryOverhead=(\d+m)`", EXAMPLE)
    assert int(setting[:-1]) >= overhead
    executor = {"spark.executor.memory": "8g", "spark.executor.cores": "4", "spark.executor.memoryOverhead": setting}
    assert pool_of(executor) == round(pool)
    assert f"2 × 4 × (6 + 1) = **{2 * 4 * (6 + 1)}**" in EXAMPLE
    assert f"20 × 4 × 7 = {20 * 4 * (6 + 1)}" in TEXT
