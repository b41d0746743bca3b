"""The time for which a connection may keep the broker waiting."""

import math

from spark_producer.broker.connections.connection_timeouts import (
    MIN_PROGRESS_BYTES,
    ConnectionStage,
    ConnectionTimeouts,
)

IDLE, STALL = 600.0, 30.0


def test_each_stage_has_its_time() -> None:
    for harness, deadline in (
        (ConnectionStage.IDLE, 100 + IDLE),
        (ConnectionStage.RECEIVING, 100 + STALL),
        (ConnectionStage.SENDING, 100 + STALL),
        (ConnectionStage.WORKING, math.inf),
    ):
        timeouts = ConnectionTimeouts(IDLE, STALL)
        timeouts.observe(harness, 0, 0, 100.0)
        assert timeouts.deadline == deadline
        assert harness.value in timeouts.reason()


def test_some_bytes_now_and_then_are_no_progress() -> None:
    timeouts = ConnectionTimeouts(IDLE, STALL)
    for second in range(30):
        timeouts.observe(ConnectionStage.RECEIVING, 1, 10 * second, float(second))
    assert timeouts.deadline == STALL


def test_enough_bytes_are() -> None:
    timeouts = ConnectionTimeouts(IDLE, STALL)
    for second in range(100):
        timeouts.observe(ConnectionStage.SENDING, 1, second * (MIN_PROGRESS_BYTES // 25 + 1), float(second))
    assert timeouts.deadline > 100


def test_the_next_transfer_has_its_own_time() -> None:
    timeouts = ConnectionTimeouts(IDLE, STALL)
    timeouts.observe(ConnectionStage.RECEIVING, 1, 10, 0.0)
    timeouts.observe(ConnectionStage.RECEIVING, 2, 20, 20.0)
    assert timeouts.deadline == 20 + STALL
