"""Leaders killed one after another under a write through the producer itself: every row once, in the order of its key."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.accumulator import TableMetadata
from spark_producer.producer import parts_of
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_columns import read_columns
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
ROWS, PIECE, KEYS = 3_000_000, 10_000, 1_000
NODES = 3
PARTITIONS = 2 * NODES
PART = ROWS // (NODES + 1)
"""rows after which a leader dies, the first time after half of it"""

SECONDS = 120.0
OPTIONS: dict[str, object] = {
    "batch.size": 16_384,
    "buffer.memory": 2 << 20,  # so that rows wait for acknowledgements, and not only for memory at the end
    "linger.ms": 5,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.max.ms": 200,
}


class Writing(threading.Thread):
    """The write, in a thread, as far as it `may`: half of it through `send_table`, half through `send_batch`."""

    def __init__(self, producer: Producer, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic = producer, topic
        self._may = threading.Condition()
        self.sent = self.limit = 0
        self.tables: list[Future[TableMetadata]] = []
        self.error: BaseException | None = None

    def may(self, limit: int) -> None:
        """Let it write up to this row."""
        with self._may:
            self.limit = limit
            self._may.notify()

    def wait_until(self, sent: int) -> None:
        """Wait until the writer has sent this many rows."""
        wait_until(
            lambda: self.sent >= sent,
            f"{sent} rows are handed over",
            seconds=SECONDS,
            pause=0.002,
            more=lambda: f"{self.sent} rows, {self.error!r}",
            ended=lambda: self.error is not None,
        )

    def _may_write(self, first: int) -> bool:
        return first < self.limit

    def run(self) -> None:
        try:
            for first in range(0, ROWS, PIECE):
                with self._may:
                    assert self._may.wait_for(partial(self._may_write, first), SECONDS)
                rows = numbered(first)
                if first // PIECE % 2:
                    self._producer.send_batch(rows, topic=self._topic)
                else:
                    self.tables.append(self._producer.send_table(pa.Table.from_batches([rows]), topic=self._topic))
                self.sent = first + PIECE
        except BaseException as error:
            self.error = error


def numbered(first: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + PIECE)
    return pa.record_batch({"key": text(numbers % KEYS), "value": text(numbers)})


def text(numbers: np.ndarray) -> pa.Array[pa.StringScalar]:
    found: pa.Array[pa.StringScalar] = pa.array(numbers).cast(pa.string())
    return found


def numbers_in(column: pa.ChunkedArray[Any]) -> np.ndarray:
    return column.cast(pa.string()).cast(pa.int64()).to_numpy()


def test_three_leaders_killed_in_turn_lose_and_double_nothing(kafka_three: KafkaCluster, topic: str) -> None:
    kafka_three.create_topic(topic, PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"})
    with Producer({"bootstrap.servers": kafka_three.bootstrap_servers, **OPTIONS}) as producer:
        writing = Writing(producer, topic)
        writing.start()
        for number in range(NODES):
            writing.may((number + 1) * PART)
            victim = kafka_three.partitions(topic)[number].leader
            writing.wait_until(number * PART + PART // 2)
            kafka_three.kill(victim)
            assert writing.sent < (number + 1) * PART, "the write was at rest when the leader died"
            writing.wait_until((number + 1) * PART)
            kafka_three.start(victim)
            kafka_three.wait_until_in_sync(topic)
        writing.may(ROWS)
        writing.wait_until(ROWS)
        producer.flush()
        report = parts_of(producer).take_report()
    assert (report.records, report.retries > 0) == (ROWS, True)
    assert sum(table.result(0).records for table in writing.tables) == ROWS // 2
    assert_each_row_once_in_order(kafka_three, topic)


def assert_each_row_once_in_order(cluster: KafkaCluster, topic: str) -> None:
    found = read_columns(cluster.bootstrap_servers, topic)
    numbers = {partition: numbers_in(rows["value"]) for partition, rows in found.items()}
    assert np.array_equal(np.sort(np.concatenate(list(numbers.values()))), np.arange(ROWS))
    homes: dict[int, int] = {}
    for partition, inside in numbers.items():
        assert np.array_equal(numbers_in(found[partition]["key"]), inside % KEYS)
        assert np.all(np.diff(inside) > 0), f"the order of partition {partition} changed"
        for key in np.unique(inside % KEYS):
            assert homes.setdefault(int(key), partition) == partition
    assert len(homes) == KEYS
