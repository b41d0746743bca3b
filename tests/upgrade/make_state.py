"""Makes one data directory of the embedded broker with sinks in every status. It runs with the code of an earlier version:

    PYTHONPATH=TREE python tests/upgrade/make_state.py DIRECTORY segments|tiered 0|2

`TREE` has `spark_producer` and `tests` of a commit (`versions.tree_of`), so brokers, drivers and tasks are of that version.
Beside the directory it writes DIRECTORY.json: what readers must see. Names that differ between the versions are looked up here.

Owns: the scenes. Must not know: the version that reads the directory.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from spark_producer import Producer
from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.topic_store import TopicStore
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from tests.support import filled_tasks
from tests.support.filled_tasks import Tasks, batch, die_before, inline, prepared, take_over


def named(*names: str) -> Any:
    """Return the first of these, each `module:attribute`, that the version has."""
    for name in names:
        module, _, attribute = name.partition(":")
        with suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), attribute)
    raise ImportError(f"none of {names}")


EndTasks = named("spark_producer.exactly_once.protocol.commands:EndTasks", "spark_producer.exactly_once.asks:EndTasks")
SINK = named("spark_producer.exactly_once.driver:SinkSettings", "spark_producer.exactly_once.driver:Sink")
Partition = named("spark_producer.broker.log.partition:Partition", "spark_producer.broker.partition:Partition")
LONG = 60_000 * 15
"""Timeout of the transactions that stay open, in ms: the maximum that brokers allow by default."""
LOST: set[str] = set()
"""Topics whose partition 1 gets no marker."""


def version_of(handle: Any) -> Any:
    """Return the transaction version of an execution."""
    return getattr(handle, "transaction_version", None) or handle.style


class Scenes:
    """Sinks of one broker, each in a topic of its own name with two partitions."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.servers = broker.bootstrap_servers
        self.sinks: dict[str, dict[str, object]] = {}

    def new(self, name: str) -> tuple[Any, Tasks]:
        """Return a sink with its topic, and its tasks."""
        self.broker.create_topic(name, 2)
        return SINK(name, filled_tasks.settings(self.servers)), Tasks(self.servers, name)

    def filled(self, name: str, tasks: Tasks, handle: Any, slots: int = 2, first: str = "") -> list[Any]:
        """Return transactions that are filled and open, with a row in each partition."""
        return [
            tasks.fill(
                slot,
                version_of(handle),
                {(name, number): [f"{first}{slot}-{number}"] for number in range(2)},
                timeout_ms=LONG,
            )
            for slot in range(slots)
        ]

    def keep(self, name: str, status: str | None, committed: list[str], *, batch: int = -1) -> None:
        """Note what the sink is: its status, the rows that readers of committed records see in the end, its last batch."""
        self.sinks[name] = {"status": status, "committed": sorted(committed), "batch": batch}

    def no_record(self) -> None:
        """The driver died before its first commit: tasks have open transactions, and there is no control record."""
        sink, tasks = self.new("norecord")
        self.filled("norecord", tasks, driver.begin(sink))
        self.keep("norecord", None, [])

    def intent(self) -> None:
        """A batch is done; a second driver has aborted orphans of a first, and its own tasks have open transactions."""
        sink, tasks = self.new("intent")
        driver.commit(sink, [inline(driver.begin(sink), 0, batch("intent", 0, "a"))], 0)
        self.filled("intent", tasks, driver.begin(sink), first="x")
        self.filled("intent", tasks, driver.begin(sink), first="y")
        self.keep("intent", "INTENT", ["a"], batch=0)

    def committing(self) -> None:
        """The driver died right after its decision."""
        sink, tasks = self.new("committing")
        handle = driver.begin(sink)
        ready = [prepared(handle, 0, each) for each in self.filled("committing", tasks, handle)]
        die_before(sink, 0, ready, EndTasks)
        self.keep("committing", "COMMITTING", ["0-0", "0-1", "1-0", "1-1"], batch=0)

    def long(self) -> None:
        """The same with a record that is too long for one part."""
        name = "long"
        self.broker.create_topic("control", 1, {"max.message.bytes": "8192"})
        self.broker.create_topic(name, 2)
        sink, tasks = SINK(name, filled_tasks.settings(self.servers), "control"), Tasks(self.servers, name)
        handle = driver.begin(sink)
        ready = [prepared(handle, 0, each) for each in self.filled(name, tasks, handle, 80)]
        die_before(sink, 0, ready, EndTasks)
        rows = [f"{slot}-{number}" for slot in range(80) for number in range(2)]
        self.keep(name, "COMMITTING", rows, batch=0)

    def done(self) -> None:
        """A batch by the driver, and one with transactions of tasks."""
        sink, tasks = self.new("done")
        driver.commit(sink, [inline(driver.begin(sink), 0, batch("done", 0, "a", "b"))], 0)
        handle = driver.begin(sink)
        driver.commit(sink, [prepared(handle, 1, each) for each in self.filled("done", tasks, handle)], 1)
        self.keep("done", "DONE", ["a", "b", "0-0", "0-1", "1-0", "1-1"], batch=1)

    def void(self) -> None:
        """All transactions of a decided batch were aborted, as by their timeout."""
        sink, tasks = self.new("void")
        handle = driver.begin(sink)
        filled = self.filled("void", tasks, handle)
        die_before(sink, 0, [prepared(handle, 0, each) for each in filled], EndTasks)
        for each in filled:
            take_over(tasks, each)
        driver.begin(sink)
        self.keep("void", "VOID", [])

    def partial(self) -> None:
        """One of two transactions of a decided batch was aborted."""
        sink, tasks = self.new("partial")
        handle = driver.begin(sink)
        filled = self.filled("partial", tasks, handle)
        die_before(sink, 0, [prepared(handle, 0, each) for each in filled], EndTasks)
        take_over(tasks, filled[1])
        with suppress(ExactlyOnceError):
            driver.begin(sink)
        self.keep("partial", "PARTIAL", ["0-0", "0-1"])

    def hung(self) -> None:
        """Partition 1 has lost the markers of a decided batch."""
        sink, tasks = self.new("hung")
        handle = driver.begin(sink)
        filled = self.filled("hung", tasks, handle)
        LOST.add("hung")
        with suppress(ExactlyOnceError):
            driver.commit(sink, [prepared(handle, 0, each) for each in filled], 0)
        self.keep("hung", "HUNG", ["0-0", "0-1", "1-0", "1-1"], batch=0)

    def plain(self) -> None:
        """Rows of every shape and codec, an open transaction of a program, and offsets of a group."""
        self.broker.create_topic("plain", 3, {"retention.ms": "-1", "max.message.bytes": "2000000"})
        table = pa.table(
            {
                "key": [b"k1", None, b"k3", b"k4"],
                "value": [b"one", b"two", None, b"x" * 1000],
                "partition": pa.array([0, 1, 2, 0], pa.int32()),
                "timestamp": pa.array([1_700_000_000_000] * 4, pa.int64()),
                "headers": pa.array(
                    [[{"key": "h", "value": b"1"}], [], [{"key": "h", "value": None}], []],
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                ),
            }
        )
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with Producer({"bootstrap.servers": self.servers, "compression.type": codec}) as producer:
                producer.send_table(table, topic="plain")
        app = Producer({"bootstrap.servers": self.servers, "transactional.id": "app-1", "transaction.timeout.ms": LONG})
        app.init_transactions()
        app.begin_transaction()
        app.send("plain", b"open", partition=0)
        app.flush()
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "readers", "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("plain", 0, 3), TopicPartition("plain", 2, 1)], asynchronous=False)
        consumer.close()


def lose_markers() -> None:
    """Let partition 1 of the topics in `LOST` lose its markers, as brokers of Kafka 4.3 may when a partition has no leader."""
    find, write = TopicStore.partition, Partition.write_marker

    def find_and_note(self: Any, topic: str, index: int) -> Any:
        found: Any = find(self, topic, index)
        found.is_lossy = topic in LOST and index == 1
        return found

    def write_or_lose(self: Any, *arguments: Any, **named: Any) -> Any:
        return self.log.high_watermark - 1 if self.is_lossy else write(self, *arguments, **named)

    setattr(TopicStore, "partition", find_and_note)  # noqa: B010 - the type checker knows one version
    Partition.write_marker = write_or_lose


def main() -> None:
    tree = os.environ["PYTHONPATH"]
    assert str(driver.__file__).startswith(tree), f"{driver.__file__} is not the code in {tree}"
    directory, engine, version = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    running = directory.with_name(directory.name + ".running")
    lose_markers()
    settings = BrokerSettings(storage_engine=engine, transaction_version=version, auto_create_topics=False)
    began = time.time()
    with LocalBroker(running, settings=settings) as broker:
        scenes = Scenes(broker)
        for scene in (
            scenes.no_record, scenes.intent, scenes.committing, scenes.long, scenes.done, scenes.void, scenes.partial,
            scenes.hung, scenes.plain,
        ):  # fmt: skip
            scene()
        driver.close_all()
        if version:  # as `kill -9` leaves it
            shutil.copytree(running, directory)
    if not version:
        shutil.copytree(running, directory)
    shutil.rmtree(running)
    facts = {"made_ms": int(began * 1000), "engine": engine, "transaction_version": version, "sinks": scenes.sinks}
    directory.with_name(directory.name + ".json").write_text(json.dumps(facts, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the open transaction's producer is not closed, which would abort it


if __name__ == "__main__":
    main()
