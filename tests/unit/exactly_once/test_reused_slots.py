"""Slots of workers whose transactions were aborted, and lost their marker in a partition, on the embedded broker (R8).

The next task of a slot has the same id and producer. What becomes of its transaction says nothing of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.coordinator.coordinator import Coordinator
from spark_producer.cli.entry import main
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.control_record import TaskTransaction
from spark_producer.exactly_once.driver import Sink
from spark_producer.protocol import INIT_PRODUCER_ID
from spark_producer.protocol.messages import InitProducerIdRequest
from tests.support.filled_tasks import Tasks, committed, prepared, settings

PATIENCE, TIMEOUT_MS = 20.0, 60_000
SINK = "orders"


class World:
    """A broker and a sink with its tasks. Partition 0 does not get the markers of transactions whose ids are in `lossy`."""

    def __init__(self, broker: LocalBroker, tasks: Tasks, lossy: set[str]) -> None:
        self.broker, self.tasks, self.lossy = broker, tasks, lossy
        self.sink = Sink(SINK, settings(broker.bootstrap_servers), patience=PATIENCE)
        self.ticket = driver.begin(self.sink)

    def fill(self, slot: int, partition: int, row: str) -> TaskTransaction:
        """A task writes a row."""
        return self.tasks.fill(slot, self.ticket.style, {("rows", partition): [row]})

    def commit(self, number: int, *transactions: TaskTransaction) -> None:
        """The driver commits a batch."""
        driver.commit(self.sink, [prepared(self.ticket, number, one) for one in transactions], number)

    def abort_with_a_lost_marker(self, row: str) -> TaskTransaction:
        """A task of slot 0 dies with a row in partition 0, and the next driver aborts it."""
        dead = self.fill(0, 0, row)
        self.lossy.add(dead.transactional_id)
        self.ticket = driver.begin(self.sink)
        self.lossy.clear()
        return dead

    def txn(self, *words: str) -> int:
        """Run `pyproducer txn`."""
        return main(["txn", *words, "--bootstrap-servers", self.broker.bootstrap_servers])

    def rows(self) -> list[str]:
        """What a reader of committed records sees."""
        return sorted(committed(self.broker, "rows"))


@pytest.fixture(params=[0, 2], ids=["explicit", "implicit"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    lossy: set[str] = set()
    mark = Coordinator._mark

    def lose(self: Coordinator, transactional_id: str, transaction: object, partition: object, now_ms: int) -> bool:
        if transactional_id in lossy and partition == ("rows", 0):
            return True
        return mark(self, transactional_id, transaction, partition, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(Coordinator, "_mark", lose)
    with LocalBroker(settings=BrokerSettings(transaction_version=request.param)) as broker:
        broker.create_topic("rows", 2)
        tasks = Tasks(broker.bootstrap_servers, SINK)
        yield World(broker, tasks, lossy)
        tasks.close()
        driver.close_all()


def test_the_commit_of_the_next_task_of_a_slot_is_not_that_of_the_one_before(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The slot writes elsewhere and commits; so its coordinator says "committed" of it. The dead rows were written again."""
    dead = world.abort_with_a_lost_marker("a")
    elsewhere, again = world.fill(0, 1, "b"), world.fill(1, 0, "a")
    assert elsewhere.producer_id == dead.producer_id
    with pytest.raises(ExactlyOnceError, match="lost the markers"):
        world.commit(0, elsewhere, again)
    assert world.txn("describe", SINK) == 0
    assert f"rows-0 does not show the end of producer {dead.producer_id}'s transaction, which was aborted" in (
        capsys.readouterr().out
    )
    assert world.txn("repair", SINK, "--yes") == 0
    assert world.txn("resolve", SINK, "--yes") == 0
    assert world.rows() == ["a", "b"]


@pytest.mark.parametrize("has_rows", [False, True], ids=["no row yet", "with a row elsewhere"])
def test_the_next_task_of_a_slot_has_begun(world: World, has_rows: bool) -> None:
    dead = world.abort_with_a_lost_marker("a")
    if has_rows:
        world.fill(0, 1, "of a loser")
    else:
        name = dead.transactional_id
        body = InitProducerIdRequest(name, TIMEOUT_MS)
        deadline = world.tasks.client.deadline()
        world.tasks.brokers.settle(INIT_PRODUCER_ID, {name: body}, deadline, resend=True)
    again = world.fill(1, 0, "a")
    with pytest.raises(ExactlyOnceError, match="lost the markers"):
        world.commit(0, again)
    assert world.txn("repair", SINK, "--yes") == 0
    assert world.txn("resolve", SINK, "--yes") == 0
    assert world.rows() == ["a"]


def test_a_batch_that_is_done_names_no_partitions_so_people_name_its_topic(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commit itself aborts the loser of a speculation, when all is done; then the marker is lost."""
    winner, loser = world.fill(1, 0, "a"), world.fill(0, 0, "a")
    world.lossy.add(loser.transactional_id)
    world.commit(0, winner)
    world.lossy.clear()
    assert world.txn("repair", SINK, "--yes") == 0
    assert "in the partitions of its last batch; --topic looks at others" in capsys.readouterr().out
    assert world.txn("describe", SINK, "--topic", "rows") == 0
    told = capsys.readouterr().out
    assert "readers stand at offset 1 of rows-0, which ends at 3" in told
    assert f"next: stop the query, then: pyproducer txn repair {SINK} --topic rows" in told
    assert world.txn("repair", SINK, "--topic", "rows", "--yes") == 0
    capsys.readouterr()
    assert world.txn("repair", SINK, "--topic", "rows", "--yes") == 0
    assert "in the partitions of its last batch and of rows" in capsys.readouterr().out
    assert world.txn("repair", SINK, "--topic", "nowhere", "--yes") == 1
    assert "topic 'nowhere'" in capsys.readouterr().err
