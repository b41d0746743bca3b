"""Tasks of an exactly-once write by hand: transactions that are filled and left open, and batches for the driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_producer.admin import BlockingClient
from spark_producer.common.cluster import ProducerIdAndEpoch, Span, TopicPartition, TransactionVersion
from spark_producer.common.error_codes import Code
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.inline_produce import InlineProduce
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.names import task_id
from spark_producer.exactly_once.protocol import commit as committing
from spark_producer.exactly_once.protocol import state_machine
from spark_producer.exactly_once.protocol.commands import Command, Result
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.exactly_once.protocol.task_messages import (
    EncodedBatch,
    InlineRows,
    PreparedTask,
    TaskOutcome,
    WriteHandle,
)
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers
from spark_producer.protocol import ADD_PARTITIONS_TO_TXN, INIT_PRODUCER_ID
from spark_producer.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from spark_producer.record.small_batch import encode_few
from tests.conftest import Broker
from tests.support.read_back import read_topic

SECONDS = 30.0
QUERY = "query-1"


def settings(servers: str) -> ConnectionSettings:
    """Settings of a connection in plaintext."""
    return ConnectionSettings(tuple(parse_bootstrap_servers(servers)), client_id="driver-test")


def batch(topic: str, partition: int, *values: str) -> EncodedBatch:
    """An encoded batch, without a key or producer."""
    return EncodedBatch(topic, partition, len(values), bytes(encode_few([(b"k", each.encode()) for each in values], 1)))


def inline(handle: WriteHandle, number: int, *batches: EncodedBatch) -> InlineRows:
    """The message of a task that leaves its rows to the driver."""
    return InlineRows(handle, QUERY, number, batches, sum(each.records for each in batches))


class Tasks:
    """Tasks of one sink, all in one process with one client."""

    def __init__(self, servers: str | ConnectionSettings, sink: str, worker: str = "0" * 32) -> None:
        self.client = BlockingClient(settings(servers) if isinstance(servers, str) else servers, timeout=SECONDS)
        self.brokers = TransactionAdmin(self.client, sink)
        self.sink = sink
        self.worker = worker

    def close(self) -> None:
        """Close the connections; transactions stay open."""
        self.client.close()

    def fill(
        self,
        slot: int,
        transaction_version: TransactionVersion,
        rows: Mapping[tuple[str, int], Sequence[str]],
        timeout_ms: int = 60_000,
        unknown: Collection[tuple[str, int]] = (),
    ) -> TaskTransaction:
        """Write rows by topic and partition in a transaction that stays open.

        The coordinator does not know the partitions in `unknown`, so they never get a marker, as if they had lost it. That needs
        brokers that do not verify partitions, and `TransactionVersion.EXPLICIT`.
        """
        own, deadline = task_id(self.sink, self.worker, slot), self.client.deadline()
        started = self.brokers.request_coordinators(
            INIT_PRODUCER_ID, {own: InitProducerIdRequest(own, timeout_ms)}, deadline, resend=True
        )[own]
        assert started.error_code == 0, started
        fencing = ProducerIdAndEpoch(started.producer_id, started.producer_epoch)
        if transaction_version is TransactionVersion.EXPLICIT:
            topics = tuple(AddPartitionsToTxnTopic(topic, (number,)) for topic, number in rows.keys() - set(unknown))
            body = AddPartitionsToTxnRequest(own, *fencing, topics)
            self.brokers.request_coordinators(ADD_PARTITIONS_TO_TXN, {own: body}, deadline, resend=True)
        batches = {TopicPartition(*tp): [batch(*tp, *values)] for tp, values in rows.items()}
        production = InlineProduce(self.brokers, own, fencing, transaction_version, batches, {})
        assert production.run(deadline) is None
        spans = tuple(
            Span(each.topic, each.partition, each.first_offset, each.last_offset, len(rows[each.topic_partition]))
            for each in production.spans()
        )
        return TaskTransaction(own, *fencing, transaction_version, spans)


def prepared(handle: WriteHandle, number: int, transaction: TaskTransaction) -> PreparedTask:
    """The message of a task that leaves its transaction to the driver."""
    return PreparedTask(handle, QUERY, number, transaction, 0, sum(span.records for span in transaction.spans))


def committed(proxied: Broker, topic: str) -> list[str]:
    """The rows that librdkafka shows to a reader of committed records."""
    found = read_topic(proxied.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    return [str(row.value, "utf-8") for row in found if row.value is not None]


class Died(Exception):
    """The driver dies here."""


def die_before(sink: SinkSettings, batch_number: int, messages: Sequence[TaskOutcome], kind: type) -> None:
    """Commit as a driver that dies when it is to do a `kind` of ask."""
    client = BlockingClient(sink.connection, timeout=SECONDS)
    cluster = CommandExecutor(client, sink.name, sink.control_topic)
    cluster.prepare()

    def perform(command: Command) -> Result:
        if isinstance(command, kind):
            raise Died
        return cluster.perform(command)

    try:
        state_machine.run(committing.commit(messages, batch_number), perform)
    except Died:
        return
    finally:
        client.close()
    raise AssertionError(f"the commit has not asked for {kind.__name__}")


def take_over(tasks: Tasks, transaction: TaskTransaction) -> None:
    """Abort the transaction under a newer epoch, as a timeout does."""
    own = transaction.transactional_id
    body = InitProducerIdRequest(own, 60_000)
    answer = tasks.brokers.request_coordinators(INIT_PRODUCER_ID, {own: body}, tasks.client.deadline(), resend=True)[
        own
    ]
    assert answer.error_code == Code.NONE
