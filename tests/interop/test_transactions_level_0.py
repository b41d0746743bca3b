"""The newest Kafka whose cluster has not agreed on transaction.version 2, although its brokers offer the requests of it.

A client that used them there would block its transactional id for good. The level counts, not what ApiVersions offers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_producer import Producer
from spark_producer.common.cluster import TransactionVersion
from spark_producer.producer import parts_of
from tests.interop.conversations.answers import read, title
from tests.interop.conversations.looking import ApiVersions
from tests.interop.conversations.record import Places
from tests.interop.conversations.scene import EXPLICIT, play
from tests.interop.conversations.scenes import SCENES
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.read_back import read_topic

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("level 0")]


@pytest.fixture(scope="module")
def level_0() -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(KAFKA_4)
    cluster.format_arguments = ("--feature", "transaction.version=0")
    with cluster:
        yield cluster


def test_it_answers_in_the_explicit_version_as_with_level_2(level_0: KafkaCluster) -> None:
    pages = read(KAFKA_4)
    scenes = [scene for scene in SCENES if EXPLICIT in scene.txn_versions and not scene.slow]
    places = Places(level_0, len(scenes))
    for scene in scenes:
        name = title(scene, EXPLICIT)
        lines = [line._replace(answer="none") if line.request == ApiVersions.__name__ else line for line in pages[name]]
        assert play(scene.steps(EXPLICIT), places.take()) == lines


def test_our_producer_speaks_in_the_explicit_version_to_it(level_0: KafkaCluster, topic: str) -> None:
    level_0.create_topic(topic, 1)
    with Producer({"bootstrap.servers": level_0.bootstrap_servers, "transactional.id": topic}) as producer:
        transactions = parts_of(producer).transactions
        assert transactions is not None
        producer.init_transactions()
        for number in range(3):
            with producer.transaction():
                producer.send(topic, f"{number}".encode())
        transactions.begin_deferred()
        producer.send(topic, b"prepared, and aborted")
        assert transactions.prepare().transaction_version is TransactionVersion.EXPLICIT
        assert transactions.try_abort()
    rows = read_topic(level_0.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    assert [row.value for row in rows] == [b"0", b"1", b"2"]
