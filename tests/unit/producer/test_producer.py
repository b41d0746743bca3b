"""The producer against the embedded broker, read back with kafka-python. Ids (tests/ids.md): KP, SN, RA."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.config import producer_config
from spark_producer.errors import (
    BrokerError,
    BrokersUnreachable,
    ConfigError,
    PyProducerError,
    RecordError,
    RecordTooLarge,
    SchemaError,
    TopicNotFound,
)
from spark_producer.producer import parts_of
from spark_producer.producer.internals import Parts
from spark_producer.producer.producer import producer_of
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.hurry import RunningClock, impatient
from tests.support.ports import free_ports
from tests.support.proxy import Direction, FaultProxy
from tests.support.read_back import Row, read_topic
from tests.support.waiting import wait_until

NOW = 1_700_000_000_000
PRODUCE_API, API_VERSIONS_API = 0, 18
FAST = {"retry.backoff.ms": 5, "retry.backoff.max.ms": 20, "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 20}

pytestmark = pytest.mark.usefixtures("short_partition_grace")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(default_partitions=3) as made:
        yield made


def producer_to(bootstrap_servers: str, **options: object) -> Producer:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return Producer(FAST | {"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "batch.size": 4096} | given)


def text(*values: str | None) -> Any:
    return pa.array(values, pa.string())


def batch(**columns: Any) -> Any:
    return pa.record_batch(list(columns.values()), names=list(columns))


def rows_in(broker: LocalBroker, topic: str) -> list[Row]:
    return read_topic(broker.bootstrap_servers, topic, timeout=20)


def numbered(first: int, count: int, name: str = "row") -> Any:
    return batch(value=text(*(f"{name} {number} {'.' * (number % 90)}" for number in range(first, first + count))))


def numbers(rows: list[Row], name: str = "row") -> list[int]:
    values = [(row.value or b"").split() for row in rows]
    return [int(value[1]) for value in values if value[0] == name.encode()]


# --- single records -------------------------------------------------------------------------------------------------


@pytest.mark.covers("SN1")
def test_the_future_of_a_record_knows_where_it_went(broker: LocalBroker, topic: str) -> None:
    with producer_to(broker.bootstrap_servers) as producer:
        futures = [producer.send(topic, f"v{n}", partition=n % 2, timestamp_ms=NOW + n) for n in range(6)]
        producer.flush()
        found = [future.result(0) for future in futures]
    assert [(record.topic, record.partition) for record in found] == [(topic, n % 2) for n in range(6)]
    assert [record.offset for record in found] == [0, 0, 1, 1, 2, 2]
    assert [record.timestamp for record in found] == [NOW + n for n in range(6)]
    values = {(row.partition, row.offset): row.value for row in rows_in(broker, topic)}
    assert [values[record.partition, record.offset] for record in found] == [b"v%d" % n for n in range(6)]


def test_a_record_arrives_with_key_headers_and_time(broker: LocalBroker, topic: str) -> None:
    with producer_to(broker.bootstrap_servers) as producer:
        producer.send(topic, b"v", key="kafka", headers=[("a", b"1"), ("a", None)], timestamp_ms=NOW)
        producer.send(topic, None, key=b"gone", timestamp_ms=NOW)
    records = {row.value: row for row in rows_in(broker, topic)}
    assert records[b"v"][3:] == (NOW, b"kafka", b"v", [("a", b"1"), ("a", None)])
    assert records[None][3:] == (NOW, b"gone", None, [])


@pytest.mark.covers("KP15")
@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"value": "v", "partition": -1}, "partition -1 is negative"),
        ({"value": "v", "partition": 3}, "partition 3 does not exist .*the 3 partitions 0 to 2"),
        ({"value": "v", "partition": 2**31}, "cannot be written"),
        ({"value": "v", "timestamp_ms": -1}, "timestamp is -1 ms, before 1970"),
        ({"value": "v", "headers": [(None, b"x")]}, "a header key is null"),
        ({"value": 5}, "cannot be written.*int"),
        ({"value": "x" * 4_194_400}, r"a record of 41944\d\d bytes .*kafka\.max\.request\.size \(4194304\)"),
    ],
)
def test_a_bad_record_is_refused_at_once(broker: LocalBroker, record: dict[str, Any], complaint: str) -> None:
    with producer_to(broker.bootstrap_servers) as producer:
        with pytest.raises(RecordError, match=complaint):
            producer.send("refused", **record)
        producer.send("refused", "good").result(20)


def test_a_row_that_the_topic_refuses_is_named(broker: LocalBroker) -> None:
    """One that is larger than batch.size has a batch of its own, and so a number."""
    broker.create_topic("strict", 1)
    rows = pa.record_batch({"value": ["a", "b", "x" * 2_000_000, "c"]})
    complaint = (
        r"MESSAGE_TOO_LARGE \(10\) for a record of 2000\d\d\d bytes for topic 'strict', partition 0, attempt 1 "
        r"\(row 702 of the task\)\. .*make the row smaller"
    )
    with producer_to(broker.bootstrap_servers) as producer:
        producer.send_batch(rows, topic="strict", first_row=700)
        with pytest.raises(BrokerError, match=complaint):
            producer.flush()


# --- columns --------------------------------------------------------------------------------------------------------


def test_every_row_of_a_table_arrives_once_and_in_order_of_its_partition(broker: LocalBroker, topic: str) -> None:
    chunks = [numbered(first, 1000) for first in range(0, 5000, 1000)]
    with producer_to(broker.bootstrap_servers) as producer:
        producer.send_table(pa.Table.from_batches(chunks), topic=topic)
    rows = rows_in(broker, topic)
    assert sorted(numbers(rows)) == list(range(5000))
    for partition in range(3):
        inside = numbers([row for row in rows if row.partition == partition])
        assert inside == sorted(inside)
        assert inside


def test_the_report_has_the_written_ranges(broker: LocalBroker, topic: str) -> None:
    with producer_to(broker.bootstrap_servers) as producer:
        producer.send_batch(numbered(0, 3000), topic=topic)
        producer.flush()
        report = parts_of(producer).take_report()
        counts = Counter(row.partition for row in rows_in(broker, topic))
        assert report.ranges == {(topic, p): (0, count - 1, count) for p, count in counts.items()}
        assert report.records == 3000
        assert report.requests <= report.batches
        assert parts_of(producer).take_report().ranges == {}
        producer.send(topic, "more", partition=0)
        producer.flush()
        assert parts_of(producer).take_report().ranges == {(topic, 0): (counts[0], counts[0], 1)}


def test_the_topic_column_chooses_and_equal_keys_stay_together(broker: LocalBroker, topic: str) -> None:
    topics = text(*([f"{topic}-a", f"{topic}-b"] * 300))
    keys = text(*(f"key {n // 2 % 20}" for n in range(600)))
    with producer_to(broker.bootstrap_servers) as producer:
        producer.send_batch(batch(topic=topics, key=keys, value=keys))
        assert parts_of(producer).partition_count(f"{topic}-a") == 3
        assert parts_of(producer).partition_count("never seen") == 1
    for name in (f"{topic}-a", f"{topic}-b"):
        rows = rows_in(broker, name)
        assert len(rows) == 300
        assert len({(row.key, row.partition) for row in rows}) == 20
        assert len({row.partition for row in rows}) == 3


LARGE = "x" * 2000
BAD_BATCHES = [
    (batch(value=text("good", "good"), topic=text("bad", None)), RecordError, "row 71 of the task has a null topic"),
    (
        batch(value=text("good", "good"), topic=text("bad", "bad"), partition=pa.array([0, 9], pa.int32())),
        RecordError,
        r"partition 9 does not exist \(topic 'bad', row 71 of the task\): the topic has the 3 partitions 0 to 2",
    ),
    (
        batch(value=text("good", LARGE), topic=text("bad", "bad")),
        RecordTooLarge,
        r"a record of 20\d\d bytes \(topic 'bad', row 71 of the task\) exceeds kafka\.max\.request\.size \(1024\)",
    ),
    (
        batch(value=text("good", "good"), topic=text("bad", "bad"), timestamp=pa.array([1, None], pa.int64())),
        RecordError,
        r"the timestamp is null \(topic 'bad', row 71",
    ),
    (batch(value=text("good"), topic=text("bad"), extra=text("x")), SchemaError, "unknown column 'extra'"),
]


@pytest.mark.parametrize(
    ("rows", "kind", "complaint"), BAD_BATCHES, ids=["topic", "partition", "size", "time", "column"]
)
def test_nothing_is_sent_of_a_batch_with_a_bad_row(
    broker: LocalBroker, rows: Any, kind: type[PyProducerError], complaint: str
) -> None:
    with producer_to(broker.bootstrap_servers, max_request_size=1024, batch_size=1024) as producer:
        with pytest.raises(kind, match=complaint):
            producer.send_batch(rows, first_row=70)
        producer.flush()
        assert parts_of(producer).take_report().records == 0
        assert not parts_of(producer).failed


@pytest.mark.parametrize("first", [70, np.int64(70)], ids=["int", "numpy"])
def test_rows_are_numbered_from_any_kind_of_integer(broker: LocalBroker, topic: str, first: Any) -> None:
    """Row numbers are often sums of numpy's integers. A row larger than a batch has its number noted although it is good."""
    no_text = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    with producer_to(broker.bootstrap_servers, batch_size=1024) as producer:
        producer.send_batch(batch(value=text("L" * 5000)), topic=topic, first_row=first)
        with pytest.raises(RecordError, match="row 71 of the task"):
            producer.send_batch(
                batch(value=text("v", "v"), partition=pa.array([0, -7], pa.int32())), topic=topic, first_row=first
            )
        with pytest.raises(RecordError, match="rows 70 to 71 of the task"):
            producer.send_batch(batch(value=text("v", "v"), topic=no_text), first_row=first)
    assert [len(row.value or b"") for row in rows_in(broker, topic)] == [5000]


@pytest.mark.covers("RA3")
def test_a_row_larger_than_a_batch_goes_in_one_of_its_own(broker: LocalBroker, topic: str) -> None:
    values = ["small", "L" * 900_000, "small again"]
    with producer_to(broker.bootstrap_servers) as producer:
        producer.send_batch(batch(value=text(*values), partition=pa.array([0] * 3, pa.int32())), topic=topic)
    assert [row.value for row in rows_in(broker, topic)] == [value.encode() for value in values]


def test_an_empty_batch_is_nothing(broker: LocalBroker) -> None:
    with producer_to(broker.bootstrap_servers) as producer:
        producer.send_batch(numbered(0, 0), topic="t")
        producer.send_table(pa.Table.from_batches([numbered(0, 0)]), topic="t")
        producer.flush()
    assert parts_of(producer).take_report().records == 0


# --- settings -------------------------------------------------------------------------------------------------------

SETTINGS: list[dict[str, object]] = [
    {"acks": "1"},
    {"acks": "all", "enable_idempotence": False},
    {"max_in_flight_requests_per_connection": 1, "metadata_max_age_ms": 1},
    {"enable_idempotence": False, "max_in_flight_requests_per_connection": 50},
    {"linger_ms": 60_000, "delivery_timeout_ms": 120_000, "batch_size": 1 << 20},
    {"buffer_memory": 65536, "batch_size": 65536},
    {"max_request_size": 4096, "batch_size": 1024},
]


@pytest.mark.covers("SN13")
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ", ".join(settings))
def test_every_mode_delivers_everything_in_order(broker: LocalBroker, topic: str, settings: dict[str, object]) -> None:
    with producer_to(broker.bootstrap_servers, **settings) as producer:
        for first in range(0, 6000, 500):
            producer.send_batch(numbered(first, 500), topic=topic)
    rows = rows_in(broker, topic)
    assert sorted(numbers(rows)) == list(range(6000))
    for partition in range(3):
        inside = numbers([row for row in rows if row.partition == partition])
        assert inside == sorted(inside)


def test_threads_may_share_a_producer(broker: LocalBroker, topic: str) -> None:
    def work(name: str) -> None:
        for first in range(0, 2000, 100):
            producer.send_batch(numbered(first, 100, name), topic=topic)
            producer.send(topic, f"{name}-single {first}", partition=0)
        producer.flush()

    with producer_to(broker.bootstrap_servers, buffer_memory=65536) as producer:
        for runner in [Runner(lambda name=name: work(name)) for name in ("a", "b", "c")]:  # type: ignore[misc]
            runner.result()
        assert parts_of(producer).take_report().records == 3 * (2000 + 20)
    rows = rows_in(broker, topic)
    for name in ("a", "b", "c"):
        assert sorted(numbers(rows, name)) == list(range(2000))
        assert numbers(rows, f"{name}-single") == list(range(0, 2000, 100))


# --- topics and servers that are not there --------------------------------------------------------------------------


@pytest.mark.covers("KP6")
def test_a_missing_topic_is_not_found_and_one_created_late_is_written_to(
    topic: str,
) -> None:
    with LocalBroker(auto_create_topics=False) as strict:
        with (
            impatient(producer_to(strict.bootstrap_servers)) as producer,
            pytest.raises(TopicNotFound, match=f"topic '{topic}'"),
        ):
            producer.send(topic, "x")
        with producer_to(strict.bootstrap_servers) as producer:
            sending = Runner(lambda: producer.send(topic, "x").result(20))
            strict.create_topic(topic, 2)
            assert sending.result().offset == 0


@pytest.mark.covers("MT5")
def test_an_illegal_topic_name_is_reported_at_once(broker: LocalBroker) -> None:
    with producer_to(broker.bootstrap_servers) as producer, pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
        producer.send("no such/name", "x")


@pytest.mark.covers("KP6", "KP8")
def test_unreachable_servers_are_named_and_close_returns() -> None:
    servers = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    clock, config = RunningClock(), producer_config(FAST | {"bootstrap.servers": servers})
    with producer_of(Parts(config, clock=clock, max_sleep=0.01)) as producer:
        sending = Runner(lambda: producer.send("t", "x"))
        wait_until(lambda: parts_of(producer).topics.last_error is not None, "a connection is refused")
        clock.skip(config.max_block_ms / 1000)
        with pytest.raises(BrokersUnreachable, match=f"none of the bootstrap servers {servers} answered") as raised:
            sending.result()
        assert "refused" in str(raised.value).lower()
    wait_until(lambda: not parts_of(producer).io_thread.is_alive, "the thread ends")


@pytest.mark.covers("KP3")
@pytest.mark.parametrize("options", [{}, {"bootstrap.servers": "a"}, {"bootstrap.servers": "a:1", "acks": "2"}])
def test_a_refused_configuration_starts_nothing(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Producer(options)


# --- faults ---------------------------------------------------------------------------------------------------------


def test_a_broker_that_comes_back_gets_everything_once_and_in_order(tmp_path: Path, topic: str) -> None:
    first_life = LocalBroker(tmp_path, port=free_ports(1)[0], default_partitions=2)
    gone = threading.Event()
    with first_life, producer_to(first_life.bootstrap_servers, buffer_memory=65536) as producer:

        def work() -> int:
            """Rows until the broker is gone, and many more then; their number."""
            count = 0
            while not gone.is_set() or not count:
                producer.send_batch(numbered(count, 500), topic=topic)
                count += 500
            producer.send_batch(numbered(count, 5000), topic=topic)
            return count + 5000

        sending = Runner(work)
        wait_until(lambda: parts_of(producer).take_report().records > 0, "the first rows are acknowledged")
        first_life.close()
        gone.set()
        wait_until(lambda: parts_of(producer).accumulator.pool.waiting > 0, "send waits for memory")
        with LocalBroker(tmp_path, port=first_life.port) as second_life:
            total = sending.result()
            producer.flush()
            rows = rows_in(second_life, topic)
    assert sorted(numbers(rows)) == list(range(total))
    for partition in range(2):
        inside = numbers([row for row in rows if row.partition == partition])
        assert inside == sorted(inside)


@pytest.mark.covers("SN14", "SN26")
def test_lost_answers_make_no_duplicates(topic: str) -> None:
    with FaultProxy() as proxy, LocalBroker(advertised=(proxy.host, proxy.port), default_partitions=2) as broker:
        proxy.target = (proxy.host, broker.port)
        with producer_to(proxy.address) as producer:
            for first in range(0, 4000, 100):
                if first % 500 == 0:
                    proxy.lose_response(PRODUCE_API)
                producer.send_batch(numbered(first, 100), topic=topic)
            producer.flush()
            assert parts_of(producer).take_report().retries > 0
        rows = read_topic(proxy.address, topic, timeout=20)
    assert sorted(numbers(rows)) == list(range(4000))
    for partition in range(2):
        inside = numbers([row for row in rows if row.partition == partition])
        assert inside == sorted(inside)


@pytest.mark.covers("SN34")
def test_a_request_without_a_response_is_sent_again_on_a_new_connection(topic: str) -> None:
    with FaultProxy() as proxy, LocalBroker(advertised=(proxy.host, proxy.port)) as broker:
        proxy.target = (proxy.host, broker.port)
        with producer_to(proxy.address, request_timeout_ms=300) as producer:
            producer.send(topic, "row 0").result(20)
            connections = proxy.requests[API_VERSIONS_API]
            proxy.swallow(Direction.TO_CLIENT)
            future = producer.send(topic, "row 1")
            proxy.wait_for_requests(API_VERSIONS_API, connections + 1)
            proxy.heal()
            assert future.result(20).partition == 0
            assert parts_of(producer).take_report().retries > 0
        assert numbers(read_topic(proxy.address, topic, timeout=20)) == [0, 1]
