"""Reads in sessions that this process cannot have: Spark Connect, workers that are not used again or die, speculation."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from tests.conftest import Broker
from tests.matrix.standalone import standalone
from tests.spark.isolated import REPOSITORY, run_program

ROWS, PARTITIONS = 6000, 3

PROGRAM = """
import json, os, signal, sys, time
from collections import Counter
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession

master, settings, options, home, how = sys.argv[1:]
home = Path(home)
builder = SparkSession.builder
builder = builder.remote("local[2]") if master == "connect" else builder.master(master)
builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def passed(batches):
    # Notes each attempt; the first one of a partition dies, or waits for the second one, after its first rows.
    context = TaskContext.get()
    partition, attempt = context.partitionId(), context.attemptNumber()
    (home / f"attempt-{context.stageId()}-{partition}-{attempt}-{os.getpid()}").touch()
    for number, batch in enumerate(batches):
        yield batch
        if number == 3 and attempt == 0 and partition == 1:
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "reader dies":
                # The reader is the other worker of the same daemon.
                parent = os.getppid()
                for each in Path("/proc").glob("[0-9]*"):
                    try:
                        if int((each / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                            os.kill(int(each.name), signal.SIGKILL)
                    except (OSError, ValueError):
                        pass
            if how == "waits":
                deadline = time.monotonic() + 60
                while not list(home.glob(f"attempt-{context.stageId()}-1-1-*")) and time.monotonic() < deadline:
                    time.sleep(0.05)


def noted(frame):
    return frame.select("partition", "offset", "value").mapInArrow(passed, "partition int, offset bigint, value binary")


batch = noted(spark.read.format("pyproducer").options(**json.loads(options)).load())
found = [(row.partition, row.offset, row.value.decode("latin-1")) for row in batch.collect()]
(home / "batch.json").write_text(json.dumps(found))
if how == "plain":
    stream = spark.readStream.format("pyproducer").options(**json.loads(options), startingOffsets="earliest").load()
    writer = noted(stream).writeStream.format("parquet").option("path", str(home / "files"))
    query = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None, query.exception()
spark.stop()
"""

NARROW = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100", "spark.ui.enabled": "false"}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


@pytest.fixture
def filled(embedded_broker: Broker, topic: str) -> dict[str, str]:
    """Options that read a topic of numbers in many small batches."""
    embedded_broker.create_topic(topic, PARTITIONS)
    with Producer({"bootstrap.servers": embedded_broker.bootstrap_servers, "batch.size": "2000"}) as producer:
        for number in range(ROWS):
            producer.send(topic, b"%d" % number * 20, partition=number % PARTITIONS)
        producer.flush()
    sizes = {"kafka.max.partition.fetch.bytes": "4000", "kafka.fetch.max.bytes": "8000"}
    return {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "subscribe": topic, **sizes}


def play(
    home: Path, master: str, settings: dict[str, str], options: dict[str, str], how: str
) -> Counter[tuple[int, int]]:
    """Run the program; return the attempts of each task of its first job: (partition, number) → how many."""
    run_program(
        PROGRAM, [master, json.dumps(NARROW | settings), json.dumps(options), str(home), how], [REPOSITORY], home
    )
    assert_once_each([tuple(row) for row in json.loads((home / "batch.json").read_text())])
    found = [[int(part) for part in each.name.split("-")[1:4]] for each in home.glob("attempt-*")]
    first = min(stage for stage, _, _ in found)
    return Counter((partition, number) for stage, partition, number in found if stage == first)


def assert_once_each(rows: list[Any]) -> None:
    wanted = [(number % PARTITIONS, number // PARTITIONS, str(number) * 20) for number in range(ROWS)]
    assert sorted(rows) == sorted(wanted)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.covers("RD16")
@pytest.mark.parametrize(
    ("master", "settings"),
    [
        pytest.param("connect", {}, id="connect"),
        pytest.param("local[2]", {"spark.python.worker.reuse": "false"}, id="fresh workers", marks=pytest.mark.nightly),
        pytest.param(
            "local[2]", {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.python.use.daemon": "false"},
            id="no daemon", marks=pytest.mark.nightly,
        ),
    ],
)  # fmt: skip
def test_each_row_once(filled: dict[str, str], tmp_path: Path, master: str, settings: dict[str, str]) -> None:
    assert play(tmp_path, master, settings, filled, "plain") == {(partition, 0): 1 for partition in range(PARTITIONS)}
    import pyarrow.parquet as pq

    table: pa.Table = pq.read_table(tmp_path / "files")
    rows = [(row["partition"], row["offset"], row["value"].decode()) for row in table.to_pylist()]
    assert_once_each(rows)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.covers("RD9")
@pytest.mark.parametrize("how", ["reader dies", pytest.param("dies", marks=pytest.mark.nightly)])
def test_a_task_that_is_tried_again_reads_each_row_once(filled: dict[str, str], tmp_path: Path, how: str) -> None:
    attempts = play(tmp_path, "local[2,4]", {}, filled, how)
    assert attempts[1, 0] == attempts[1, 1] == 1, "the task was tried twice"


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.covers("RD9", "RD16")
@pytest.mark.parametrize("how", ["waits", "dies"])
def test_speculation_reads_each_row_once(filled: dict[str, str], tmp_path: Path, how: str) -> None:
    """Run on a cluster of Spark's own with two executors, where both attempts of a task run at once."""
    home = tmp_path / "home"
    home.mkdir()
    with standalone(tmp_path) as master:
        attempts = play(home, master, SPECULATION, filled, how)
    later = [number for partition, number in attempts if partition == 1 and number > 0]
    assert attempts[1, 0] == 1
    assert later, (
        "the task was tried again"
    )  # not always as number 1: a speculative attempt may overtake the one before it
