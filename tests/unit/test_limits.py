"""What happens at each bound of docs/limits.md: it is tried, and the page has its sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from spark_producer import Producer, read_table
from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.common.cluster import Span, TransactionVersion
from spark_producer.config.exactly_once_rules import check_exactly_once
from spark_producer.config.parsing import parse_options
from spark_producer.datasource.write.dead_letters.bounds import Bounds
from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.cluster import record_json
from spark_producer.exactly_once.names import task_id
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status, TaskTransaction
from spark_producer.kernel import MAX_HEADERS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
TOPIC_LIMIT = 10_000
"""`max.message.bytes` of the topic `small`."""


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    settings = BrokerSettings(auto_create_topics=False, max_partitions=10)
    with LocalBroker(settings=settings) as found:
        found.create_topic("small", 1, {"max.message.bytes": str(TOPIC_LIMIT)})
        yield found


def send(broker: LocalBroker, size: int, headers: int = 0, topic: str = "small", **options: object) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 10_000, **options}
    with Producer(config) as producer:
        producer.send(topic, b"x" * size, headers=[("h", b"")] * headers).result(30)


def long_control_record(_: LocalBroker) -> None:
    span = (Span("t" * 249, 0, 0, 0, 1),)
    tasks = (
        TaskTransaction(task_id("sink", "0" * 32, each), each, 0, TransactionVersion.IMPLICIT, span)
        for each in range(210_000)
    )
    record_json.encode(ControlRecord("sink", None, Status.COMMITTING, 0, -1, "0" * 32, tuple(tasks)))


def many_parts(_: LocalBroker) -> None:
    task = TaskTransaction(
        task_id("sink", "0" * 32, 0), 0, 0, TransactionVersion.IMPLICIT, (Span("t", 0, 0, 0, 1),) * 1_300_000
    )
    record_json.encode(ControlRecord("sink", None, Status.COMMITTING, 0, -1, "0" * 32, (task,)), 4096)


def long_id(_: LocalBroker) -> None:
    config, sink = parse_options({"kafka.bootstrap.servers": "b:1", "topic": "t", "exactlyOnceId": "i" * 101})
    check_exactly_once(config, sink, streaming=True)


def long_transaction(broker: LocalBroker) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "i", "transaction.timeout.ms": 900_001}
    with Producer(config) as producer:
        producer.init_transactions()


def bad_rows(_: LocalBroker) -> None:
    bounds = Bounds(1000, 0.1)
    bounds.add("row", 1001, ["row 0 of the task has a null topic"])
    bounds.check(100_000)


def large_table(broker: LocalBroker) -> None:
    send(broker, 5000)
    read_table("small", {"bootstrap.servers": broker.bootstrap_servers}, max_bytes=1000)


BOUNDS: Mapping[str, Callable[[LocalBroker], object]] = {
    "a record": lambda broker: send(broker, 4_194_304),
    "a record of a topic": lambda broker: send(broker, TOPIC_LIMIT),
    "headers": lambda broker: send(broker, 1, MAX_HEADERS + 1),
    "a topic's name": lambda broker: send(broker, 1, topic="t" * 250),
    "a control record": long_control_record,
    "the parts of a control record": many_parts,
    "an exactlyOnceId": long_id,
    "a transaction": long_transaction,
    "dead letters": bad_rows,
    "a table": large_table,
    "partitions of the embedded broker": lambda broker: broker.create_topic("many", 10),
}


SLOW = (long_control_record, many_parts)
NAMES = [pytest.param(name, marks=pytest.mark.slow) if way in SLOW else name for name, way in BOUNDS.items()]


@pytest.mark.parametrize("name", NAMES)
def test_what_happens_at_a_bound_is_on_the_page(broker: LocalBroker, name: str) -> None:
    with pytest.raises(PyProducerError) as stopped:
        BOUNDS[name](broker)
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {name} |"))
    sentence = re.search(r"`(\w+): (.+?)`", row)
    assert sentence is not None, f"{type(stopped.value).__name__}: {stopped.value}"
    assert sentence[1] == type(stopped.value).__name__
    parts = [re.escape(part) for part in sentence[2].split("…")]
    assert re.search(".*".join(parts), str(stopped.value)), f"{type(stopped.value).__name__}: {stopped.value}"
