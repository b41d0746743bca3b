"""A client that costs little: its requests are bytes that were made before, and of the answers it reads what it must."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import deque
from typing import Any, Final, NamedTuple, Self

from spark_producer.kernel.varint import encode_varint
from spark_producer.protocol import CREATE_TOPICS, FETCH, PRODUCE, Api, decode_response, encode_request, messages
from spark_producer.record.batch_v2 import HEADER_SIZE, write_header

TOPIC: Final = "t"
IN_FLIGHT: Final = 5
DEADLINE_S: Final = 60.0
_AROUND_VALUE: Final = 5
"""The bytes of a record without key, headers, lengths and value."""


def full_batch(size: int) -> memoryview:
    """Return a batch of `size` bytes, or a byte or two less, with one record."""
    value = random.Random(size).randbytes(size - HEADER_SIZE - 2 * len(encode_varint(size)) - _AROUND_VALUE)
    record = b"\0\0\0\x01" + encode_varint(len(value)) + value + b"\0"  # attributes, deltas, no key; no headers
    batch = memoryview(bytearray(HEADER_SIZE) + encode_varint(len(record)) + record)
    write_header(batch, records_count=1, base_timestamp=0, max_timestamp=0)
    return batch.toreadonly()


class Client:
    """One blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(4 << 20))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        """Send a whole request."""
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """Return the next answer, which is valid until the next one is received."""
        self._fill(4)
        (size,) = struct.unpack_from(">i", self._buffer)
        self._fill(size)
        return self._buffer[:size]

    def _fill(self, size: int) -> None:
        done = 0
        while done < size:
            count = self._socket.recv_into(self._buffer[done:size])
            if not count:
                raise ConnectionError("the broker closed the connection")
            done += count


def framed(api: Api[Any, Any], body: Any) -> bytes:
    """Return a request as bytes."""
    return b"".join(encode_request(api, api.max_version, 1, "bench", body))


def create_topic(port: int, partitions: int) -> None:
    """Make the topic."""
    wanted = messages.CreatableTopic(TOPIC, partitions, 1)
    with Client(port) as client:
        client.send(framed(CREATE_TOPICS, messages.CreateTopicsRequest((wanted,), 30_000)))
        (made,) = decode_response(CREATE_TOPICS, CREATE_TOPICS.max_version, client.receive())[1].topics
    if made.error_code:
        raise RuntimeError(f"the topic was not made: error {made.error_code}")


class Waits(NamedTuple):
    """The time of a producer altogether, and until each of its batches was acknowledged, in seconds."""

    seconds: float
    each: list[float]


def produce(port: int, partition: int, size: int, count: int, in_flight: int = IN_FLIGHT) -> Waits:
    """Write `count` batches of about `size` bytes with acks=all; `in_flight` of them wait for their answers at a time.

    Raises:
        RuntimeError: a batch was refused.
    """
    data = messages.ProducePartition(partition, full_batch(size))
    frame = framed(
        PRODUCE, messages.ProduceRequest(None, -1, 30_000, (messages.ProduceTopic(TOPIC, partition_data=(data,)),))
    )
    waits, sent = [], deque[float]()
    with Client(port) as client:
        began = time.perf_counter()
        for number in range(count + in_flight):
            if number >= in_flight:
                _check_produced(client.receive())
                waits.append(time.perf_counter() - sent.popleft())
            if number < count:
                sent.append(time.perf_counter())
                client.send(frame)
        return Waits(time.perf_counter() - began, waits)


def _check_produced(answer: memoryview) -> None:
    (topic,) = decode_response(PRODUCE, PRODUCE.max_version, answer)[1].responses
    (found,) = topic.partition_responses
    if found.error_code:
        raise RuntimeError(f"a batch was refused: error {found.error_code}")


def produce_together(port: int, producers: int, size: int, count: int, in_flight: int = IN_FLIGHT) -> Waits:
    """Run `producers` producers that write `count` batches each, every one to a partition of its own."""
    found: list[Waits] = []
    threads = [
        threading.Thread(target=lambda index=index: found.append(produce(port, index, size, count, in_flight)))
        for index in range(producers)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    seconds = time.perf_counter() - began
    if len(found) < producers:
        raise RuntimeError("a producer has failed, or the broker has taken too long")
    return Waits(seconds, [wait for waits in found for wait in waits.each])


def fetch(client: Client, partition: int, offset: int, max_bytes: int) -> tuple[int, int]:
    """Read once; return the offset after the last record, and the bytes read.

    Raises:
        RuntimeError: the broker refused, or sent no whole batch.
    """
    wanted = messages.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = messages.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, topics=(messages.FetchTopic(TOPIC, partitions=(wanted,)),)
    )
    client.send(framed(FETCH, request))
    (topic,) = decode_response(FETCH, FETCH.max_version, client.receive())[1].responses
    (found,) = topic.partitions
    if found.error_code or not found.records:
        raise RuntimeError(f"nothing was read at offset {offset}: error {found.error_code}")
    records = found.records
    assert isinstance(records, memoryview)  # of the answer, not copied
    return _next_offset(records), len(records)


def _next_offset(records: memoryview) -> int:
    """Return the offset after the last batch; all batches are as large as the first one and have one record."""
    (first, length) = struct.unpack_from(">qi", records)
    return int(first) + len(records) // (int(length) + 12)
