"""The warning of topics that one broker can lose: once in a process, and none where there is one broker."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest

from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import durability_warning
from spark_producer.exactly_once.cluster.control_topic import COORDINATORS_TOPIC
from spark_producer.protocol import DESCRIBE_CONFIGS, messages
from tests.conftest import Broker
from tests.fakes.scripted_client import LOST, ScriptedClient, brokers_of
from tests.support.filled_tasks import batch, inline, settings


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    monkeypatch.setattr(durability_warning, "_checked_topics", set())
    with caplog.at_level(logging.INFO):
        yield


class Replicated(ScriptedClient):
    """Brokers of which `live` answer; `topics` have numbers of replicas and of minimum in-sync replicas."""

    def __init__(self, live: int, topics: Mapping[str, tuple[int, int]]) -> None:
        super().__init__()
        self.live = live
        self.topics = topics
        self.scripts[DESCRIBE_CONFIGS.name] = self._configs

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = None) -> messages.MetadataResponse:
        reported = tuple(messages.MetadataResponseBroker(each, "host", 9092) for each in range(1, self.live + 1))
        rows = []
        for topic in topics:
            nodes = tuple(range(1, self.topics.get(topic, (0, 0))[0] + 1))
            partition = messages.MetadataResponsePartition(0, 0, 1, replica_nodes=nodes)
            rows.append(messages.MetadataResponseTopic(name=topic, partitions=(partition,) if nodes else ()))
        return messages.MetadataResponse(brokers=reported, topics=tuple(rows))

    def _configs(self, body: messages.DescribeConfigsRequest) -> messages.DescribeConfigsResponse:
        rows = []
        for resource in body.resources:
            name = resource.resource_name
            entry = messages.DescribeConfigsResourceResult("min.insync.replicas", str(self.topics.get(name, (0, 1))[1]))
            rows.append(messages.DescribeConfigsResult(resource_name=name, configs=(entry,)))
        return messages.DescribeConfigsResponse(0, tuple(rows))


def reported(caplog: pytest.LogCaptureFixture, client: ScriptedClient, *topics: str) -> list[tuple[str, str]]:
    """The levels and texts of what is said of the topics now."""
    caplog.clear()
    durability_warning.warn_once(brokers_of(client), topics)
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_one_warning_names_all_topics_that_one_broker_can_lose(caplog: pytest.LogCaptureFixture) -> None:
    client = Replicated(3, {"rows": (1, 1), "commits": (3, 2), "states": (3, 1), "pairs": (2, 2)})
    [(level, text)] = reported(caplog, client, "rows", "commits", "states", "pairs", "unseen")
    assert level == "WARNING"
    assert "topic rows has one replica, topic states has min.insync.replicas=1. Use three replicas" in text
    assert reported(caplog, client, "rows", "states") == []
    assert len(client.bodies(DESCRIBE_CONFIGS)) == 1


def test_a_cluster_of_one_broker_is_no_reason_for_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    [(level, text)] = reported(caplog, Replicated(1, {"rows": (1, 1), "commits": (1, 1)}), "rows", "commits")
    assert (level, "the cluster has one broker" in text) == ("INFO", True)


def test_brokers_that_are_down_are_brokers_too(caplog: pytest.LogCaptureFixture) -> None:
    [(level, _)] = reported(caplog, Replicated(1, {"rows": (1, 1), "states": (3, 2)}), "rows", "states")
    assert level == "WARNING"


def test_no_warning_about_topics_that_are_safe_or_unknown(caplog: pytest.LogCaptureFixture) -> None:
    client = Replicated(3, {"rows": (3, 2)})
    assert reported(caplog, client, "rows", "unseen") == []
    client.answers(DESCRIBE_CONFIGS, LOST)
    assert reported(caplog, client, "another") == []


def test_a_commit_looks_only_at_topics_of_which_the_begin_did_not_know(
    embedded_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are two processes in Spark, so the second does not know what the first has logged."""
    reported: list[set[str]] = []

    def note(_: object, topics: Collection[str]) -> None:
        reported.append(set(topics))

    monkeypatch.setattr(durability_warning, "warn_once", note)
    other = f"{topic}-other"
    for each in (topic, other):
        embedded_broker.create_topic(each, 1)
    sink = driver.SinkSettings(topic[-40:], settings(embedded_broker.bootstrap_servers), topics=(topic,))
    handle = driver.begin(sink)
    driver.commit(sink, [inline(handle, 0, batch(topic, 0, "a"), batch(other, 0, "b"))], 0)
    driver.close_all()
    assert reported == [{driver.CONTROL_TOPIC, COORDINATORS_TOPIC, topic}, {other}]
