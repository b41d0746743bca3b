"""What 0.1.0 wrote is read, continued and rolled back: control topics in every status, transactions, topics of both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main
from spark_producer.common.error_codes import Code  # noqa: F401
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.protocol.outcomes import WriteCommitted
from tests.support.filled_tasks import Tasks, batch, committed, inline, prepared, settings
from tests.support.read_back import read_topic
from tests.upgrade.stored import Stored, names, opened, unpack

GOES_ON = ("norecord", "intent", "committing", "long", "done", "void")


@pytest.fixture(params=names())
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    return unpack(request.param, tmp_path)


@pytest.fixture
def broker(stored: Stored) -> Iterator[LocalBroker]:
    with opened(stored) as found:
        yield found
    driver.close_all()


def sink_of(broker: LocalBroker, name: str) -> SinkSettings:
    sink = SinkSettings(name, settings(broker.bootstrap_servers))
    return sink._replace(control_topic="control") if name == "long" else sink


def write_next(broker: LocalBroker, sink: SinkSettings, number: int) -> None:
    """Write a batch with a row of the driver, and one with a transaction of a task."""
    handle = driver.begin(sink)
    row = inline(handle, number, batch(sink.name, 0, "next"))
    assert driver.commit(sink, [row], number) == WriteCommitted(number)
    handle = driver.begin(sink)
    tasks = Tasks(broker.bootstrap_servers, sink.name, worker="1" * 32)
    filled = tasks.fill(0, handle.transaction_version, {(sink.name, 1): ["task"]})
    assert driver.commit(sink, [prepared(handle, number + 1, filled)], number + 1) == WriteCommitted(number + 1)
    tasks.close()


def test_every_status_is_read_and_goes_on(broker: LocalBroker, stored: Stored) -> None:
    for name in GOES_ON:
        found = stored.sinks[name]
        sink = sink_of(broker, name)
        handle = driver.begin(sink)
        done = -1 if handle.last is None else handle.last.last_done
        assert done == found["batch"], name
        assert sorted(committed(broker, name)) == found["committed"], name
        write_next(broker, sink, found["batch"] + 1)
        assert sorted(committed(broker, name)) == sorted([*found["committed"], "next", "task"]), name


def txn(broker: LocalBroker, *arguments: str) -> int:
    return main(["txn", *arguments, "--bootstrap-servers", broker.bootstrap_servers])


def test_what_a_person_must_decide_is_still_so_and_is_decided(
    broker: LocalBroker, stored: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    assert txn(broker, "list") == 0
    shown = capsys.readouterr().out
    for name, found in stored.sinks.items():
        if name != "long" and found["status"] is not None:
            assert f"{name}  {found['status']}, " in shown
    for name, decide in (("partial", ("resolve", "partial", "--accept-partial")), ("hung", ("repair", "hung"))):
        with pytest.raises(ExactlyOnceError) as stopped:
            driver.begin(sink_of(broker, name))
        assert stopped.value.kind == name.upper()
        assert txn(broker, *decide, "--yes") == 0, capsys.readouterr()
        write_next(broker, sink_of(broker, name), 1)
        assert sorted(committed(broker, name)) == sorted([*stored.sinks[name]["committed"], "next", "task"])


def test_orphans_are_rolled_back_by_a_person_too(broker: LocalBroker, stored: Stored) -> None:
    for name in ("norecord", "intent"):
        assert txn(broker, "resolve", name, "--yes") == 0
        assert sorted(committed(broker, name)) == stored.sinks[name]["committed"]


def offsets_of(broker: LocalBroker) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
    found = consumer.committed([TopicPartition("plain", number) for number in range(3)], timeout=30)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def test_rows_transactions_groups_and_settings_are_there(broker: LocalBroker, stored: Stored) -> None:
    rows = read_topic(broker.bootstrap_servers, "plain", client="confluent", isolation="read_uncommitted")
    shapes = [
        (row.partition, row.key, row.value, row.headers, row.timestamp_ms) for row in rows if row.value != b"open"
    ]
    wanted: list[Any] = [
        (0, b"k1", b"one", [("h", b"1")], 1_700_000_000_000),
        (0, b"k4", b"x" * 1000, [], 1_700_000_000_000),
        (1, None, b"two", [], 1_700_000_000_000),
        (2, b"k3", None, [("h", None)], 1_700_000_000_000),
    ]
    assert sorted(map(repr, shapes)) == sorted(map(repr, wanted * 5))
    assert [row.value for row in rows].count(b"open") == 1
    assert offsets_of(broker) == {0: 3, 2: 1}
    assert broker.topics() == {"plain": 3, "control": 1, "__pyproducer_commits": 1} | dict.fromkeys(stored.sinks, 2)


def test_a_directory_is_closed_and_opened_again(stored: Stored) -> None:
    """The first start may rewrite the directory in the formats of today."""
    for _ in range(2):
        with opened(stored) as broker:
            rows = read_topic(broker.bootstrap_servers, "plain", client="confluent", isolation="read_uncommitted")
            assert len(rows) == 21
            assert offsets_of(broker) == {0: 3, 2: 1}
