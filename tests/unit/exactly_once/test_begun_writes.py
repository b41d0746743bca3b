"""Requests that were sent early, in writes that fail or are overtaken before that step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_producer.admin.exchange_client import ExchangeClient
from spark_producer.common import failpoints
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import fencing
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.coordinator_state import COMPLETE_ABORT, ONGOING, describe
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.outcomes import FailureKind, NothingToAbort, WriteAborted
from spark_producer.protocol import FETCH, LIST_OFFSETS
from tests.support.filled_tasks import batch, inline, prepared
from tests.support.waiting import wait_until
from tests.unit.exactly_once.lossy_world import SINK, ZERO, World

LATE_MS = 1_500
"""The timeout of the control id's transactions in a test that waits for it. More than 900: timeouts note the last commit."""


class Stopped(Exception):
    """The commit fails here."""


@pytest.fixture
def stop() -> Iterator[Callable[[str], None]]:
    """Let a commit fail at a failpoint."""

    def at(name: str) -> None:
        def raises(reached: str) -> None:
            if reached == name:
                raise Stopped

        failpoints.install(raises)

    yield at
    failpoints.install(None)


def state(world: World) -> str:
    """The state of the control id's transaction."""
    own = control_id(SINK)
    row = describe(world.tasks.brokers, [own], world.tasks.client.deadline())[own]
    assert row is not None
    return row.transaction_state


@pytest.mark.parametrize("warm", [False, True])
def test_rows_of_a_commit_that_fails_after_the_listing_are_aborted_at_once(
    world: World, stop: Callable[[str], None], warm: bool
) -> None:
    """Readers would wait for a minute. The leaders are known from the second commit on."""
    if warm:
        world.commit(0, batch(*ZERO, "a"))
        world.handle = driver.begin(world.sink)
    stop("commit.listing")
    messages = [inline(world.handle, 1, batch(*ZERO, "b"))]
    with pytest.raises(Stopped):
        driver.commit(world.sink, messages, 1)
    assert state(world) != ONGOING
    assert isinstance(driver.abort(world.sink, messages, 1), NothingToAbort)
    failpoints.install(None)
    world.run_again(1, batch(*ZERO, "b"))
    assert world.rows() == (["a", "b"] if warm else ["b"])


def test_a_record_whose_vote_fails_is_aborted_by_the_fence_of_the_abort(world: World) -> None:
    world.commit(0, world.fill(0, (0, "a")))
    world.handle = driver.begin(world.sink)
    late, open_one = world.fill(1, (0, "b")), world.fill(2, (1, "c"))
    world.take_over(late)
    messages = [prepared(world.handle, 1, each) for each in (late, open_one)]
    with pytest.raises(ExactlyOnceError) as failed:
        driver.commit(world.sink, messages, 1)
    assert failed.value.kind == FailureKind.VOTE.name
    ended = driver.abort(world.sink, messages, 1)
    assert isinstance(ended, WriteAborted)
    assert open_one.transactional_id in ended.transactions
    assert state(world) != ONGOING
    world.run_again(1, (0, "b"), (1, "c"))
    assert world.rows() == ["a", "b", "c"]


@pytest.mark.parametrize("connected", [True, False])
def test_a_write_is_begun_before_its_vote_if_the_brokers_of_its_tasks_are_connected(
    world: World, stop: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    """A vote that waits for a dead broker may take longer than the transaction may be open."""
    for number in range(2):
        world.commit(number, world.fill(0, (0, "a")))
        world.handle = driver.begin(world.sink)
    message = prepared(world.handle, 2, world.fill(0, (0, "b")))
    is_sent = ExchangeClient.is_sent
    monkeypatch.setattr(ExchangeClient, "is_sent", lambda *given: connected and is_sent(*given))
    stop("commit.voting")
    with pytest.raises(Stopped):
        driver.commit(world.sink, [message], 2)
    assert (state(world) == ONGOING) is connected
    failpoints.install(None)
    world.run_again(2, (0, "b"))
    assert world.rows() == ["a", "a", "b"]


@pytest.mark.parametrize("late", ["commit.voting", "control.produced"])
def test_a_write_whose_transaction_times_out_before_its_commit_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    world.commit(0, world.fill(0, (0, "a")))
    with monkeypatch.context() as patch:
        patch.setattr(fencing, "CONTROL_TIMEOUT_MS", LATE_MS)
        world.handle = driver.begin(world.sink)

    def waits(reached: str) -> None:
        if reached == late:
            failpoints.install(None)
            wait_until(lambda: state(world) == COMPLETE_ABORT, "the abort of the control id's transaction")

    message = prepared(world.handle, 1, world.fill(0, (0, "b")))
    failpoints.install(waits)
    with pytest.raises(ExactlyOnceError, match=r"timed out|open for more than a minute") as failed:
        driver.commit(world.sink, [message], 1)
    assert failed.value.again
    driver.abort(world.sink, [message], 1)
    world.run_again(1, (0, "b"))
    assert world.rows() == ["a", "b"]


def test_a_driver_that_dies_after_the_listing_has_written_nothing(world: World, stop: Callable[[str], None]) -> None:
    world.commit(0, batch(*ZERO, "a"), world.fill(0, (1, "b")))
    world.handle = driver.begin(world.sink)
    stop("commit.listing")
    message = prepared(world.handle, 1, world.fill(0, (0, "c")))
    with pytest.raises(Stopped):
        driver.commit(world.sink, [message, inline(world.handle, 1, batch(*ZERO, "d"))], 1)
    failpoints.install(None)
    world.run_again(1, (0, "c"), batch(*ZERO, "d"))
    assert world.rows() == ["a", "b", "c", "d"]


def test_a_newer_driver_refuses_the_rows_that_an_older_one_sends_with_its_listing(world: World) -> None:
    world.commit(0, batch(*ZERO, "a"))
    old = driver.begin(world.sink)
    world.handle = driver.begin(world.sink)
    with pytest.raises(ExactlyOnceError) as fenced:
        driver.commit(world.sink, [inline(old, 1, batch(*ZERO, "old"))], 1)
    assert fenced.value.kind == FailureKind.FENCED.name
    world.commit(1, batch(*ZERO, "b"))
    assert world.rows() == ["a", "b"]


def test_a_marker_that_a_newer_driver_loses_after_the_fence_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leaders of rows have answered before it, and that of the control topic after it."""
    world.commit(0, batch(*ZERO, "a"))
    world.handle = driver.begin(world.sink)
    world.commit(1, batch(*ZERO, "b"))
    learn = TransactionAdmin.learn_from_coordinator

    def overtaken(self: TransactionAdmin, *given: Any) -> bool:
        self.client.pause(0.1)  # the request that was sent early has its response
        monkeypatch.setattr(TransactionAdmin, "learn_from_coordinator", learn)
        newer = driver.begin(world.sink)
        world.lose(control_id(SINK))
        with pytest.raises(ExactlyOnceError, match="lost the markers"):
            driver.commit(world.sink, [inline(newer, 2, batch(*ZERO, "c"))], 2)
        world.lossy.clear()
        self.early._sent = [each for each in self.early._sent if each.call.api not in (LIST_OFFSETS, FETCH)]
        return learn(self, *given)

    monkeypatch.setattr(TransactionAdmin, "learn_from_coordinator", overtaken)
    with pytest.raises(ExactlyOnceError) as found:
        driver.begin(world.sink)
    assert found.value.kind == FailureKind.HUNG.name
