"""Transactions written straight into a partition, for tests of reading, without a coordinator."""

from __future__ import annotations

from pathlib import Path

from spark_producer.broker import BrokerSettings
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.topic_store import TopicStore
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT
from tests.unit.broker.batches import make_record, sealed


class PartitionWriter:
    """Writes batches of one or more values to a partition, and keeps the epochs and sequences of its producers."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}

    def batch(self, producer_id: int, *values: bytes, transactional: bool = True) -> memoryview:
        """The next batch of this producer, which is not counted as sent; -1 means no producer id and no transaction."""
        content = b"".join(make_record(delta, b"k", value) for delta, value in enumerate(values))
        if producer_id == -1:
            return sealed(content, len(values))
        return sealed(
            content,
            len(values),
            producer_id=producer_id,
            epoch=self.epochs.setdefault(producer_id, 0),
            sequence=self.sequences.setdefault(producer_id, 0),
            attributes=TRANSACTIONAL_BIT if transactional else 0,
        )

    def write(self, producer_id: int, *values: bytes, transactional: bool = True) -> int:
        """Append the next batch of this producer; return its offset."""
        offset = self.partition.append(self.batch(producer_id, *values, transactional=transactional))
        if producer_id != -1:
            self.sequences[producer_id] += len(values)
        return offset

    def end(self, producer_id: int, *, commit: bool, raise_epoch: bool = False) -> int:
        """Write the marker; return its offset."""
        if raise_epoch:
            self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
            self.sequences[producer_id] = 0
        return self.partition.write_marker(producer_id, self.epochs.setdefault(producer_id, 0), commit, 0, now_ms=1000)


def write_transactions(path: Path, topic: str, settings: BrokerSettings | None = None) -> list[bytes]:
    """Make a data directory for a broker, with a topic of one partition whose transactions were committed, aborted and left open.

    Return the values that readers of committed records see.
    """
    store = TopicStore(path, settings or BrokerSettings())
    writer = PartitionWriter(store.create(topic, 1).partitions[0])
    writer.write(-1, b"plain 1")
    writer.write(1, b"committed 1", b"committed 2")
    writer.write(2, b"aborted 1")
    writer.write(1, b"committed 3")
    writer.end(1, commit=True)
    writer.write(-1, b"plain 2")
    writer.end(2, commit=False, raise_epoch=True)
    writer.write(2, b"committed 4")
    writer.write(3, b"aborted 2")
    writer.end(2, commit=True)
    writer.end(3, commit=False)
    writer.write(1, b"open")
    writer.write(-1, b"plain 3, after the open transaction")
    store.close()
    return [b"plain 1", b"committed 1", b"committed 2", b"committed 3", b"plain 2", b"committed 4"]
