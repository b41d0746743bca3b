"""Old and new brokers: rows are written and read at least once and exactly once, and clusters may have both."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing

import pyarrow as pa
import pytest

from spark_producer import Producer, read_table
from spark_producer.admin import BlockingClient
from spark_producer.common.error_codes import Code
from spark_producer.errors import PyProducerError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.protocol import API_VERSIONS, PRODUCE, encode_request, messages
from tests.support.filled_tasks import Tasks, batch, committed, inline, prepared, settings
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, KAFKA_28, KAFKA_33, KAFKA_39, KAFKA_44
from tests.support.zookeeper_kafka import ZooKeeperCluster

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]

SECONDS = 30
VERSIONS = (KAFKA_28, KAFKA_33, KAFKA_39, KAFKA_4, KAFKA_44)


def cluster_of(version: str, **more: str) -> KafkaCluster:
    """One node of a version; before KRaft with a ZooKeeper."""
    return ZooKeeperCluster(version) if version == KAFKA_28 else KafkaCluster(version, settings=more)


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with cluster_of(request.param) as made:
        yield made


def versions_of(cluster: KafkaCluster, node: int = -1) -> Mapping[int, int]:
    """The newest version of each API that a node offers."""
    with BlockingClient(settings(cluster.bootstrap_servers)) as client:
        body = messages.ApiVersionsRequest("test", "1")
        answer = client.request(API_VERSIONS, body, node=node)
        return {row.api_key: row.max_version for row in answer.api_keys}


NEWEST_PRODUCE = {KAFKA_28: 9, KAFKA_33: 9, KAFKA_39: 11, KAFKA_4: 13, KAFKA_44: 13}


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    name = uuid.uuid4().hex
    cluster.create_topic(name, 3)
    return name


def options(cluster: KafkaCluster, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap_servers} | {
        name.replace("_", "."): each for name, each in more.items()
    }


def read(cluster: KafkaCluster, topic: str) -> list[str]:
    found = read_table(topic, options(cluster, isolation_level="read_committed"))
    return sorted(bytes(value.as_py()).decode() for value in found["value"])


def test_rows_are_written_and_read_at_least_once(cluster: KafkaCluster, topic: str) -> None:
    assert versions_of(cluster)[PRODUCE.key] == NEWEST_PRODUCE[cluster.version]
    values = [f"row {number}" for number in range(1000)]
    with Producer(options(cluster)) as producer:
        producer.send_batch(pa.record_batch({"key": values, "value": values}), topic=topic)
    assert read(cluster, topic) == sorted(values)
    assert sorted(committed(cluster, topic)) == sorted(values), "librdkafka reads the same"


def test_transactions_are_committed_and_aborted(cluster: KafkaCluster, topic: str) -> None:
    with Producer(options(cluster, transactional_id=topic)) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send(topic, f"row {number}".encode())
            if number == 1:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction(SECONDS)
    assert read(cluster, topic) == ["row 0", "row 2"]


def test_batches_are_written_exactly_once_from_kafka_3_0_on(cluster: KafkaCluster, topic: str) -> None:
    """By the driver, and in the transaction of a task. Before 3.0 brokers cannot list transactions, and the write is refused."""
    sink = SinkSettings(topic, settings(cluster.bootstrap_servers), f"{topic}-commits")
    if cluster.version == KAFKA_28:
        with pytest.raises(PyProducerError, match=r"3\.0"):
            driver.begin(sink)
        return
    tasks = Tasks(cluster.bootstrap_servers, topic)
    handle = driver.begin(sink)
    filled = tasks.fill(0, handle.transaction_version, {(topic, 1): ["of a task"]})
    driver.commit(sink, [inline(handle, 0, batch(topic, 0, "of the driver")), prepared(handle, 0, filled)], 0)
    driver.close_all()
    tasks.close()
    assert read(cluster, topic) == ["of a task", "of the driver"]


def test_a_broker_that_compares_its_identity_takes_what_is_meant_for_it() -> None:
    """Kafka judges the encoding of ApiVersions 5, which kio does not have (KIP-1242)."""
    with KafkaCluster(KAFKA_44) as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        for cluster_id, node, code in (
            (None, -1, Code.NONE),
            (cluster.cluster_id, 1, Code.NONE),
            (cluster.cluster_id, 2, Code.REBOOTSTRAP_REQUIRED),
            ("another", 1, Code.REBOOTSTRAP_REQUIRED),
            (cluster.cluster_id, -1, Code.INVALID_REQUEST),
            (None, 1, Code.INVALID_REQUEST),
        ):
            body = messages.ApiVersionsRequest("test", "1", cluster_id, node)
            with closing(socket.create_connection((host, int(port)), SECONDS)) as connection:
                connection.sendall(b"".join(encode_request(API_VERSIONS, 5, 1, "test", body)))
                answer = connection.recv(10, socket.MSG_WAITALL)
            assert int.from_bytes(answer[8:10], "big", signed=True) == code


def test_a_cluster_may_have_old_and_new_brokers() -> None:
    """During a rolling upgrade each connection has the versions of its broker: the old ones get names, the new one topic ids."""
    topic, newest = uuid.uuid4().hex, 3
    versions = {1: KAFKA_39, 2: KAFKA_39, newest: KAFKA_44}
    with KafkaCluster(KAFKA_39, nodes=3, versions=versions) as cluster:
        cluster.create_topic(topic, 6, replication_factor=3)
        with BlockingClient(settings(cluster.bootstrap_servers)) as client:
            client.metadata([topic], client.deadline())
            offered = {
                node: {
                    row.api_key: row.max_version
                    for row in client.request(
                        API_VERSIONS, messages.ApiVersionsRequest("test", "1"), node=node
                    ).api_keys
                }[PRODUCE.key]
                for node in versions
            }
        assert offered == {1: 11, 2: 11, newest: 13}
        assert {found.leader for found in cluster.partitions(topic).values()} == set(versions)
        written = []
        with Producer(options(cluster)) as producer:
            for number in range(30):
                values = [f"{number}-{row}" for row in range(20)]
                producer.send_batch(pa.record_batch({"key": values, "value": values}), topic=topic)
                producer.flush()
                written += values
                if number == 10:
                    cluster.stop(newest)
                if number == 20:
                    cluster.start(newest)
        assert sorted(committed(cluster, topic)) == sorted(written)
