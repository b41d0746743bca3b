"""Ends of transactions in a storage that confirms later: none is complete before all of its markers are confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context
from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from tests.fakes.memory_storage import MemoryStorage
from tests.unit.broker.coordinator.transaction_requests import IMPLICIT, begin, committed, end, initialize, state
from tests.unit.broker.handler_calls import BROKER

PLACES = [("t", 0), ("t", 1)]


class Journal(MemoryStorage):
    """A log that outlives a broker; unconfirmed batches are lost with the broker."""

    def close(self) -> bool:
        for log in self.logs.values():
            del log.batches[log.confirmed :]
            log.failed = False
        return True


class Lives:
    """The lives of a broker over one journal."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir, self.settings = data_dir, BrokerSettings()
        self.journal = Journal(data_dir, self.settings)
        self.context = self.begin()
        self.context.topics.create("t", 2)
        self.me = self.producer()
        begin(self.context, self.me, IMPLICIT, *PLACES)
        for log in self.journal.logs.values():
            log.confirms_at_once = False

    def begin(self) -> Context:
        store = TopicStore(self.data_dir, self.settings, lambda *_: self.journal)
        self.context = Context(store, self.settings, BROKER, BrokerCoordinator(store, self.settings))
        return self.context

    def end(self) -> None:
        self.context.coordinator.close()
        self.context.topics.close()

    def producer(self) -> tuple[int, int]:
        code, producer_id, epoch = initialize(self.context)
        assert code == Code.NONE
        return producer_id, epoch


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "data")


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_complete_when_its_last_marker_is_confirmed(lives: Lives, commit: bool) -> None:
    coordinator, logs = lives.context.coordinator, lives.journal.logs
    assert end(lives.context, lives.me, commit=commit)[0] == Code.NONE
    logs["t", 0].confirmed += 1
    coordinator.write_markers()
    assert state(lives.context).transaction_state == ("PrepareCommit" if commit else "PrepareAbort")
    assert not coordinator.has_markers_to_write, "the broker need not turn until the journal wakes it"
    assert initialize(lives.context)[0] == Code.CONCURRENT_TRANSACTIONS
    logs["t", 1].confirmed += 1
    coordinator.write_markers()
    assert state(lives.context).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert initialize(lives.context)[0] == Code.NONE
    lives.end()


def test_a_marker_that_was_lost_with_the_journal_is_written_in_the_next_life(lives: Lives) -> None:
    """Otherwise the next transaction of the producer would decide these rows too."""
    assert end(lives.context, lives.me, commit=True)[0] == Code.NONE
    lives.journal.logs["t", 0].confirmed += 1
    lives.journal.fail()
    lives.context.coordinator.write_markers()
    lives.context.coordinator.check_timeouts()
    lives.context.coordinator.write_markers()
    assert state(lives.context).transaction_state == "PrepareCommit"
    lives.end()
    lives.begin()
    lives.journal.confirm_all()
    lives.context.coordinator.write_markers()
    assert state(lives.context).transaction_state == "CompleteCommit"
    assert [committed(lives.context, place)[1] for place in PLACES] == [3, 2]
    lives.end()


@pytest.mark.parametrize("recreated", [False, True])
def test_a_topic_that_is_deleted_meanwhile_has_nothing_to_confirm(lives: Lives, recreated: bool) -> None:
    assert end(lives.context, lives.me, commit=True)[0] == Code.NONE
    lives.context.topics.delete("t")
    if recreated:
        lives.context.topics.create("t", 2)
    lives.context.coordinator.write_markers()
    assert state(lives.context).transaction_state == "CompleteCommit"
    lives.end()
