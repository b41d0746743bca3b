"""Requests of a commit that are sent together, of which one comes late, also after an interrupt: it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_producer.admin.exchange_client import ExchangeClient
from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.common.cluster import TransactionVersion
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.protocol.outcomes import FailureKind
from spark_producer.exactly_once.protocol.task_messages import TaskOutcome
from spark_producer.protocol import ADD_PARTITIONS_TO_TXN, END_TXN, PRODUCE, AnyApi
from tests.fakes.hurry import skip_pauses
from tests.support.filled_tasks import Tasks, batch, inline, prepared
from tests.support.proxy import Direction, FaultProxy
from tests.unit.exactly_once.lossy_world import SINK, ZERO, World

SECOND = 1


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy() as started:
        yield started


@pytest.fixture(params=[0, 2], ids=["explicit", "implicit"])
def world(proxy: FaultProxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A sink that knows its cluster, so that its next commit sends all together; the driver is behind the proxy."""
    skip_pauses(monkeypatch)
    settings = BrokerSettings(transaction_version=request.param, sync_on_close=False)
    with LocalBroker(settings=settings, advertised=(proxy.host, proxy.port)) as broker:
        proxy.target = (proxy.host, broker.port)
        broker.create_topic("rows", 2)
        tasks = Tasks(broker.bootstrap_servers, SINK)
        made = World(broker, tasks, set())
        made.commit(0, batch(*ZERO, "a"), made.fill(0, (1, "b")))
        made.handle = driver.begin(made.sink)
        yield made
        tasks.close()
        driver.close_all()


def first_request(world: World) -> AnyApi:
    """The first request of a control write."""
    return PRODUCE if world.handle.transaction_version is TransactionVersion.IMPLICIT else ADD_PARTITIONS_TO_TXN


def commit(world: World, *messages: TaskOutcome) -> None:
    driver.commit(world.sink, messages, SECOND)


@pytest.mark.parametrize("path", ["A", "B"])
@pytest.mark.parametrize("later", [None, PRODUCE, END_TXN], ids=["first", "Produce", "EndTxn"])
def test_a_request_that_comes_when_the_write_was_given_up_changes_nothing(
    world: World, proxy: FaultProxy, path: str, later: AnyApi | None
) -> None:
    kind = later or first_request(world)
    messages: list[TaskOutcome] = [inline(world.handle, SECOND, batch(*ZERO, "c"))]
    if path == "B":
        messages.append(prepared(world.handle, SECOND, world.fill(0, (1, "d"))))
    proxy.copy_requests(kind.key)
    proxy.lose_request(kind.key)
    with pytest.raises(ExactlyOnceError) as failed:
        commit(world, *messages)
    assert failed.value.kind == FailureKind.NOT_WRITTEN.name
    assert "did not acknowledge the commit (the connection to" in str(failed.value)
    driver.abort(world.sink, messages, SECOND)
    [late, *_] = proxy.copies[kind.key]
    proxy.send_again(late)
    world.handle = driver.begin(world.sink)
    proxy.send_again(late)
    world.commit(SECOND, batch(*ZERO, "c"), world.fill(0, (1, "d")))
    proxy.send_again(late)
    assert world.rows() == ["a", "b", "c", "d"]


def test_a_request_that_comes_when_the_vote_has_failed_changes_nothing(world: World, proxy: FaultProxy) -> None:
    transaction = world.fill(0, (1, "d"))
    messages: list[TaskOutcome] = [
        inline(world.handle, SECOND, batch(*ZERO, "c")),
        prepared(world.handle, SECOND, transaction),
    ]
    kind = first_request(world)
    proxy.copy_requests(kind.key)
    world.take_over(transaction)
    proxy.lose_request(kind.key)
    with pytest.raises(ExactlyOnceError) as failed:
        commit(world, *messages)
    assert failed.value.kind == FailureKind.VOTE.name
    driver.abort(world.sink, messages, SECOND)
    [late, *_] = proxy.copies[kind.key]
    proxy.send_again(late)
    world.handle = driver.begin(world.sink)
    proxy.send_again(late)
    world.commit(SECOND, batch(*ZERO, "c"), world.fill(0, (1, "d")))
    proxy.send_again(late)
    assert world.rows() == ["a", "b", "c", "d"]


def test_rows_that_are_under_way_at_an_interrupt_are_not_written(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the first requests wait for their responses; they reach the broker afterwards."""
    messages = [inline(world.handle, SECOND, batch(*ZERO, "c"))]
    kind, report_wait = first_request(world), ExchangeClient._report_wait
    kept: list[bytes] = []
    proxy.copy_requests(kind.key)
    proxy.swallow(Direction.TO_BROKER)

    def interrupt(*_: object) -> None:
        if late := proxy.copies[kind.key]:
            kept.extend(late)
            monkeypatch.setattr(ExchangeClient, "_report_wait", report_wait)
            proxy.heal()
            raise KeyboardInterrupt

    monkeypatch.setattr(ExchangeClient, "_report_wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit(world, *messages)
    proxy.send_again(kept[0])
    driver.abort(world.sink, messages, SECOND)
    world.handle = driver.begin(world.sink)
    proxy.send_again(kept[0])
    world.commit(SECOND, batch(*ZERO, "c"), world.fill(0, (1, "d")))
    assert world.rows() == ["a", "b", "c", "d"]
