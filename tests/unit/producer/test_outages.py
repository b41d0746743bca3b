"""The log of an outage, against a clock of the test: one line at the loss, one at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ConnectionFailed
from spark_producer.producer.outages import MIN_BETWEEN_LOSSES, REPORT_AFTER, Outages
from tests.fakes.sender_fakes import TOPIC, SenderFakes, answer_to, metadata_of, sender_fakes

REFUSED = ConnectionFailed("cannot connect to host1:9092: Connection refused")


class Watched:
    """A sender, its outages, and an I/O thread's turns at one second each."""

    def __init__(self, made: SenderFakes, caplog: pytest.LogCaptureFixture) -> None:
        self.made = made
        self.outages = Outages(made.fakes.accumulator, made.metadata)
        self._caplog = caplog

    def turns(self, seconds: float, each: Callable[[], None] = lambda: None) -> list[str]:
        """Return the messages meanwhile."""
        self._caplog.clear()
        for _ in range(round(seconds / 0.5)):
            each()
            self.made.fakes.clock.advance(0.5)
            self.outages.check(self.made.now)
        assert all(record.levelno == logging.WARNING for record in self._caplog.records)
        return [record.getMessage() for record in self._caplog.records]

    def lose(self, *nodes: int) -> None:
        for node in nodes:
            self.outages.on_disconnect(node, REFUSED, self.made.now)


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    return Watched(sender_fakes(delivery_timeout=120), caplog)


def test_an_outage_of_forty_seconds_is_two_lines(watched: Watched) -> None:
    """However often a connection is tried."""
    made = watched.made
    made.batches(b"a", b"b")
    made.batches(b"c", partition=2)
    made.network.unready = {1}
    watched.lose(1)
    (lost,) = watched.turns(40, lambda: watched.lose(1))
    assert lost == (
        "lost broker 1 at host1:9092 for 3.5 s: cannot connect to host1:9092: Connection refused. 2 batches of "
        f"{sum(batch.size for batch in made.fakes.incomplete.remaining()[:2]):,} bytes wait. They are sent when the outage "
        "ends, and fail 120 s after they were queued (kafka.delivery.timeout.ms)"
    )
    made.network.unready = set()
    watched.outages.on_response(1)
    (back,) = watched.turns(10)
    assert back.startswith("broker 1 at host1:9092: back after 40.5 s, and 2 batches of ")
    assert watched.turns(100) == []


def test_a_broker_that_is_back_at_once_or_for_which_nothing_waits_is_no_outage(watched: Watched) -> None:
    watched.lose(1)
    assert watched.turns(60) == []
    watched.made.batches(b"a", partition=2)
    watched.lose(1)
    assert watched.turns(60) == [], "its batches go to broker 2"
    watched.made.batches(b"a")
    watched.lose(1)
    assert watched.turns(REPORT_AFTER - 1) == []
    watched.outages.on_response(1)
    assert watched.turns(60) == []


def test_what_is_in_flight_waits_too(watched: Watched) -> None:
    watched.made.batches(b"a")
    (outgoing,) = watched.made.produce()
    watched.lose(1)
    assert len(watched.turns(20)) == 1
    watched.outages.on_response(1)
    watched.made.complete(outgoing, answer_to(outgoing))
    assert "back after" in watched.turns(5)[0]


def test_many_brokers_are_one_line_and_later_ones_another(caplog: pytest.LogCaptureFixture) -> None:
    nodes = range(1, 51)
    watched = Watched(sender_fakes(delivery_timeout=1200, leaders={TOPIC: tuple(nodes)}), caplog)
    cluster = watched.made.metadata.cluster
    address = cluster.nodes[1]
    watched.made.metadata.cluster = cluster.replace(
        nodes=dict.fromkeys(nodes, address), topics={TOPIC: cluster.topics[TOPIC]._replace(leaders=tuple(nodes))}
    )
    for partition in range(50):
        watched.made.fakes.append(b"a", tp=TopicPartition(TOPIC, partition))
    watched.lose(*range(1, 41))
    (line,) = watched.turns(8)
    assert "broker 1 at host1:9092, broker 2 at host1:9092, broker 3 at host1:9092 and 37 more" in line
    assert "40 batches of " in line
    watched.lose(*range(41, 51))
    (line,) = watched.turns(60)
    assert "broker 43 at host1:9092 and 7 more" in line
    for node in nodes:
        watched.outages.on_response(node)
    (line,) = watched.turns(60)
    assert "and 47 more: back after" in line


def test_brokers_that_come_and_go_do_not_fill_the_log(watched: Watched) -> None:
    watched.made.batches(b"a")
    lines = []
    for _ in range(60):
        watched.lose(1)
        lines += watched.turns(3.5)
        watched.outages.on_response(1)
        lines += watched.turns(1.5)
    assert len(lines) <= 2 * 300 / MIN_BETWEEN_LOSSES


def test_partitions_without_a_leader_are_reported_though_no_connection_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched(sender_fakes(delivery_timeout=120, leaders={TOPIC: (-1,)}), caplog)
    watched.made.batches(b"a")
    (line,) = watched.turns(30)
    assert line.startswith(f"lost the leader of topic {TOPIC!r}, partition 0 for ")
    assert "1 batch of " in line
    assert " waits. " in line
    watched.made.learn(metadata_of({TOPIC: (1,)}, epochs=1))
    watched.made.produce()
    assert f"the leader of topic {TOPIC!r}, partition 0: back after" in watched.turns(5)[0]


def test_partitions_that_move_to_another_leader_end_the_outage(watched: Watched) -> None:
    watched.made.batches(b"a")
    watched.made.network.unready = {1}
    watched.lose(1)
    assert len(watched.turns(20)) == 1
    watched.made.metadata.request_update()
    watched.made.learn(metadata_of({TOPIC: (2, 2, 2)}, nodes=(2,), epochs=1))
    (line,) = watched.turns(5)
    assert line.startswith("no batch waits for broker 1 at host1:9092 any more, after 2")
    assert watched.turns(60) == []


@pytest.mark.parametrize("leader", [1, -1], ids=["a broker is lost", "no leader"])
def test_batches_that_have_failed_are_not_said_to_have_gone_on(caplog: pytest.LogCaptureFixture, leader: int) -> None:
    watched = Watched(sender_fakes(delivery_timeout=30, leaders={TOPIC: (leader,)}), caplog)
    watched.made.batches(b"a")
    watched.made.network.unready = {1}
    if leader > 0:
        watched.lose(1)
    loss, end = watched.turns(40, lambda: (watched.made.step(), None)[1])
    assert loss.startswith("lost ")
    assert end.startswith("no batch waits for ")
    assert "or are complete" in end
