from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.first_write import SPARKS, WAYS, archives, home_with_bytecode, imports, page, spark_home

RESULTS: dict[str, Any] = {
    "rows": 3,
    "writes": {name: [[6.0, 0.4, 0.2, 0.1]] for name in WAYS} | {SPARKS: [[1.0, 0.5, 0.2, 0.1], [1.4, 0.3, 0.2, 0.1]]},
    "cpu": {name: [2.5] for name in WAYS} | {SPARKS: [0.0, 0.0]},
    "warm_up": {"warmed-up": [7.0], "all": [5.0]},
    "zip": [0.7, 0.9, 0.8],
    "bytecode": [0.2, 0.2, 0.1],
}


def test_the_table_has_the_median_of_every_write() -> None:
    text = page(RESULTS)
    assert "| Spark's sink | 1.20 | 0.40 | 0.20 | 0.10 | 1.0 | 0.00 |" in text
    assert "| pyproducer | 6.00 | 0.40 | 0.20 | 0.10 | 5.0 | 2.50 |" in text
    assert "0.80 s, or 0.20 s" in text
    assert "`warm_up` took 7.0 s" in text


def test_a_home_with_bytecode_is_a_whole_spark(tmp_path: Path) -> None:
    home = home_with_bytecode(tmp_path)
    assert {each.name for each in home.iterdir()} == {each.name for each in Path(pyspark.__file__).parent.iterdir()}
    assert any(Path(archive).name == "pyspark.zip" for archive in archives(home).split(os.pathsep))
    assert all(seconds > 0 for seconds in imports(archives(home)))


def test_spark_home_is_that_of_a_session_only(tmp_path: Path) -> None:
    before = os.environ.get("SPARK_HOME")
    with spark_home(tmp_path):
        assert os.environ["SPARK_HOME"] == str(tmp_path)
        with spark_home(None):
            assert "SPARK_HOME" not in os.environ
    assert os.environ.get("SPARK_HOME") == before
