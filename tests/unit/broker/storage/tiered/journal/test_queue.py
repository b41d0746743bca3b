"""The queue in front of the journal: a group that grows takes what comes, and its taker is woken only if that matters."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from spark_producer.broker.storage.tiered.journal.group_commit import Trigger
from spark_producer.broker.storage.tiered.journal.queue import RecordGroup, RecordQueue
from tests.unit.broker.storage.tiered.journal.journals import DEADLINE, ON_DEMAND, SMALL, record

LARGE = 100
SETTINGS = replace(ON_DEMAND, buffered_writes_threshold=LARGE)


class Taker:
    """A thread that takes one group; the fake clock of its queue notes when the thread reads it."""

    def __init__(self) -> None:
        self.looked = threading.Event()
        self.queue = RecordQueue(SETTINGS, self.clock)
        self.group: RecordGroup | None = None
        self._thread = threading.Thread(target=self._take, daemon=True)

    def clock(self) -> float:
        if threading.current_thread() is self._thread:
            self.looked.set()
        return 1.0

    def _take(self) -> None:
        self.group = self.queue.take()

    def start(self) -> None:
        self._thread.start()

    def taken(self) -> RecordGroup | None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "the taker was not woken"
        return self.group


@pytest.mark.covers("J2")
def test_a_taker_that_waits_for_the_time_is_woken_when_its_group_is_large_enough() -> None:
    taker = Taker()
    taker.start()
    taker.queue.put(record(0, LARGE // 2))
    assert taker.looked.wait(DEADLINE)
    taker.queue.put(record(1, LARGE // 2 + 1))
    taker.queue.put(record(2))
    assert taker.taken() == RecordGroup(
        [record(0, LARGE // 2), record(1, LARGE // 2 + 1)], Trigger.MAX_OUTSTANDING_BYTES
    )


def test_a_taker_that_waits_for_the_time_is_woken_when_it_is_asked() -> None:
    taker = Taker()
    taker.start()
    taker.queue.put(record(0))
    assert taker.looked.wait(DEADLINE)
    taker.queue.request_group()
    assert taker.taken() == RecordGroup([record(0)], Trigger.REQUESTED)


def test_a_taker_gets_what_is_left_when_the_queue_is_closed_and_then_nothing() -> None:
    queue = RecordQueue(SETTINGS, lambda: 1.0)
    queue.put(record(0))
    queue.close()
    assert queue.take() == RecordGroup([record(0)], Trigger.REQUESTED)
    assert queue.take() is None


def test_a_taker_gets_nothing_when_the_queue_is_cancelled() -> None:
    taker = Taker()
    taker.start()
    taker.queue.put(record(0))
    assert taker.looked.wait(DEADLINE)
    taker.queue.cancel()
    assert taker.taken() is None
    taker.queue.put(record(1))
    assert taker.queue.take() is None


def test_a_request_without_records_has_no_later_effect() -> None:
    queue = RecordQueue(SMALL, lambda: 1.0)
    queue.request_group()
    for number in range(3):
        queue.put(record(number))
    assert queue.take() == RecordGroup([record(number) for number in range(3)], Trigger.EMPTY_QUEUE)
