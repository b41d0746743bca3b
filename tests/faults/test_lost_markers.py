"""Which Kafka loses the ends of transactions (docs/exactly_once.md names versions), and that `txn repair` writes them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.cli.entry import main
from spark_producer.common.error_codes import Code
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster.end_transactions import END_TXN_APIS
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.names import task_id
from spark_producer.exactly_once.protocol.commands import EndTasks
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.exactly_once.protocol.outcomes import FailureKind
from spark_producer.protocol.messages import EndTxnRequest
from tests.support.filled_tasks import SECONDS, Tasks, committed, die_before, prepared, settings
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, KAFKA_39
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.campaign]


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    yield
    driver.close_all()


def end_without_a_leader(kafka: KafkaCluster, tasks: Tasks, filled: TaskTransaction) -> None:
    """Kill the leader of the one partition of a transaction, have the coordinator commit it, and start the leader again.

    That is what a driver does whose last look at the leaders was a moment too early.
    """
    own = filled.transactional_id
    [span] = filled.spans
    leader = kafka.partitions(span.topic)[span.partition].leader
    kafka.kill(leader)
    wait_until(lambda: kafka.partitions(span.topic)[span.partition].leader < 0, "the partition has no leader")
    body = EndTxnRequest(own, filled.producer_id, filled.epoch, True)
    answer = tasks.brokers.request_coordinators(
        END_TXN_APIS[filled.transaction_version], {own: body}, tasks.client.deadline(), resend=True
    )[own]
    assert answer.error_code == Code.NONE
    kafka.start(leader)


@pytest.mark.parametrize(("version", "loses"), [(KAFKA_4, True), (KAFKA_39, False)])
def test_a_marker_for_a_partition_without_a_leader(
    version: str, loses: bool, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """KAFKA-20734. If this fails with a newer Kafka it may be mended there: change the versions that the page names."""
    name = f"lost-{uuid.uuid4().hex[:8]}"
    with KafkaCluster(version, 3) as kafka, closing(Tasks(kafka.bootstrap_servers, name)) as tasks:
        servers = kafka.bootstrap_servers
        kafka.create_topic(topic, 3)
        sink = SinkSettings(name, settings(servers), timeout=SECONDS)
        handle = driver.begin(sink)
        own = task_id(sink.name, tasks.worker, 0)
        coordinator = tasks.brokers.coordinators([own], tasks.client.deadline())[own]
        number = next(each for each, known in kafka.partitions(topic).items() if known.leader != coordinator)
        filled = tasks.fill(0, handle.transaction_version, {(topic, number): ["once"]})
        die_before(sink, 0, [prepared(handle, 0, filled)], EndTasks)
        end_without_a_leader(kafka, tasks, filled)
        with BlockingClient(settings(servers)) as client:
            if loses:
                with pytest.raises(ExactlyOnceError, match=f"{topic}-{number}") as hung:
                    driver.begin(sink)
                assert hung.value.kind == FailureKind.HUNG.name
                assert offsets(client, topic, isolation_level=1)[number] == 0
                assert main(["txn", "repair", sink.name, "--yes", "--bootstrap-servers", servers]) == 0, (
                    capsys.readouterr()
                )
            wait_until(lambda: offsets(client, topic, isolation_level=1)[number] == 2, "readers pass the marker")
        again = driver.begin(sink)
        assert again.last is not None
        assert again.last.last_done == 0
        assert committed(kafka, topic) == ["once"]
