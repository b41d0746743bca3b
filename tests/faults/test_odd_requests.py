"""Thousands of strange requests, valid and damaged, and after each thousand a broker in its usual health."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_producer.protocol import CREATE_TOPICS, FETCH, PRODUCE, decoded_records, messages
from tests.fakes.raw_client import RawClient
from tests.faults.odd_clients import all_answered, send_alone
from tests.faults.odd_requests import OddRequest, OddRequests
from tests.support.campaigns import sample_and_campaign
from tests.unit.broker.batches import make_batch

SEED = "odd-1"
CONNECTIONS = 4
DAMAGED_IN = 8
NORMAL = "normal"
DEADLINE = 30.0
"""seconds for the broker to end"""

MIB = 1024 * 1024
LIMITS = {
    "max_partitions": 500,
    "max_buffered_bytes": 32 * MIB,
    "max_request_bytes": 16 * MIB,
    "sync_on_close": False,
}
MEMORY_BOUND = 150 * MIB
"""Maximum growth of the broker's process: twice the budget, the memory of one request while it is handled, Python's own."""


SERVE = """
import logging
from spark_producer.broker import BrokerSettings, serve

logging.basicConfig(level=logging.ERROR)  # without thousands of lines about dropped connections
serve("127.0.0.1", 0, None, settings=BrokerSettings(**{limits}), ready=lambda servers, _: print(servers, flush=True))
"""


class SeparateBroker:
    """A broker in a process of its own, whose memory holds nothing else. `end` returns the errors that it logged."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", SERVE.format(limits=LIMITS)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().rpartition(":")[2])

    def resident(self) -> int:
        """Bytes of the process in memory."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096

    def end(self) -> str:
        """Stop it; what it has complained of."""
        self._process.terminate()
        try:
            return self._process.communicate(timeout=DEADLINE)[1]
        finally:
            self._process.kill()


def run_thousand(port: int, number: int) -> None:
    source = OddRequests(f"{SEED}/{number}", LIMITS["max_request_bytes"])
    shares: list[list[OddRequest]] = [[] for _ in range(CONNECTIONS)]
    alone: list[OddRequest] = []
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
    data = (messages.ProduceTopic(NORMAL, partition_data=(messages.ProducePartition(0, batch),)),)
    produced = client.ask(PRODUCE, messages.ProduceRequest(topic_data=data)).responses[0].partition_responses[0]
    assert produced.error_code == 0
    wanted = (messages.FetchPartition(0, fetch_offset=produced.base_offset, partition_max_bytes=MIB),)
    fetched = client.ask(FETCH, messages.FetchRequest(topics=(messages.FetchTopic(NORMAL, partitions=wanted),)))
    assert bytes(decoded_records(fetched.responses[0].partitions[0].records) or b"")[16:] == bytes(batch)[16:]


def bombard(thousands: int) -> str:
    """Send this many thousands of odd requests, and return the errors that the broker logged until it was stopped."""
    broker = SeparateBroker()
    number = -1
    try:
        with RawClient(broker.port) as client:
            topic = messages.CreatableTopic(NORMAL, 1, 1)
            assert client.ask(CREATE_TOPICS, messages.CreateTopicsRequest((topic,))).topics[0].error_code == 0
        before = 0
        for number in range(thousands):
            run_thousand(broker.port, number)
            with RawClient(broker.port) as client:
                check_health(client)
            before = before or broker.resident()
            grown = broker.resident() - before
            assert grown < MEMORY_BOUND, f"grown by {grown} bytes"
    except BaseException as error:
        error.add_note(f"in thousand {number} of seed {SEED!r}; the broker: {broker.end()[:3000]}")
        raise
    return broker.end()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("thousands", sample_and_campaign([10, 100]))
def test_a_broker_survives_thousands_of_odd_requests(thousands: int) -> None:
    assert bombard(thousands) == "", f"seed {SEED!r}"
