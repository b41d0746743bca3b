"""Connections cut at random between request and response, under an idempotent producer: every row once, in order. SN14, SN26."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest

from spark_producer import Producer
from tests.conftest import ProxiedBroker
from tests.support.proxy import Cut, FaultProxy
from tests.support.read_back import read_topic

pytestmark = pytest.mark.slow
PRODUCE = 0
ROWS, PIECE, PARTITIONS = 200_000, 2_000, 3


def cut_at_random(proxy: FaultProxy, stop: threading.Event, choose: random.Random) -> None:
    while not stop.wait(choose.uniform(0.01, 0.1)):
        how = choose.choice((Cut.RESET, Cut.CLOSE))
        choose.choice((proxy.lose_response, proxy.lose_request))(PRODUCE, times=choose.randint(1, 3), how=how)
        if choose.random() < 0.3:
            proxy.cut()


def test_sn14_sn26_random_cuts_lose_and_double_nothing(proxied: ProxiedBroker, topic: str) -> None:
    proxied.create_topic(topic, PARTITIONS)
    options: dict[str, object] = {
        "bootstrap.servers": proxied.bootstrap_servers,
        "linger.ms": 5,
        "batch.size": 16384,
        "retry.backoff.ms": 5,
        "reconnect.backoff.ms": 5,
        "reconnect.backoff.max.ms": 50,
    }
    stop = threading.Event()
    cutter = threading.Thread(target=cut_at_random, args=(proxied.proxy, stop, random.Random(4)), daemon=True)
    with Producer(options) as producer:
        producer.send_batch(numbered(0), topic=topic)
        producer.flush()
        cutter.start()
        for first in range(PIECE, ROWS, PIECE):
            producer.send_batch(numbered(first), topic=topic)
        stop.set()
        cutter.join(20)
        proxied.proxy.heal()
        producer.flush()
        report = producer.take_report()
    assert report.retries > 3
    rows = read_topic(proxied.bootstrap_servers, topic, timeout=120)
    assert len(rows) == ROWS
    for partition in range(PARTITIONS):
        inside = [int(row.value or b"") for row in rows if row.partition == partition]
        assert inside == list(range(partition, ROWS, PARTITIONS))


def numbered(first: int) -> pa.RecordBatch:
    numbers = range(first, first + PIECE)
    partitions = pa.array([number % PARTITIONS for number in numbers], pa.int32())
    return pa.record_batch({"value": [str(number) for number in numbers], "partition": partitions})
