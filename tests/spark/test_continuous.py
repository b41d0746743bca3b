"""`trigger(continuous=…)`: Spark reads, but never hands the rows on; nothing may be lost by that.

Spark's own Kafka source is the only one whose offsets mean the same to both kinds of trigger.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Broker
from tests.spark.isolated import REPOSITORY, run_program
from tests.support.jars import spark_sink_jars
from tests.support.read_back import read_topic

PROGRAM = """
import json, shutil, sys
from pathlib import Path
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.kafka.foreign import write_with_kafka_python
from tests.support.waiting import wait_until

jars, bootstrap, source, begun, fresh = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[4]").config("spark.jars", jars).config("spark.ui.enabled", "false").getOrCreate()
)

def query(topic, **trigger):
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    reader = reader.option("startingOffsets", "earliest")
    writer = reader.load().select("value").writeStream.format("pyproducer").option("checkpointLocation", topic)
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    return writer.trigger(**trigger).start()

def numbers(topic, log):
    return sorted(int(path.name) for path in Path(topic, log).glob("[0-9]*"))

def read_by(topic):
    # What the newest entry of the log of offsets says was read.
    newest = Path(topic, "offsets", str(numbers(topic, "offsets")[-1])).read_text().splitlines()[-1]
    return sum(json.loads(newest)[source].values())

def wait(condition):
    wait_until(condition, "the query goes on", seconds=90, pause=0.1)

# One checkpoint has a completed micro-batch, the other one is new.
write_with_kafka_python(bootstrap, source, 20, 2)
assert query(begun, availableNow=True).awaitTermination(90)
assert numbers(begun, "commits") == [0], numbers(begun, "commits")
write_with_kafka_python(bootstrap, source, 40, 2)

for topic in (begun, fresh):
    running = query(topic, continuous="100 milliseconds")
    wait(lambda: len(numbers(topic, "offsets")) > 6 and read_by(topic) == 60)
    assert running.isActive
    running.stop()
    assert numbers(topic, "commits") == ([0] if topic == begun else []), numbers(topic, "commits")

    # As it is, Spark does not go on from such a checkpoint, so it loses nothing either (but may write some rows already).
    try:
        query(topic, availableNow=True).awaitTermination(90)
    except StreamingQueryException:
        pass
    else:
        raise AssertionError("went on from the positions that were only read")

    # What the error says.
    committed = numbers(topic, "commits")
    if committed:
        for number in numbers(topic, "offsets"):
            if number > committed[-1]:
                Path(topic, "offsets", str(number)).unlink()
                Path(topic, "offsets", f".{number}.crc").unlink()
    else:
        shutil.rmtree(topic)
    assert query(topic, availableNow=True).awaitTermination(90)
"""


@pytest.mark.spark
@pytest.mark.nightly
def test_nothing_is_lost(broker: Broker, topic: str, tmp_path: Path) -> None:
    bootstrap, targets = broker.bootstrap_servers, [f"{topic}-begun", f"{topic}-fresh"]
    for name in (topic, *targets):
        broker.create_topic(name, 2)
    jars = ",".join(map(str, spark_sink_jars()))
    said = run_program(PROGRAM, [jars, bootstrap, topic, *targets], [REPOSITORY], tmp_path)
    assert "CommitError: micro-batch 0: 2 of 2 tasks wrote nothing and reported nothing" in said
    assert "Spark does not write through Python data sources with trigger(continuous=…). Nothing is lost" in said
    wanted = Counter(row.value for row in read_topic(bootstrap, topic, expected=60))
    for target in targets:
        assert wanted <= Counter(row.value for row in read_topic(bootstrap, target))
