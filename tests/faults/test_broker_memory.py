"""The memory that the process of an embedded broker takes: within its budgets when the disk is stuck, and flat when nothing is.

What the operating system says of the process is compared, not what the broker counts.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_producer.broker.memory.sizes import MIB
from spark_producer.protocol import PRODUCE, messages
from tests.faults.measured_broker import BUDGETS
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until
from tests.unit.broker.batches import make_batch
from tests.unit.broker.connections.test_lifecycle import framed

pytestmark = pytest.mark.slow

SECONDS = 60.0
CONNECTIONS = 12
BATCH = 900_000
PAGE = os.sysconf("SC_PAGE_SIZE")
STANDSTILL = 2.0
"""Seconds without a byte taken, after which the broker is taken to read no more."""

SOUND_SECONDS = 60.0
SLACK = 8 * MIB
"""Maximum bytes that the allocator may keep of released frames."""


class Measured:
    """The broker's process."""

    def __init__(self, home: Path, disk: str) -> None:
        command = [sys.executable, "-m", "tests.faults.measured_broker", str(home / "data"), disk]
        self._process = ChildProcess(command, home / "broker.log")
        wait_until(
            lambda: self._process.output.read_text().endswith("\n"),
            "the broker's port",
            seconds=SECONDS,
            more=self._process.tail,
            ended=self._process.has_ended,
        )
        self.port = int(self._process.output.read_text().split()[-1])
        self.kill = self._process.kill

    @property
    def resident(self) -> int:
        """The bytes of memory of its own that it has now: files that it maps are the page cache's."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        return int(pages[1]) * PAGE


@contextmanager
def measured(home: Path, disk: str) -> Iterator[Measured]:
    """A broker with the topics `a` and `b`, which is killed in the end."""
    broker = Measured(home, disk)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    topics = [NewTopic(name, 2, 1, config={"retention.bytes": str(64 * MIB)}) for name in ("a", "b")]
    for made in admin.create_topics(topics).values():
        made.result(SECONDS)
    try:
        yield broker
    finally:
        broker.kill()


@pytest.mark.covers("PUB5")
def test_a_process_whose_disk_is_stuck_keeps_to_its_budgets(tmp_path: Path) -> None:
    data = (messages.ProducePartition(0, make_batch(1, size=BATCH)),)
    frame = framed(
        PRODUCE,
        messages.ProduceRequest(
            acks=-1, timeout_ms=600_000, topic_data=(messages.ProduceTopic("a", partition_data=data),)
        ),
    )
    with measured(tmp_path, "stuck") as broker:
        before = broker.resident
        peers = [socket.create_connection(("127.0.0.1", broker.port), SECONDS) for _ in range(CONNECTIONS)]
        sent, most = outrun(peers, frame, lambda: broker.resident)
        for peer in peers:
            peer.close()
    assert sent > CONNECTIONS * len(frame), "more was sent than one frame of each"
    assert most - before < BUDGETS + CONNECTIONS * len(frame), (
        f"{(most - before) / MIB:.1f} MiB more, {sent / MIB:.1f} sent"
    )
    print(f"{sent / MIB:.1f} MiB taken of producers, {(most - before) / MIB:.1f} MiB of memory")


def outrun(peers: list[socket.socket], frame: bytes, resident: Callable[[], int]) -> tuple[int, int]:
    """Send frames until no peer accepts any more; return the bytes sent, and the maximum resident memory meanwhile."""
    rest = dict.fromkeys(peers, b"")
    for peer in peers:
        peer.setblocking(False)
    sent, most, moved, deadline = 0, 0, time.monotonic(), time.monotonic() + SECONDS
    while time.monotonic() < moved + STANDSTILL:
        assert time.monotonic() < deadline, f"the broker took {sent / MIB:.0f} MiB, and goes on"
        for peer in select.select([], peers, [], 0.05)[1]:
            with suppress(BlockingIOError):
                count = peer.send(rest[peer] or frame)
                rest[peer] = (rest[peer] or frame)[count:]
                sent, moved = sent + count, time.monotonic()
        most = max(most, resident())
    return sent, most


@pytest.mark.campaign
def test_memory_stays_flat_below_readers_near_the_end_and_far_from_the_end(tmp_path: Path) -> None:
    with measured(tmp_path, "sound") as broker:
        address = f"127.0.0.1:{broker.port}"
        ending = threading.Event()
        counts = {"written": 0, "tail": 0, "catch-up": 0}
        load = [
            threading.Thread(target=write, args=(address, ending, counts)),
            threading.Thread(target=read, args=(address, "tail", ending, counts)),
            threading.Thread(target=read, args=(address, "catch-up", ending, counts)),
        ]
        for thread in load:
            thread.start()
        seen = []
        for _ in range(int(SOUND_SECONDS)):
            time.sleep(1)  # the interval of the samples
            seen.append(broker.resident)
        ending.set()
        for thread in load:
            thread.join(SECONDS)
    third = len(seen) // 3
    middle, end = max(seen[third : 2 * third]), max(seen[2 * third :])
    said = f"{counts}, MiB of memory by the second: {[each // MIB for each in seen]}"
    assert min(counts.values()) > 0, said
    assert end < middle + SLACK, said
    assert end - seen[0] < BUDGETS + SLACK, said
    print(said)


def write(address: str, ending: threading.Event, counts: dict[str, int]) -> None:
    producer = Producer(
        {"bootstrap.servers": address, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 1000}
    )
    while not ending.is_set():
        try:
            producer.produce("ab"[counts["written"] % 2], b"." * 2000)
            counts["written"] += 1
        except BufferError:
            producer.poll(0.05)
        if counts["written"] % 500 == 0:
            time.sleep(0.05)  # the pace of the load
    producer.flush(SECONDS)


def read(address: str, kind: str, ending: threading.Event, counts: dict[str, int]) -> None:
    """Read as a member of a group near the end of the log, or from its beginning again and again."""
    settings = {
        "bootstrap.servers": address,
        "group.id": kind,
        "auto.offset.reset": "earliest",
        "queued.max.messages.kbytes": 1024,
    }
    consumer = Consumer(settings)
    if kind == "tail":
        consumer.subscribe(["a", "b"])
    while not ending.is_set():
        if kind != "tail" and counts[kind] % 5000 < 500:
            consumer.assign([TopicPartition(topic, number, 0) for topic in ("a", "b") for number in range(2)])
        counts[kind] += sum(each.error() is None for each in consumer.consume(500, 0.2))
    consumer.close()
