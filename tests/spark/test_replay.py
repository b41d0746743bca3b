"""The replay of dead letters in docs/dead_letters.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_producer.broker import LocalBroker
from spark_producer.datasource.write.dead_letters.records import PREFIX
from tests.spark.frames import write
from tests.spark.read_sources import batch
from tests.support.read_back import read_topic

DEAD = {"deadLetterTopic": "flights.dead"}
ROWS = (
    "string(if(id = 6, 5, id)) as key",
    "if(id = 9, repeat('x', 5000), concat('v', if(id = 6, 5, id))) as value",
    "if(id between 4 and 6, 7, 0) as partition",
    "timestamp_millis(1700000000000 + if(id = 6, 5, id)) as timestamp",
    "array(struct('own' as key, binary(string(if(id = 6, 5, id))) as value)) as headers",
)
"""Rows 4 to 6 are bad; 5 and 6 are equal, and two rows all the same. The last one is too large, for the dead-letter topic as
well."""


def write_letters(spark: SparkSession, broker: LocalBroker) -> None:
    """Write two tables with dead letters, each of which is there twice, as after a retried task."""
    rows = spark.range(0, 10, 1, 1).selectExpr(*ROWS)
    write(rows, broker, "flights", DEAD)
    # Another write, with the row 4 as it was there: the same row at the same place, and yet another one.
    write(rows.where("id = 4 or id < 4"), broker, "flights", DEAD)
    letters = batch(spark, broker, "flights.dead", {"includeHeaders": "true"})
    assert letters.count() == 5
    write(letters.select("key", "value", "headers", "timestamp"), broker, "flights.dead")


def replay_of_the_page() -> str:
    """The one example of the page that reads dead letters."""
    text = (Path(__file__).parents[2] / "docs" / "dead_letters.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if PREFIX in block]
    return str(found)


@pytest.mark.covers("RD20")
def test_the_replay_of_the_page_writes_each_whole_row_once(spark: SparkSession) -> None:
    """Copies of a dead letter are written once, equal rows of one write or two as often as they were there, and what has lost its
    value not at all."""
    with LocalBroker() as broker:
        broker.create_topic("flights", 1, {"max.message.bytes": "2000"})
        broker.create_topic("flights.dead", 1, {"max.message.bytes": "3000"})
        page = replay_of_the_page().replace("localhost:9092", broker.bootstrap_servers)
        write_letters(spark, broker)
        exec(page, {"spark": spark})
        dead = read_topic(broker.bootstrap_servers, "flights.dead", expected=10)
        assert sorted(row.key or b"" for row in dead) == [b"4"] * 4 + [b"5"] * 4 + [b"9"] * 2
        rows = read_topic(broker.bootstrap_servers, "flights", expected=14)
    assert [row.key for row in rows[:10]] == [b"%d" % key for key in (0, 1, 2, 3, 7, 8, 0, 1, 2, 3)]
    replayed = sorted(rows[10:], key=lambda row: row.key or b"")
    assert [(row.key, row.value) for row in replayed] == [(b"4", b"v4"), (b"4", b"v4"), (b"5", b"v5"), (b"5", b"v5")]
    assert [row.headers for row in replayed] == [[("own", key)] for key in (b"4", b"4", b"5", b"5")]
    assert [row.timestamp_ms - 1_700_000_000_000 for row in replayed] == [4, 4, 5, 5]
