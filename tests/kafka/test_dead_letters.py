"""Rows that real brokers refuse one by one: the good ones are in the topic in order, the bad ones are dead letters.

Ids: COM1, COM2, COM3, COM5, COM8.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_producer.config import parse_options
from spark_producer.datasource.write.dead_letters.records import PREFIX
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.task import write_task
from spark_producer.errors import BrokerError, TopicNotFound
from tests.conftest import Broker
from tests.kafka.foreign import CLIENTS
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import Client, Row, read_topic

ROWS = 1000
NOW = int(time.time() * 1000)


@pytest.fixture
def dead(topic: str) -> str:
    """The name of the topic for bad rows; it is not created."""
    return f"{topic}-dead"


@pytest.fixture
def producers() -> Iterator[ProducerCache]:
    made = ProducerCache()
    yield made
    made.clear()


def create(broker: Broker, topic: str, partitions: int = 1, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    given = {"config" if isinstance(broker, KafkaCluster) else "configs": named} if named else {}
    broker.create_topic(topic, partitions, **given)


def write(
    broker: Broker, producers: ProducerCache, batch: pa.RecordBatch, topic: str, dead: str, **options: object
) -> TaskReport:
    """One task of a batch write."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "deadLetterTopic": dead, **options}
    config, sink = parse_options({name: str(value) for name, value in given.items()})
    return write_task(TaskSettings(config, sink), iter([batch]), producers)


def reported(row: Row) -> dict[str, str]:
    """Our headers of a dead record, by suffix."""
    return {
        name.removeprefix(PREFIX): (value or b"").decode() for name, value in row.headers if name.startswith(PREFIX)
    }


@pytest.fixture(params=["kafka_39", pytest.param("kafka_4")])
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    found: KafkaCluster = request.getfixturevalue(request.param)
    return found


@pytest.mark.covers("COM2")
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("client", CLIENTS)
def test_eleven_rows_without_key_and_one_out_of_time(
    kafka: KafkaCluster, producers: ProducerCache, topic: str, dead: str, client: Client, codec: str
) -> None:
    create(kafka, topic, cleanup_policy="compact", message_timestamp_after_max_ms="3600000")
    create(kafka, dead)
    keyless = set(range(5, ROWS, 95))
    late = 777
    assert len(keyless) == 11
    batch = pa.record_batch(
        {
            "key": pa.array([None if row in keyless else b"k%d" % row for row in range(ROWS)], pa.binary()),
            "value": pa.array([b"v%d" % row for row in range(ROWS)], pa.binary()),
            "timestamp": pa.array([NOW + (10**9 if row == late else row % 7) for row in range(ROWS)], pa.int64()),
            "headers": pa.array(
                [[("h", b"%d" % row)] for row in range(ROWS)], pa.map_(pa.string(), pa.binary())
            ),
        }
    )  # fmt: skip
    report = write(kafka, producers, batch, topic, dead, **{"kafka.compression.type": codec}).report
    bad = keyless | {late}
    good = read_topic(kafka.bootstrap_servers, topic, client=client, expected=ROWS - len(bad))
    assert [row.value for row in good] == [b"v%d" % row for row in range(ROWS) if row not in bad]
    assert [row.key for row in good] == [b"k%d" % row for row in range(ROWS) if row not in bad]
    letters = read_topic(kafka.bootstrap_servers, dead, client=client, expected=len(bad))
    by_row = {int(reported(row)["row"]): row for row in letters}
    assert set(by_row) == bad
    for number, row in by_row.items():
        assert row.value == b"v%d" % number
        assert row.headers[0] == ("h", b"%d" % number)
        assert reported(row) | {"exception.message": ""} == {
            "topic": topic, "partition": "0", "task.id": "0", "row": str(number), "attempt": "0", "write": "batch write",
            "stage": "broker", "exception.class.name": "spark_producer.errors.RecordsRefused", "exception.message": "",
            "code": reported(row)["code"],
        }  # fmt: skip
        assert f"row {number} of the task" in reported(row)["exception.message"]
        assert reported(row)["code"] in ("32", "87"), "one code covers all that a broker names at once (KAFKA-12606)"
        if reported(row)["code"] == "87":
            assert (row.key, row.timestamp_ms) == (None, NOW + number % 7)
    assert by_row[late].key == b"k%d" % late
    assert abs(by_row[late].timestamp_ms - time.time() * 1000) < 600_000, (
        "the time of writing, since its own was the fault"
    )
    assert (report.records, report.rejected, report.rejected_by) == (ROWS - 12, 12, {"broker": 12})
    assert sum(found.records for found in report.ranges.values()) == ROWS - 12
    assert {place: found.records for place, found in report.dead_letters.items()} == {(dead, 0): 12}


@pytest.mark.covers("COM2")
def test_many_batches_in_flight_keep_their_order(
    kafka: KafkaCluster, producers: ProducerCache, topic: str, dead: str
) -> None:
    """The broker rejects the batches after a rejected one for their gap; they are sent again with new sequence numbers."""
    create(kafka, topic, partitions=2, cleanup_policy="compact")
    create(kafka, dead)
    count = 20_000
    bad = {row for row in range(count) if row % 1201 == 1000}
    batch = pa.record_batch(
        {
            "key": pa.array([None if row in bad else b"%d" % row for row in range(count)], pa.binary()),
            "value": pa.array([b"%08d" % row for row in range(count)], pa.binary()),
            "partition": pa.array([row % 2 for row in range(count)], pa.int32()),
        }
    )
    options = {"kafka.batch.size": 4096, "kafka.linger.ms": 0}
    report = write(kafka, producers, batch, topic, dead, **options).report
    for partition in (0, 1):
        rows = [
            row
            for row in read_topic(kafka.bootstrap_servers, topic, expected=count - len(bad))
            if row.partition == partition
        ]
        mine = [row for row in range(count) if row % 2 == partition and row not in bad]
        assert [int(row.value or b"-1") for row in rows] == mine
    letters = read_topic(kafka.bootstrap_servers, dead, expected=len(bad))
    assert sorted(int(reported(row)["row"]) for row in letters) == sorted(bad)
    assert (report.records, report.rejected) == (count - len(bad), len(bad))


@pytest.mark.covers("COM1", "COM5")
@pytest.mark.parametrize("client", CLIENTS)
def test_rows_that_the_topic_and_its_dead_letter_topic_find_too_large(
    broker: Broker, producers: ProducerCache, topic: str, dead: str, client: Client
) -> None:
    create(broker, topic, max_message_bytes="20000")
    create(broker, dead, max_message_bytes="50000")
    values = [b"v%d" % row for row in range(300)]
    values[100], values[200] = b"x" * 30_000, b"y" * 60_000
    batch = pa.record_batch({"value": pa.array(values, pa.binary()), "key": [str(row) for row in range(300)]})
    report = write(broker, producers, batch, topic, dead).report
    good = read_topic(broker.bootstrap_servers, topic, client=client, expected=298)
    assert [row.value for row in good] == [value for row, value in enumerate(values) if row not in (100, 200)]
    letters = {
        int(reported(row)["row"]): row for row in read_topic(broker.bootstrap_servers, dead, client=client, expected=2)
    }
    assert letters[100].value == values[100]
    assert reported(letters[100])["code"] == "10"
    assert letters[200].value is None
    assert letters[200].key == b"200"
    said = dict(letters[200].headers)
    assert said[f"{PREFIX}value.bytes"] == b"60000"
    assert said[f"{PREFIX}value.sha256"] == hashlib.sha256(values[200]).hexdigest().encode()
    assert said[f"{PREFIX}value.head"] == b"y" * 1024
    assert (report.records, report.rejected_by) == (298, {"size": 2})


@pytest.mark.covers("COM3")
def test_a_dead_letter_topic_that_is_missing_fails_the_write(
    broker: Broker, producers: ProducerCache, topic: str
) -> None:
    """The dead-letter topic has a name that no broker creates automatically."""
    create(broker, topic)
    batch = pa.record_batch({"value": ["good", "bad"], "partition": pa.array([0, -1], pa.int32())})
    with pytest.raises((TopicNotFound, BrokerError)):
        write(broker, producers, batch, topic, "no/topic", **{"kafka.max.block.ms": 2000})


@pytest.mark.covers("COM3")
def test_a_dead_letter_topic_that_refuses_a_row_fails_the_write(
    kafka: KafkaCluster, producers: ProducerCache, topic: str, dead: str
) -> None:
    create(kafka, topic)
    create(kafka, dead, cleanup_policy="compact")
    batch = pa.record_batch({"value": ["good", "bad"], "partition": pa.array([0, -1], pa.int32())})
    with pytest.raises(BrokerError, match=f"INVALID_RECORD .87. for .* topic '{dead}'"):
        write(kafka, producers, batch, topic, dead)
