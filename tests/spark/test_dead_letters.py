"""Dead letters in real sessions: a batch write and a stream with bad rows, as foreign clients read both topics. Id: COM1."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_producer
from spark_producer.broker import LocalBroker
from spark_producer.datasource.write.dead_letters.records import PREFIX
from tests.spark.frames import write
from tests.spark.streams import FileStream, run
from tests.support.read_back import Client, Row, read_topic

pytestmark = pytest.mark.spark
ROWS = 200


@pytest.fixture
def dead(embedded_broker: LocalBroker, topic: str) -> str:
    """A topic of two partitions that takes no large records, and one for bad rows; its name is returned."""
    embedded_broker.create_topic(topic, 2, configs={"max.message.bytes": "20000"})
    embedded_broker.create_topic(f"{topic}-dead", 1)
    return f"{topic}-dead"


def reported(row: Row) -> dict[str, str]:
    """Our headers of a dead record, by suffix."""
    return {
        name.removeprefix(PREFIX): (value or b"").decode() for name, value in row.headers if name.startswith(PREFIX)
    }


@pytest.mark.covers("COM1")
@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_batch_write_leaves_each_row_in_one_of_two_topics(
    spark: SparkSession,
    embedded_broker: LocalBroker,
    topic: str,
    dead: str,
    client: Client,
) -> None:
    """Rows that the task finds bad (a negative partition, a null time), and one that the broker does (too large)."""
    session = spark.newSession()
    reports = spark_producer.follow(session)
    reports.take()
    frame = session.range(0, ROWS, 1, 2).selectExpr(
        "string(id) as key",
        "if(id = 150, repeat('x', 30000), if(id = 7, null, concat('v', id))) as value",
        "if(id = 20, -1, int(id % 2)) as partition",
        "if(id = 130, null, timestamp_millis(1700000000000 + id)) as timestamp",
        "array(struct('h' as key, binary(string(id)) as value)) as headers",
    )
    write(frame, embedded_broker, topic, {"deadLetterTopic": dead, "includeHeaders": "true"})
    good = read_topic(embedded_broker.bootstrap_servers, topic, client=client, expected=ROWS - 3)
    assert sorted(int(row.key or b"-1") for row in good) == [row for row in range(ROWS) if row not in (20, 130, 150)]
    assert {row.key: row.value for row in good}[b"7"] is None
    for task in (range(100), range(100, ROWS)):
        for partition in (0, 1):
            mine = [int(row.key or b"") for row in good if row.partition == partition and int(row.key or b"") in task]
            assert mine == sorted(mine)
    letters = {row.key: row for row in read_topic(embedded_broker.bootstrap_servers, dead, client=client, expected=3)}
    story = {key: reported(row) for key, row in letters.items()}
    assert {key: (said["task.id"], said["row"], said["stage"]) for key, said in story.items()} == {
        b"20": ("0", "20", "columns"), b"130": ("1", "30", "columns"), b"150": ("1", "50", "broker"),
    }  # fmt: skip
    assert {(said["topic"], said["attempt"], said["write"]) for said in story.values()} == {(topic, "0", "batch write")}
    assert len({said["write.id"] for said in story.values()}) == 1, "equal in all tasks"
    assert letters[b"150"].value == b"x" * 30_000
    assert letters[b"20"].timestamp_ms == 1_700_000_000_020
    assert all(row.headers[0] == ("h", key) for key, row in letters.items())
    (written,) = reports.take()
    report = written.report
    assert (report.records, report.rejected, report.rejected_by) == (ROWS - 3, 3, {"row": 2, "size": 1})
    assert {place: found.records for place, found in report.dead_letters.items()} == {(dead, 0): 3}


@pytest.mark.covers("COM1")
def test_a_stream_with_bad_rows_goes_on(
    spark: SparkSession, embedded_broker: LocalBroker, topic: str, dead: str, tmp_path: Path
) -> None:
    stream = FileStream(spark, tmp_path, "id long, partition int")
    for batch in range(3):
        stream.put(f"{batch}.json", [{"id": 10 * batch + row, "partition": -1 if row == 4 else 0} for row in range(10)])
    frame = stream.frame.selectExpr("string(id) as key", "string(id) as value", "partition")
    query = run(stream.to(embedded_broker, topic, frame, {"deadLetterTopic": dead}))
    assert query.exception() is None
    assert stream.committed() == [0, 1, 2]
    good = read_topic(embedded_broker.bootstrap_servers, topic, expected=27)
    assert [int(row.value or b"-1") for row in good] == [row for row in range(30) if row % 10 != 4]
    letters = read_topic(embedded_broker.bootstrap_servers, dead, client="confluent", expected=3)
    assert [(row.value, reported(row)["write"]) for row in letters] == [
        (b"4", "micro-batch 0"), (b"14", "micro-batch 1"), (b"24", "micro-batch 2"),
    ]  # fmt: skip
    assert [reported(row)["write.id"] for row in letters] == [f"{query.id}/{batch}" for batch in range(3)]
