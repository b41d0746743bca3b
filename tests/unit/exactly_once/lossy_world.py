"""A broker that loses markers, a sink with tasks that may die, and the person who mends what hangs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeAlias

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import end_transactions
from spark_producer.exactly_once.cluster.control_topic import PARTITION
from spark_producer.exactly_once.cluster.control_write import ControlWrite
from spark_producer.exactly_once.cluster.inline_produce import InlineProduce
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.exactly_once.protocol.task_messages import EncodedBatch
from spark_producer.protocol import INIT_PRODUCER_ID
from spark_producer.protocol.messages import InitProducerIdRequest
from tests.support.filled_tasks import Died, Tasks, committed, inline, prepared, settings

TIMEOUT_S, TIMEOUT_MS = 20.0, 60_000
SINK, OTHER_TOPIC = "orders", "other_commits"
ZERO, ONE = TopicPartition("rows", 0), TopicPartition("rows", 1)
CONTROL = TopicPartition(driver.CONTROL_TOPIC, PARTITION)


Lossy: TypeAlias = set[tuple[str, TopicPartition]]


class World:
    """A broker and a sink with its tasks. Of the ids in `lossy` the partitions there get no markers."""

    def __init__(self, broker: LocalBroker, tasks: Tasks, lossy: Lossy) -> None:
        self.broker, self.tasks, self.lossy = broker, tasks, lossy
        self.sink = SinkSettings(SINK, settings(broker.bootstrap_servers), timeout=TIMEOUT_S)
        self.handle = driver.begin(self.sink)

    def fill(self, slot: int, *rows: tuple[int, str]) -> TaskTransaction:
        """A task writes a row into each partition."""
        return self.tasks.fill(
            slot, self.handle.transaction_version, {("rows", partition): [row] for partition, row in rows}
        )

    def lose(self, transaction: TaskTransaction | str, tp: TopicPartition = ZERO) -> None:
        """Let a partition not get the markers of an id, until `lossy` is cleared."""
        self.lossy.add((transaction if isinstance(transaction, str) else transaction.transactional_id, tp))

    def take_over(self, transaction: TaskTransaction) -> None:
        """Another producer takes its id, and writes nothing yet."""
        name = transaction.transactional_id
        body, deadline = InitProducerIdRequest(name, TIMEOUT_MS), self.tasks.client.deadline()
        self.tasks.brokers.request_coordinators(INIT_PRODUCER_ID, {name: body}, deadline, resend=True)

    def commit(self, number: int, *tasks: TaskTransaction | EncodedBatch) -> None:
        """The driver commits a batch of transactions, and of rows that are left to it."""
        reported = [
            prepared(self.handle, number, one) if isinstance(one, TaskTransaction) else inline(self.handle, number, one)
            for one in tasks
        ]
        driver.commit(self.sink, reported, number)

    def commit_in_vain(self, *tasks: TaskTransaction | EncodedBatch) -> None:
        """The driver finds that a marker of batch 0 is lost, and that is over then."""
        with pytest.raises(ExactlyOnceError, match="lost the markers"):
            self.commit(0, *tasks)
        self.lossy.clear()

    def mend(self, *records: str) -> None:
        """Repair the sink as a person does; for a decision that has lost its own marker it takes two rounds."""
        for _ in range(2):
            self.txn("repair", SINK, "--yes", *records)
            self.txn("resolve", SINK, "--yes")

    def die_before_the_commit(
        self, number: int, *tasks: TaskTransaction | EncodedBatch, without: TopicPartition | None = None
    ) -> None:
        """The driver dies when its rows and the record are in the log, before EndTxn; but nothing came to `without`."""
        init = InlineProduce.__init__

        def some(self: InlineProduce, *given: Any) -> None:
            init(self, *given)
            if without is not None:
                self._queues.pop(without, None)

        def dies(_: InlineProduce) -> None:
            raise Died

        with pytest.MonkeyPatch.context() as patch, suppress(Died):
            patch.setattr(InlineProduce, "__init__", some)
            patch.setattr(InlineProduce, "spans", dies)
            patch.setattr(ControlWrite, "_abort", lambda _: None)
            self.commit(number, *tasks)

    def die_after_the_commit_point(self, number: int, *tasks: TaskTransaction | EncodedBatch) -> None:
        """The driver dies when the decision is in the log, before it ends a task's transaction."""

        def dies(*_: object) -> None:
            raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(end_transactions, "end_tasks", dies)
            with pytest.raises(Died):
                self.commit(number, *tasks)

    def begin_in_vain(self) -> None:
        """The next driver finds that a marker is lost, and that is over then."""
        with pytest.raises(ExactlyOnceError, match="lost the markers"):
            driver.begin(self.sink)
        self.lossy.clear()

    def run_again(self, number: int, *rows: tuple[int, str] | EncodedBatch) -> None:
        """The query is started again, and writes the batch if it is not done: rows of tasks, and those left to the driver."""
        self.handle = driver.begin(self.sink)
        if self.handle.last is None or self.handle.last.last_done < number:
            reported = [
                each if isinstance(each, EncodedBatch) else self.fill(slot, each) for slot, each in enumerate(rows, 5)
            ]
            self.commit(number, *reported)

    def recreate_topic(self) -> None:
        """The rows are gone, and the transactions' coordinator does not know it."""
        self.broker._call(lambda: self.broker._topics.delete_all(["rows"]))
        self.broker.create_topic("rows", 2)

    def abort_with_a_lost_marker(self, row: str) -> TaskTransaction:
        """A task of slot 0 dies with a row in partition 0, and the next driver aborts it."""
        dead = self.fill(0, (0, row))
        self.lose(dead)
        self.handle = driver.begin(self.sink)
        self.lossy.clear()
        return dead

    def txn(self, *records: str) -> int:
        """Run `pyproducer txn`."""
        return main(["txn", *records, "--bootstrap-servers", self.broker.bootstrap_servers])

    def rows(self) -> list[str]:
        """Return the rows of a reader of committed records."""
        return sorted(committed(self.broker, "rows"))
