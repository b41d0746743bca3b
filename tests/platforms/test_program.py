"""The program of `make platforms` with the Spark of the tests, and the table of its results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.platforms import __main__ as platforms
from tests.platforms import aarch64, environments, kernel_program, kernels, program, recipes, roots, sail, spark_tables
from tests.platforms.shipping import ROWS, judge

SECONDS = 240
WITH = {"python": "3.11", "pyarrow": "", "found": "99.1", "day": "2026-01-31", "kernel": "compiled kernel"}
FEWER = [
    {**WITH, "spark": "4.8", "ways": {"a": "", "b": "", "c": ""}},
    {**WITH, "spark": "4.9", "ways": {"a": "", "b": "ValueError"}},
]
"""Results of two Sparks, of which one has not been tried in every way."""


@pytest.mark.covers("RD16")
@pytest.mark.spark
@pytest.mark.nightly
def test_every_way_to_write_and_to_read_passes_with_this_spark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, program.__file__],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(program.__file__).parents[2]), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    reported = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {way["way"]: way["wrong"] for way in reported} == dict.fromkeys(program.WAYS, ""), done.stderr[-4_000:]
    assert done.returncode == 0


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3600)  # every wait within has its own deadline
def test_sail_runs_the_wheel_and_the_examples_of_its_page() -> None:
    ways = sail.tried()
    assert {way["way"]: way["wrong"] for way in ways} == dict.fromkeys((way["way"] for way in ways), "")
    assert len(ways) == 6


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3600)  # every wait within has its own deadline
def test_the_recipes_of_all_libraries() -> None:
    assert recipes.tried() == {"kafka_to_tables": "", "tables_to_kafka": ""}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3600)  # every wait within has its own deadline
def test_the_recipes_of_delta_and_iceberg_in_spark() -> None:
    assert spark_tables.tried() == {"kafka_to_tables": "", "tables_to_kafka": ""}


def test_the_recipes_of_pandas() -> None:
    """All others need large libraries, in an environment of their own."""
    assert recipes.run(Path(sys.executable), "pandas") == {"kafka_to_tables": "", "tables_to_kafka": ""}


def test_the_pages_of_recipes_name_the_versions_that_are_tried() -> None:
    tried = dict(re.findall(r"^([a-z]+)\S*==(\d+\.\d+)", "\n".join(recipes.PACKAGES), re.MULTILINE))
    for name in ("kafka_to_tables", "tables_to_kafka"):
        page = " ".join((environments.ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split()).lower()
        for library, version in tried.items():
            assert f"{library} {version}" in page, (name, library)
        versions = {"spark": spark_tables.SPARK, "delta": spark_tables.DELTA[0][2], "iceberg": spark_tables.ICEBERG[2]}
        for library, version in versions.items():
            assert f"{library} {version.rpartition('.')[0]}" in page, (name, library)


def test_the_settings_on_the_page_have_the_jars_that_are_tried() -> None:
    page = (environments.ROOT / "docs" / "kafka_to_tables.md").read_text(encoding="utf-8")
    assert all(":".join(each) in page for each in (spark_tables.DELTA[0], spark_tables.ICEBERG))


def test_the_page_of_sail_names_the_versions_that_are_tried() -> None:
    page = sail.PAGE.read_text(encoding="utf-8")
    assert f"pip install {' '.join(sail.PACKAGES)} " in page
    assert f"Sail {sail.PACKAGES[0].partition('==')[2]}" in page


def test_lost_and_doubled_rows_are_reported() -> None:
    rows = [str(number) for number in range(program.ROWS)]
    assert program.judge(rows) == ""
    assert program.judge(rows[1:]) == "1 rows are missing, 0 are there twice"
    assert program.judge([*rows, "0"]) == "0 rows are missing, 1 are there twice"
    assert program.judge([*rows, "odd"]) != ""


@pytest.mark.covers("COM22")
def test_a_worker_that_is_not_from_the_archive_is_reported(tmp_path: Path) -> None:
    driver = tmp_path / "shipped" / "bin" / "python"

    def rows(executable: str, kernel: str = "compiled kernel") -> list[str]:
        return [f"{number}|{executable}|/app-1/0|{kernel}" for number in range(ROWS)]

    inside = "/app-1/0/environment/bin/python"
    assert judge(rows(inside), driver) == ""
    below = driver.parents[1] / "lib" / "pyspark" / "work" / "app-1" / "0"
    assert judge([row.replace("/app-1/0", str(below)) for row in rows(inside)], driver) == ""
    assert "a worker was" in judge(rows("/app-2/0/environment/bin/python"), driver)
    assert "portable" in judge(rows(inside, "portable kernel"), driver)
    assert "a worker was" in judge(rows(str(driver)), driver)
    assert "999 rows" in judge(rows(inside)[1:], driver)


@pytest.mark.covers("COM22")
def test_pip_does_not_take_this_tree_for_an_installed_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip finds the egg-info of this tree in a PYTHONPATH, and then installs no wheel."""
    monkeypatch.setenv("PYTHONPATH", str(environments.ROOT))
    reported = tmp_path / "reported"
    program = f"import os, pathlib; pathlib.Path({str(reported)!r}).write_text(str('PYTHONPATH' in os.environ))"
    environments.run([sys.executable, "-c", program])
    assert reported.read_text() == "False"


def test_the_page_shows_what_was_tried() -> None:
    page = platforms.PAGE.read_text(encoding="utf-8")
    assert platforms.with_table(page, platforms.load()) == page
    (tried_once,) = [line for line in platforms.with_table(page, FEWER).splitlines() if line.startswith("| 4.9 ")]
    assert tried_once == "| 4.9 | 3.11 | 99.1 | 2026-01-31 | compiled | yes | **no**: ValueError | not tried |"
    tried = set(map(platforms.pair_of, platforms.load()))
    assert tried == set(platforms.PAIRS), "make platforms has not been through"
    with pytest.raises(ValueError, match="no place"):
        platforms.with_table("", [])


@pytest.mark.covers("COM21", "RD16")
def test_every_way_passed_with_every_spark_that_is_promised() -> None:
    tried = {platforms.pair_of(line): line["ways"] for line in platforms.load()}
    assert {pair.spark for pair in platforms.PAIRS if pair.spark.startswith("4.0.")} >= {"4.0.0", "4.0.2"}
    for pair in platforms.PAIRS:
        assert tried[pair] == dict.fromkeys(program.WAYS, ""), pair


def test_a_result_is_kept_with_its_day_and_its_pyarrow_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platforms, "TRIED", tmp_path / "tried.jsonl")
    oldest, newest = platforms.Pair("4.0.0", "3.11", "18.0.0"), platforms.Pair("4.0.0", "3.11")
    ways = [{"way": "batch", "wrong": "", "kernel": "compiled kernel", "pyarrow": "26.0.1"}]
    platforms.keep(newest, [{**ways[0], "wrong": "Traceback\nValueError: odd\n"}])
    platforms.keep(oldest, [{**ways[0], "pyarrow": "18.0.0"}])
    platforms.keep(newest, ways)
    kept = platforms.load()
    assert {platforms.pair_of(line): line["found"] for line in kept} == {oldest: "18.0.0", newest: "26.0.1"}
    assert all(line["ways"] == {"batch": ""} for line in kept)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", line["day"]) for line in kept)
    assert oldest.name == f"{newest.name}-pyarrow-18.0.0"


def test_the_oldest_pyarrow_that_is_promised_is_tried_with_the_oldest_spark() -> None:
    project = tomllib.loads((environments.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (oldest,) = [name.partition(">=")[2] for name in project["dependencies"] if name.startswith("pyarrow")]
    assert f"{oldest}.0.0" == platforms.OLDEST
    (tried,) = [line for line in platforms.load() if line["pyarrow"] == platforms.OLDEST]
    assert (tried["spark"], tried["python"], tried["found"]) == ("4.0.0", "3.11", platforms.OLDEST)


def test_a_python_that_is_not_here_is_taken_from_a_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(roots, "HOME", tmp_path)
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    if environments.python_of(this):
        assert roots.python_of(this) == (environments.python_of(this), ())
    with pytest.raises(SystemExit, match=r"no Python 3\.99: install it, or make roots ARGS=python-3\.99"):
        roots.python_of("3.99")
    (tmp_path / "python-3.99").mkdir()
    python, within = roots.python_of("3.99")
    assert python == Path("/usr/bin/python3")
    assert list(within[-2:]) == [str(environments.ROOT), str(tmp_path / "python-3.99")]
    assert set(roots.ROOTS) == {"python-3.14", "aarch64"}


def test_the_page_shows_what_was_tried_on_aarch64() -> None:
    page = platforms.PAGE.read_text(encoding="utf-8")
    tried = json.loads(aarch64.TRIED.read_text(encoding="utf-8"))
    assert aarch64.with_line(page, tried) == page
    assert tried["wrong"] == []
    failed = aarch64.with_line(page, {**tried, "wrong": ["records"]})
    assert "without Spark: **no**: records\n" in failed
    with pytest.raises(ValueError, match="no place"):
        aarch64.with_line("", tried)


@pytest.mark.covers("COM20")
def test_the_kernel_of_this_python_is_equal_to_the_portable_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert kernel_program.main(1) == 0
    reported = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["loop"] for each in reported] == [
        "headers", "records", "fields", "hashes", "avro", "protobuf", "decoded protobuf", "single records"
    ]  # fmt: skip
    assert all(each["equal"] for each in reported)


@pytest.mark.covers("COM20")
def test_a_kernel_that_differs_or_is_slower_is_reported() -> None:
    first = {"records": {"ns": 100.0, "equal": True}}
    assert kernels.judge({"records": {"ns": 109.0, "equal": True}}, first) == ""
    assert "1.12 times" in kernels.judge({"records": {"ns": 112.0, "equal": True}}, first)
    turns = [{"records": {"ns": 150.0, "equal": False}}, {"records": {"ns": 99.0, "equal": True}}]
    assert kernels.least(turns) == {"records": {"ns": 99.0, "equal": False}}
    assert kernels.judge(kernels.least(turns), first) == "records differs from the portable kernel"
