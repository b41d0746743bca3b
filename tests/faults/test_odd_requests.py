"""A hundred thousand strange requests, valid and damaged, and after each thousand a broker in its usual health."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.protocol import FETCH, PRODUCE, messages
from tests.unit.broker.batches import make_batch
from tests.unit.broker.odd_clients import all_answered, send_alone
from tests.unit.broker.odd_requests import OddRequests
from tests.unit.broker.raw_client import RawClient

SEED = "odd-1"
CONNECTIONS = 4
DAMAGED_IN = 8
NORMAL = "normal"

MIB = 1024 * 1024
SETTINGS = BrokerSettings(
    max_partitions=500, max_buffered_bytes=32 * MIB, max_request_bytes=16 * MIB, sync_on_close=False
)
MEMORY_BOUND = 150 * MIB
"""By which the process may grow: twice the budget, what one request takes while it is handled, what Python keeps."""


class _Defects(logging.Handler):
    """What the broker logged as an error: it never should, whatever the requests."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


@pytest.fixture
def defects() -> Iterator[list[str]]:
    logger, handler = logging.getLogger("spark_producer.broker"), _Defects()
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)  # without thousands of lines about dropped connections
    yield handler.found
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def run_thousand(port: int, number: int) -> None:
    source = OddRequests(f"{SEED}/{number}", SETTINGS.max_request_bytes)
    shares: list[list[object]] = [[] for _ in range(CONNECTIONS)]
    alone = []
    for index in range(1000):
        request = source.damaged() if index % DAMAGED_IN == 0 else source.request()
        if request.last:
            alone.append(request)
        else:
            shares[index % CONNECTIONS].append(request)
    all_answered(port, shares)
    for request in alone:
        send_alone(port, request)


def check_health(client: RawClient) -> None:
    """A produce and a fetch as usual."""
    batch = make_batch(3, size=500)
    data = (messages.ProduceTopic(NORMAL, (messages.ProducePartition(0, batch),)),)
    produced = client.ask(PRODUCE, messages.ProduceRequest(topic_data=data)).responses[0].partition_responses[0]
    assert produced.error_code == 0
    wanted = (messages.FetchPartition(0, fetch_offset=produced.base_offset, partition_max_bytes=MIB),)
    fetched = client.ask(FETCH, messages.FetchRequest(topics=(messages.FetchTopic(NORMAL, wanted),)))
    assert bytes(fetched.responses[0].partitions[0].records)[16:] == bytes(batch)[16:]


def bombard(thousands: int, defects: list[str]) -> None:
    with LocalBroker(settings=SETTINGS) as broker:
        broker.create_topic(NORMAL)
        before = 0
        for number in range(thousands):
            try:
                run_thousand(broker.port, number)
                with RawClient(broker.port) as client:
                    check_health(client)
                assert not defects
                grown = resident() - (before or resident())
                assert grown < MEMORY_BOUND, f"grown by {grown} bytes"
            except BaseException as error:
                error.add_note(f"in thousand {number} of seed {SEED!r}; defects: {defects[:3]}")
                raise
            before = before or resident()


def test_a_broker_survives_thousands_of_odd_requests(defects: list[str]) -> None:
    bombard(2, defects)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_survives_a_hundred_thousand_odd_requests(defects: list[str]) -> None:
    bombard(100, defects)
