"""Random histories of a stream that may lose records: topics come, go and come back, drivers are killed, batches run again."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from spark_producer.admin.partition_offsets import FoundTopics
from spark_producer.broker import LocalBroker
from spark_producer.config import SourceOptions
from spark_producer.consumer import fetcher
from spark_producer.consumer.read_ranges import CONNECTIONS, read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.datasource.read.columns import default_columns
from spark_producer.datasource.read.driver import stream_offsets
from spark_producer.datasource.read.driver.assignment import assigned
from spark_producer.datasource.read.stream_readers import LimitedStreamReader
from spark_producer.producer import Producer
from tests.support.sampling import Sample
from tests.unit.datasource.read.topics import delete, settings

pytestmark = pytest.mark.usefixtures("free_pauses")

SCHEMA = default_columns(SourceOptions(subscribe="t"))
TOPICS = ("ta", "tb")
STEPS = 40


@pytest.fixture(autouse=True)
def _gone_soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fetcher, "GONE_AFTER_S", 0.1)
    monkeypatch.setattr(stream_offsets, "LOOKUP_SECONDS", 0.0)
    yield
    CONNECTIONS.clear()


class History:
    """A cluster, a stream over it, and what the stream has read."""

    def __init__(self, broker: LocalBroker, seed: int) -> None:
        self.random = Random(seed)
        self.broker = broker
        limit = {"maxOffsetsPerTrigger": "3"} if seed % 2 else {}
        options = {"subscribePattern": "^t", "failOnDataLoss": "false", "startingOffsets": "earliest"} | limit
        self.settings = settings(broker, **options)
        self.reader = self.new_reader()
        self.at = self.logged(self.reader.initialOffset())
        self.hidden = set[str]()
        self.written: dict[str, list[bytes]] = {}
        """The records of the topics that exist."""
        self.read: list[bytes] = []
        self.names = itertools.count()
        self.is_calm = False
        """Whether no driver is killed any more."""

    def new_reader(self) -> LimitedStreamReader:
        return LimitedStreamReader(self.settings, SCHEMA)

    def logged(self, offsets: Any) -> Any:
        return json.loads(json.dumps(offsets))

    def assigned(self, *given: Any, **named: Any) -> FoundTopics:
        """Return the response of brokers that do not know the hidden topics."""
        found = assigned(*given, **named)
        leaders = {each: node for each, node in found.leaders.items() if each.topic not in self.hidden}
        return FoundTopics(leaders, {name: one for name, one in found.topic_ids.items() if name not in self.hidden})

    # Steps

    def append(self) -> None:
        topic = self.random.choice(TOPICS)
        if topic not in self.written:
            self.broker.create_topic(topic, 2)
            self.written[topic] = []
        with Producer({"bootstrap.servers": self.broker.bootstrap_servers}) as producer:
            for _ in range(self.random.randint(1, 6)):
                value = b"%d" % next(self.names)
                producer.send(topic, value, partition=self.random.randint(0, 1))
                self.written[topic].append(value)

    def delete(self) -> None:
        if self.written:
            topic = self.random.choice(sorted(self.written))
            del self.written[topic]
            delete(self.broker, topic)

    def hide(self) -> None:
        self.hidden = {self.random.choice(TOPICS)}

    def show(self) -> None:
        self.hidden = set()

    def restart(self) -> None:
        self.reader.stop()
        self.reader = self.new_reader()

    def trigger(self) -> None:
        end = self.logged(self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit()))
        if end == self.at:
            return
        self.reader.partitions(self.at, end)
        if not self.is_calm and not self.random.randrange(
            3
        ):  # the driver is killed in the batch, which is in the offset log
            for act in self.random.choices([self.append, self.delete], k=self.random.randint(0, 2)):
                act()
            self.restart()
        self.read += self.rows(self.reader.partitions(self.at, end))
        self.at = end

    def rows(self, tasks: Any) -> list[bytes]:
        fetching = FetchSettings.from_config(
            self.settings.config, fail_on_data_loss=self.settings.source.fail_on_data_loss
        )
        found: list[Any] = []
        for task in tasks:
            for _, batch in read_ranges(fetching, task.ranges, topic_ids=task.topic_ids):
                found += batch.column("value").to_pylist()
        return found


@pytest.mark.covers("RD8", "RD10")
def test_each_record_of_a_topic_that_stays_is_read_once(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in sample(range(20)):
        with LocalBroker(auto_create_topics=False) as broker, monkeypatch.context() as patched:
            history = History(broker, seed)
            patched.setattr(stream_offsets, "assigned", history.assigned)
            acts = [history.trigger, history.append, history.delete, history.hide, history.show, history.restart]
            for _ in range(STEPS):
                history.random.choices(acts, weights=[6, 4, 1, 1, 1, 1])[0]()
            history.show()
            history.is_calm = True
            for _ in range(100):
                history.trigger()
            history.reader.stop()
        assert [each for each, count in Counter(history.read).items() if count > 1] == [], seed
        assert {value for values in history.written.values() for value in values} <= set(history.read), seed
