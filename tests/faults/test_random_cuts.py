"""Connections cut at random between request and response, under an idempotent producer: every row once, in order. SN14, SN26."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_producer import Producer
from spark_producer.producer import parts_of
from tests.conftest import BROKERS, ProxiedBroker
from tests.support.read_columns import read_columns

pytestmark = pytest.mark.slow
PRODUCE = 0
ROWS, PIECE, PARTITIONS = 2_000_000, 20_000, 3
SHARE = 0.1
"""Fraction of the requests at which a connection is cut."""


@pytest.mark.covers("SN14", "SN26")
@pytest.mark.parametrize("proxied", BROKERS, indirect=True)
def test_random_cuts_lose_and_double_nothing(proxied: ProxiedBroker, topic: str) -> None:
    proxied.create_topic(topic, PARTITIONS)
    options: dict[str, object] = {
        "bootstrap.servers": proxied.bootstrap_servers,
        "linger.ms": 5,
        "batch.size": 8192,
        "retry.backoff.ms": 5,
        "reconnect.backoff.ms": 5,
        "reconnect.backoff.max.ms": 50,
    }
    with Producer(options) as producer:
        producer.send_batch(numbered(0), topic=topic)
        producer.flush()
        proxied.proxy.cut_at_random(PRODUCE, SHARE, seed=4)
        for first in range(PIECE, ROWS, PIECE):
            producer.send_batch(numbered(first), topic=topic)
        producer.flush()
        report = parts_of(producer).take_report()
    proxied.proxy.heal()
    assert (report.records, report.retries > 100) == (ROWS, True)
    found = read_columns(proxied.bootstrap_servers, topic)
    for partition in range(PARTITIONS):
        inside = pc.cast(pc.cast(found[partition]["value"], pa.string()), pa.int64()).to_numpy()
        assert np.array_equal(inside, np.arange(partition, ROWS, PARTITIONS))
        assert np.array_equal(found[partition]["offset"].to_numpy(), np.arange(len(inside)))


def numbered(first: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + PIECE)
    return pa.record_batch(
        {
            "value": pc.cast(pa.array(numbers), pa.string()),
            "partition": pa.array((numbers % PARTITIONS).astype(np.int32)),
        }
    )
