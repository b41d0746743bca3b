"""The programs of docs/upstream.md: Spark still does what the page reports. If one fails, Spark has mended it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.spark.isolated import REPOSITORY

PAGE = (REPOSITORY / "docs" / "upstream.md").read_text(encoding="utf-8")
SECONDS = 240
pytestmark = pytest.mark.spark


def block(marker: str, language: str = "python") -> str:
    """The one example that contains `marker`."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (text,) = [text for text in found if marker in text]
    return str(text)


def run(program: str) -> None:
    """Run a program in this process, whose Spark it gets, with names of its own."""
    exec(compile(program, "upstream", "exec"), {"__name__": "__main__"})


def test_every_example_is_run_here() -> None:
    assert len(re.findall(r"^```python$", PAGE, re.MULTILINE)) == 3
    assert len(re.findall(r"^```console$", PAGE, re.MULTILINE)) == 1


@pytest.mark.slow
def test_an_archive_with_bytecode_is_compiled_no_more(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(Path(pyspark.__file__).parent / "python" / "lib", home / "python" / "lib")
    commands = (
        block("compileall", "console").replace("$ ", "", 1).replace("\n$ ", "\n").replace("/tmp/", f"{tmp_path}/")
    )
    environment = {**os.environ, "SPARK_HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", commands], env=environment, capture_output=True, timeout=SECONDS, check=True)
    imported = "import pyspark.daemon; print(pyspark.daemon.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", imported],
        env={**environment, "PYTHONPATH": f"{tmp_path}/pyspark.zip"},
        capture_output=True, text=True, timeout=SECONDS, check=True,
    )  # fmt: skip
    assert done.stdout == f"{tmp_path}/pyspark.zip/pyspark/daemon.pyc\n"


@pytest.mark.nightly
def test_the_tasks_are_timed_with_and_without_the_work_arounds(tmp_path: Path) -> None:
    program = tmp_path / "tasks.py"
    program.write_text(block("MICRO_BATCHES").replace("MICRO_BATCHES = 45", "MICRO_BATCHES = 3"))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    shown = [re.fullmatch(r"unix=(\w+) ([a-z ]*): \d+ ms", line) for line in done.stdout.splitlines()]
    assert [each[2] for each in shown if each] == ["", "quickack", "freeze", "quickack freeze", "", "freeze"]


def test_a_sink_has_no_update_mode_and_no_metrics(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        run(block("streamWriter()").replace("PAUSE = 70", "PAUSE = 1"))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    shown = capsys.readouterr().out
    assert "commit() of 2 in process" in shown
    assert '"numOutputRows" : 10' in shown or '"numOutputRows": 10' in shown
    assert "metrics" not in shown
    assert "noting does not support Update mode" in shown.splitlines()[-1]


def test_to_arrow_fails_for_legal_columns(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    run(block("toArrow"))
    failed = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\w+(Error|Invalid) ", line)]
    assert len(failed) == block("toArrow").count('    "select')
