"""The plan of a read over ten thousand partitions of a real broker: few requests, and little memory on the driver."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from spark_producer.config.source_parsing import parse_source_options
from spark_producer.datasource.read.driver.batch_plan import plan_batch
from spark_producer.datasource.read.driver.stream_offsets import StreamOffsets
from spark_producer.datasource.read.pushed_filters import PushedFilters
from spark_producer.datasource.read.source_settings import SourceSettings
from tests.conftest import ProxiedBroker
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, jvm_options
from tests.support.proxy import Direction, FaultProxy

TOPICS, PARTITIONS = 10, 1000
FILLED = 2000
"""Partitions with a record."""
SMALL = {"log.index.size.max.bytes": "4096", "log.segment.bytes": "1048576", "num.io.threads": "4"}
LIST_OFFSETS, METADATA = 2, 3
MAX_BYTES = 30_000_000
"""Maximum bytes of Python objects while the driver plans; 7.5 million were seen."""


@pytest.fixture(scope="module")
def crowded() -> Iterator[ProxiedBroker]:
    """A node with ten thousand partitions, behind a proxy that counts requests."""
    jvm = ["-Xmx1g" if each.startswith("-Xmx") else each for each in jvm_options(KAFKA_4)]
    with (
        FaultProxy() as proxy,
        KafkaCluster(KAFKA_4, settings=SMALL, advertised_ports=[proxy.port], jvm=jvm) as cluster,
    ):
        proxy.target = (proxy.host, cluster.ports[1].client)
        for number in range(TOPICS):
            cluster.create_topic(f"crowd-{number}", PARTITIONS)
        producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 100, "log_level": 0})
        for number in range(FILLED):
            producer.produce(f"crowd-{number % TOPICS}", f"{number}", partition=number // TOPICS)
            producer.poll(0)
        assert producer.flush(120) == 0
        yield ProxiedBroker(proxy, cluster)


def settings(broker: ProxiedBroker, **options: str) -> SourceSettings:
    config, source, _ = parse_source_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": "crowd-.*"} | options
    )
    return SourceSettings(config, source)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.covers("RD11", "RD21")
def test_a_plan_takes_few_requests_and_little_memory(crowded: ProxiedBroker) -> None:
    def measured(call: Any) -> tuple[Any, Counter[int], int]:
        crowded.proxy.requests.clear()
        crowded.proxy.received.clear()
        began = time.monotonic()
        tracemalloc.start()
        try:
            result = call()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        seconds, received = time.monotonic() - began, crowded.proxy.received[Direction.TO_CLIENT]
        print(
            f"{TOPICS * PARTITIONS} partitions: {seconds:.2f} s traced, {dict(crowded.proxy.requests)} requests by API, "
            f"{received / 1e6:.1f} MB received, {peak / 1e6:.1f} MB of Python objects at most"
        )
        return result, Counter(crowded.proxy.requests), peak

    tasks, requests, peak = measured(lambda: plan_batch(settings(crowded), PushedFilters()))
    assert sum(each.end - each.start for task in tasks for each in task.ranges) == FILLED
    assert len(tasks) < 400
    assert requests[LIST_OFFSETS] == 2, "starts and ends, for the only leader"
    assert requests[METADATA] <= 3
    assert peak < MAX_BYTES

    stream = StreamOffsets(settings(crowded, startingOffsets="earliest"))
    try:
        start, _, _ = measured(stream.initial)
        end, requests, peak = measured(lambda: stream.next_ends(start, limited=False))
        assert sum(end.offsets[each] - start.offsets[each] for each in end.offsets) == FILLED
        assert requests[LIST_OFFSETS] <= 2
        assert peak < MAX_BYTES
        again, requests, _ = measured(lambda: stream.next_ends(end, limited=False))
        assert again == end
        assert requests.total() <= 3, "a micro-batch asks for metadata and ends"
    finally:
        stream.close()
