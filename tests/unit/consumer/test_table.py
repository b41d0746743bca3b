"""Reading a topic into an Arrow table: all records or a part, sorted, bounded, by threads at the same time."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

import spark_producer
from spark_producer.admin import offsets as admin_offsets
from spark_producer.broker import LocalBroker
from spark_producer.common.offsets import LATEST
from spark_producer.consumer import fetcher, read_ranges, table
from spark_producer.errors import ConfigError, DataLoss, TopicNotFound
from spark_producer.producer import Producer

ROWS = 500
SECRET = "canary-of-the-table"


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker with `ROWS` records in each of the two partitions of `t`. The record at offset n has the time 1000 + n."""
    with LocalBroker(auto_create_topics=False) as broker:
        broker.create_topic("t", 2)
        broker.create_topic("empty", 3)
        with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": "2000"}) as producer:
            for row in range(ROWS):
                for partition in (0, 1):
                    producer.send(
                        "t",
                        None if row == 7 else b"%d-%d" % (partition, row),
                        key=b"k%d" % row,
                        partition=partition,
                        timestamp_ms=1000 + row,
                        headers=[("h", b"%d" % row)] if row % 2 else [],
                    )
        yield broker


def read(broker: LocalBroker, topic: str = "t", **given: Any) -> pa.Table:
    return spark_producer.read_table(topic, {"bootstrap.servers": broker.bootstrap_servers}, **given)


def offsets_of(found: pa.Table) -> dict[int, list[int]]:
    by_partition: dict[int, list[int]] = {}
    for row in found.select(["partition", "offset"]).to_pylist():
        by_partition.setdefault(row["partition"], []).append(row["offset"])
    return by_partition


def test_a_table_has_every_record_sorted(broker: LocalBroker) -> None:
    found = read(broker)
    assert found.schema.names == ["key", "value", "partition", "offset", "timestamp"]
    assert found.schema.field("timestamp").type == pa.timestamp("ms", "UTC")
    rows = found.to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (each, row) for each in (0, 1) for row in range(ROWS)
    ]
    for row in rows:
        assert row["key"] == b"k%d" % row["offset"]
        assert row["value"] == (None if row["offset"] == 7 else b"%d-%d" % (row["partition"], row["offset"]))
        assert row["timestamp"].timestamp() == (1000 + row["offset"]) / 1000


@pytest.mark.parametrize(
    ("given", "first", "second"),
    [
        ({"starting_offsets": {1: 490}}, (0, ROWS), (490, ROWS)),
        ({"starting_offsets": {0: 10, 1: ROWS}, "ending_offsets": {0: 20}}, (10, 20), (0, 0)),
        ({"ending_offsets": {0: 3, 1: 10_000}}, (0, 3), (0, ROWS)),
        ({"starting_timestamp_ms": 1400}, (400, ROWS), (400, ROWS)),
        ({"starting_timestamp_ms": 9999}, (0, 0), (0, 0)),
        ({"starting_timestamp_ms": 1400, "starting_offsets": {0: 2}}, (2, ROWS), (400, ROWS)),
    ],
)
def test_a_part_of_a_topic(
    broker: LocalBroker, given: dict[str, Any], first: tuple[int, int], second: tuple[int, int]
) -> None:
    found = offsets_of(read(broker, **given))
    assert found.get(0, []) == list(range(*first))
    assert found.get(1, []) == list(range(*second))


def test_a_read_continues_after_the_largest_offsets_of_a_table(broker: LocalBroker) -> None:
    first = read(broker, ending_offsets={0: 100, 1: 30})
    following = {partition: offsets[-1] + 1 for partition, offsets in offsets_of(first).items()}
    second = read(broker, starting_offsets=following)
    assert first.num_rows + second.num_rows == 2 * ROWS
    assert offsets_of(second) == {0: list(range(100, ROWS)), 1: list(range(30, ROWS))}


def test_the_columns_are_those_that_are_named(broker: LocalBroker) -> None:
    found = read(broker, columns=["headers", "partition"])
    assert found.schema.names == ["headers", "partition"]
    assert found["headers"].to_pylist()[:2] == [[], [{"key": "h", "value": b"1"}]]
    assert read(broker, columns=["partition"]).num_rows == 2 * ROWS
    with pytest.raises(ConfigError, match=r"no column 'topic'\. Name some of key, value"):
        read(broker, columns=["value", "topic"])
    with pytest.raises(ConfigError, match="no column is named"):
        read(broker, columns=[])


def test_a_topic_without_records_is_a_table_without_rows(broker: LocalBroker) -> None:
    assert read(broker, "empty").num_rows == 0
    assert read(broker, "empty").schema == read(broker).schema


def test_what_was_read_can_be_written(broker: LocalBroker) -> None:
    broker.create_topic("copy", 2)
    found = read(broker, columns=["key", "value", "partition", "timestamp", "headers"])
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        assert producer.send_table(found, topic="copy").result(30).records == 2 * ROWS
    assert read(broker, "copy", columns=found.schema.names).equals(found)


def test_a_table_is_bounded(broker: LocalBroker) -> None:
    size = read(broker).nbytes
    assert read(broker, max_bytes=2 * size).num_rows == 2 * ROWS
    with pytest.raises(ConfigError, match=r"more than max_bytes \(1,000\)"):
        read(broker, max_bytes=1000)


def test_missing_topics_and_partitions_are_named(broker: LocalBroker) -> None:
    with pytest.raises(TopicNotFound, match="did you mean 'empty'"):
        read(broker, "emty")
    for name in ("starting_offsets", "ending_offsets"):
        given: dict[str, Any] = {name: {2: 0}}
        with pytest.raises(TopicNotFound, match="partition 2"):
            read(broker, **given)


def test_a_topic_that_is_created_again_after_its_offsets_were_looked_up_is_data_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its rows would stand for those of the former topic."""
    monkeypatch.setattr(fetcher, "GONE_AFTER_S", 0.0)
    real = admin_offsets.offsets
    with LocalBroker(auto_create_topics=False) as own:
        servers = {"bootstrap.servers": own.bootstrap_servers}

        def fill(value: bytes) -> None:
            own.create_topic("t", 1)
            with Producer(servers) as producer:
                for _ in range(3):
                    producer.send("t", value)

        def looked_up(client: Any, topic: str, when: int, *given: Any, **more: Any) -> dict[int, int]:
            found = real(client, topic, when, *given, **more)
            if when == LATEST:
                admin = AdminClient(servers | {"log_level": 0})
                admin.delete_topics([topic], operation_timeout=20)[topic].result(20)
                fill(b"of the later topic")
            return found

        fill(b"of the former topic")
        monkeypatch.setattr(table, "offsets", looked_up)
        with pytest.raises(DataLoss, match="offsets 0 to 2 are lost, because the topic was deleted and created again"):
            read(own)


def test_a_start_after_the_end_is_data_loss(broker: LocalBroker) -> None:
    with pytest.raises(
        DataLoss, match=r"ends at offset 500, before the starting offset 501.* or set fail_on_data_loss to false"
    ):
        read(broker, starting_offsets={1: 501})
    found = read(broker, starting_offsets={1: 501}, fail_on_data_loss=False)
    assert offsets_of(found) == {0: list(range(ROWS))}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bootstrap.server": "x:1"}, "unknown option 'bootstrap.server'. Did you mean 'bootstrap.servers'"),
        ({"auto.offset.reset": "earliest"}, "'auto.offset.reset' is not supported"),
        ({"isolation.level": "commited"}, "isolation.level"),
        ({}, "bootstrap.servers"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spark_producer.read_table("t", options)


def test_no_local_variable_of_a_traceback_has_a_password() -> None:
    options = {"bootstrap.servers": "localhost:9092", "sasl.password": SECRET, "sasl.pasword": SECRET}
    with pytest.raises(ConfigError) as caught:
        spark_producer.read_table("t", options)
    frames = [frame for frame in traceback.TracebackException(
        type(caught.value), caught.value, caught.tb, capture_locals=True
    ).stack if frame.filename.startswith(str(table.__file__).rpartition("consumer")[0])]  # fmt: skip
    assert frames
    assert SECRET not in "".join(str(frame.locals) for frame in frames)


def test_threads_read_at_the_same_time_and_leave_no_connection(broker: LocalBroker) -> None:
    before = len(read_ranges.CONNECTIONS)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: read(broker).num_rows, range(12)))
    assert found == [2 * ROWS] * 12
    assert len(read_ranges.CONNECTIONS) == before
