"""Batches that expire while their bytes are half-way to the broker: what is sent stays what was written. KAFKA-19012."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from crc32c import crc32c

from spark_producer import Producer
from spark_producer.accumulator import BufferPool
from spark_producer.errors import DeliveryTimeout
from spark_producer.network import Client
from spark_producer.producer import internals as parts_module
from spark_producer.producer import parts_of
from tests.conftest import BROKERS, ProxiedBroker
from tests.support.proxy import Direction, FaultProxy
from tests.support.read_columns import read_columns
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
PARTITIONS, ROWS, FEW = 16, 3_000, 100
PADDING = "x" * 290
"""One batch of 900 kB for each partition: more than the proxy and all socket buffers of the system hold."""

DELIVERY_SECONDS = 2.0
LEAST, MOST = 16_384, 1 << 20
"""Bytes of batches whose poison has lengths of three bytes."""


class PoisonedPool(BufferPool):
    """Overwrites each released buffer with a valid record batch, so that a request that still reads it writes poison.

    A batch that was never sent has no header, and new memory may hold that of an earlier batch: so buffers begin without one.
    """

    poisoned = 0

    def try_allocate(self, size: int) -> memoryview | None:
        buffer = super().try_allocate(size)
        return None if buffer is None else without_header(buffer)

    def allocate(self, size: int, timeout: float) -> memoryview:
        return without_header(super().allocate(size, timeout))

    def release(self, buffer: memoryview) -> None:
        size = int.from_bytes(buffer[8:12], "big") + 12
        if LEAST < size < MOST:
            buffer[:size] = poison(size)
            PoisonedPool.poisoned += 1
        super().release(buffer)


def without_header(buffer: memoryview) -> memoryview:
    buffer[8:12] = bytes(4)
    return buffer


def poison(size: int) -> bytes:
    """A V2 batch of `size` bytes: one record without key and producer id (KIP-98)."""
    value = b"POISON" + bytes(size - 61 - 11 - len("POISON"))
    record = b"\0\0\0\1" + three_bytes(len(value)) + value + b"\0"
    after_crc = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + three_bytes(len(record)) + record
    batch = struct.pack(">qiibI", 0, size - 12, -1, 2, crc32c(after_crc)) + after_crc
    assert len(batch) == size
    return batch


def three_bytes(number: int) -> bytes:
    doubled = number << 1  # zigzag
    return bytes((doubled & 127 | 128, doubled >> 7 & 127 | 128, doubled >> 14))


def rows(name: str, count: int) -> Any:
    partitions = np.repeat(np.arange(PARTITIONS, dtype=np.int32), count)
    values = [text for partition in range(PARTITIONS) for text in texts(name, partition, count)]
    return pa.record_batch({"value": values, "partition": pa.array(partitions)})


def texts(name: str, partition: int, count: int) -> list[str]:
    return [f"{name} {partition} {number} {PADDING}" for number in range(count)]


def arrives(proxy: FaultProxy) -> None:
    """The connection goes on, and the rest of the expired batches with it."""
    proxy.resume(Direction.TO_BROKER)


def is_cut(proxy: FaultProxy) -> None:
    """The connection breaks, and no request needs the buffers any more."""
    proxy.cut()
    proxy.resume(Direction.TO_BROKER)


@pytest.mark.covers("SN34")
@pytest.mark.parametrize("the_rest", [arrives, is_cut], ids=lambda rest: rest.__name__)
@pytest.mark.parametrize("proxied", BROKERS, indirect=True)
def test_buffers_of_expired_batches_are_not_reused_while_they_are_sent(
    proxied: ProxiedBroker, topic: str, the_rest: Callable[[FaultProxy], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "BufferPool", PoisonedPool)  # a producer has no say in its pool, nor should it
    PoisonedPool.poisoned = 0
    proxied.create_topic(topic, PARTITIONS)
    options = {"bootstrap.servers": proxied.bootstrap_servers, "batch.size": 1_000_000, "send.buffer.bytes": 16_384}
    with Producer({**options, "max.request.size": 4 << 20}) as producer:
        producer.send(topic, f"begin 0 0 {PADDING}", partition=0).result(30)
        accumulator, client = parts_of(producer).accumulator, parts_of(producer).client
        assert isinstance(client, Client)
        # No configuration lets a batch expire before its request does: the connection would go with it.
        accumulator.incomplete.delivery_timeout, usual = DELIVERY_SECONDS, accumulator.incomplete.delivery_timeout
        proxied.proxy.pause(Direction.TO_BROKER)
        producer.send_batch(rows("first", ROWS), topic=topic)
        wait_until(lambda: any(node.unsent for node in client._nodes), "they are being sent")
        with pytest.raises(DeliveryTimeout):
            producer.flush()
        accumulator.incomplete.delivery_timeout = usual
        assert PoisonedPool.poisoned == 0, "the network may still read these buffers"
        assert any(node.unsent for node in client._nodes), "and has not read all"
        the_rest(proxied.proxy)
        wait_until(lambda: accumulator.pool.available == accumulator.pool.total, "the buffers are back")
        flown = PoisonedPool.poisoned
        producer.send_batch(rows("second", FEW), topic=topic)
        producer.flush()
    assert flown > 1
    arrived = count_clean(proxied, topic)
    if the_rest is arrives:
        assert arrived == flown, "what has expired is written all the same, as it was"
    else:
        assert arrived <= flown


def count_clean(proxied: ProxiedBroker, topic: str) -> int:
    """Return how many partitions have the first rows: all of them or none, then the second ones; and no poison."""
    arrived = 0
    for partition, found in read_columns(proxied.bootstrap_servers, topic).items():
        values = pc.cast(found["value"], pa.string()).to_pylist()
        came = len(values) > FEW + 1
        arrived += came
        written = texts("begin", 0, 1) if partition == 0 else []
        written += texts("first", partition, ROWS) if came else []
        written += texts("second", partition, FEW)
        assert values == written, f"partition {partition}: {[value[:20] for value in values[:3]]}"
    return arrived
