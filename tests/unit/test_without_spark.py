"""Spark is no dependency: without it the producer works, and the data source says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_producer.broker import LocalBroker

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
NO_SPARK = "import sys; sys.modules['pyspark'] = None\n"
WRITE = """
import pyarrow as pa
import spark_producer
from spark_producer import MockProducer, Producer, ProducerConfig, RecordMetadata
with Producer({"bootstrap.servers": sys.argv[1]}) as producer:
    producer.send_batch(pa.record_batch({"value": pa.array([b"1", b"2"])}), topic="t")
    print(producer.send("t", b"3").result(30).offset)
from spark_producer.__main__ import main
assert main(["tail", "t", "--bootstrap-servers", sys.argv[1], "--from-beginning", "--max-records", "3"]) == 0
"""
ADVICE = (
    "needs PySpark 4.0 or newer, and this Python (",
    "Run with the Python of your platform's Spark, or pip install 'pyproducer[spark]'",
)


def python(program: str, *arguments: str, first: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(first), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.covers("COM21")
def test_the_producer_and_the_command_line_work() -> None:
    with LocalBroker() as broker:
        done = python(NO_SPARK + WRITE, broker.bootstrap_servers)
    assert done.returncode == 0, done.stderr
    assert [line.partition(" ")[0] for line in done.stdout.splitlines()] == ["2", "0:0", "0:1", "0:2"]


@pytest.mark.parametrize(
    "program",
    [
        "import spark_producer.datasource",
        "from spark_producer.datasource.source import PyProducerDataSource",
        "import spark_producer; spark_producer.register(None)",
    ],
)
def test_the_data_source_says_what_it_needs(program: str) -> None:
    done = python(NO_SPARK + program)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith('ImportError: format("pyproducer") needs PySpark')
    assert all(part in last for part in ADVICE)
    assert sys.executable in last, "which Python it was"


def test_the_error_for_an_old_spark_is_like_that_for_a_missing_one(tmp_path: Path) -> None:
    module = tmp_path / "pyspark" / "sql" / "datasource.py"
    module.parent.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "sql" / "__init__.py").touch()
    (tmp_path / "pyspark" / "sql" / "types.py").write_text("class StructType: ...\n", encoding="utf-8")
    module.write_text("class DataSource: ...\nclass DataSourceReader: ...\n", encoding="utf-8")
    last = python("import spark_producer.datasource", first=tmp_path).stderr.splitlines()[-1]
    assert all(part in last for part in ADVICE)
    assert "pyspark.sql" in last, "what it lacks"


@pytest.mark.slow
def test_without_lz4_only_its_codec_is_missing() -> None:
    program = NO_SPARK + "sys.modules['lz4'] = sys.modules['lz4.frame'] = None\n" + WRITE
    with LocalBroker() as broker:
        done = python(program, broker.bootstrap_servers)
        assert done.returncode == 0, done.stderr
        packed = program.replace("sys.argv[1]}", 'sys.argv[1], "compression.type": "lz4"}')
        reported = python(packed, broker.bootstrap_servers).stderr.splitlines()[-1]
    assert reported.startswith(
        "spark_producer.errors.ConfigError: compression.type lz4 cannot be used: the package lz4 is missing or does not work"
    )
    assert "zstd" in reported


def test_sparks_lookup_of_other_sources_is_not_disturbed() -> None:
    assert python(NO_SPARK + "import pyspark_pyproducer; assert not pyspark_pyproducer.__all__").returncode == 0
