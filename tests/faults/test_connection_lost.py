"""Connections that break, go silent or slow in the middle of a write: every row arrives once, in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from tests.conftest import KAFKA_4_FIRST, ProxiedBroker
from tests.faults.paced import PacedWrite, assert_exactly_once_in_order
from tests.spark.frames import write
from tests.support.proxy import Cut, Direction, FaultProxy
from tests.support.read_back import read_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("proxied", KAFKA_4_FIRST[:2], indirect=True)]
PRODUCE = 0


def lose_responses(proxy: FaultProxy) -> None:
    proxy.lose_response(PRODUCE, times=3)


def lose_responses_closing(proxy: FaultProxy) -> None:
    proxy.lose_response(PRODUCE, times=3, how=Cut.CLOSE)


def lose_requests(proxy: FaultProxy) -> None:
    proxy.lose_request(PRODUCE, times=3)


def cut_inside_a_request(proxy: FaultProxy) -> None:
    proxy.cut_after(20_000, Direction.TO_BROKER)


def cut_inside_a_response(proxy: FaultProxy) -> None:
    proxy.cut_after(30, Direction.TO_CLIENT, Cut.CLOSE)


CUTS: list[Callable[[FaultProxy], None]] = [cut_inside_a_request, cut_inside_a_response]
FAULTS = [lose_responses, lose_responses_closing, lose_requests, *CUTS]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_connection_that_breaks(
    spark: SparkSession, proxied: ProxiedBroker, topic: str, tmp_path: Path, fault: Callable[[FaultProxy], None]
) -> None:
    proxied.create_topic(topic, 3)
    with PacedWrite(spark, proxied, topic, tmp_path) as paced:
        paced.wait_until_half_done()
        before = proxied.proxy.accepted
        fault(proxied.proxy)
        paced.open_gate()

        # What is cut may still have been the connection by which the test looked for the first rows.
        def reconnected() -> bool:
            if fault in CUTS and not proxied.proxy.faults.cut_after:
                fault(proxied.proxy)
            return proxied.proxy.accepted > before or not paced.running

        wait_until(reconnected, "another connection, or the end of the write")
        paced.finish()
        assert proxied.proxy.accepted > before, "no connection had to be made again"
    assert_exactly_once_in_order(proxied, topic)


def test_a_connection_that_goes_silent(spark: SparkSession, proxied: ProxiedBroker, topic: str, tmp_path: Path) -> None:
    """No response arrives until the request times out; it is sent again over a new connection."""
    proxied.create_topic(topic, 3)
    with PacedWrite(spark, proxied, topic, tmp_path, options={"kafka.request.timeout.ms": 1_000}) as paced:
        paced.wait_until_half_done()
        proxied.proxy.swallow(Direction.TO_CLIENT)
        before, asked = proxied.proxy.accepted, proxied.proxy.requests[PRODUCE]
        paced.open_gate()
        paced.wait(lambda: proxied.proxy.requests[PRODUCE] > asked, "a request without an answer")
        paced.wait(lambda: proxied.proxy.accepted > before, "a new connection")
        proxied.proxy.heal()
        paced.finish()
    assert_exactly_once_in_order(proxied, topic)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"kafka.request.timeout.ms": 1_000, "kafka.delivery.timeout.ms": 2_500},
            r"records for topic '{topic}', partition \d were not acknowledged within",
        ),
        (
            {"kafka.buffer.memory": 65_536, "kafka.max.block.ms": 1_500},
            r"bytes did not become free within 1\.500 s \(kafka\.max\.block\.ms\)",
        ),
    ],
    ids=["no answer in time", "no memory for rows in time"],
)
def test_a_broker_that_never_answers_again_ends_the_write(
    spark: SparkSession, proxied: ProxiedBroker, topic: str, tmp_path: Path, options: dict[str, int], said: str
) -> None:
    proxied.create_topic(topic, 3)
    with PacedWrite(spark, proxied, topic, tmp_path, options=options) as paced:
        paced.wait_until_half_done()
        proxied.proxy.swallow(Direction.TO_CLIENT)
        with pytest.raises(PythonException, match=said.format(topic=topic)):
            paced.finish()


def test_the_workers_write_again_after_a_fault(spark: SparkSession, proxied: ProxiedBroker, topic: str) -> None:
    """A connection that broke while no write was under way is no fault at all."""
    proxied.create_topic(topic, 1)
    frame = spark.range(0, 100, 1, 2).selectExpr("string(id) as value")
    write(frame, proxied, topic)
    proxied.proxy.cut()
    write(frame, proxied, topic)
    assert len(read_topic(proxied.bootstrap_servers, topic)) == 200
