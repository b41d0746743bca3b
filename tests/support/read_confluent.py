"""The records of a topic, read and counted with librdkafka: offsets, and topics too large to hold.

Owns: confluent-kafka's consumer with a deadline, end offsets, and a summary of millions of records.
Must not know: the package under test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.support.read_back import READ_SECONDS, Deadline, Row


@dataclass
class TopicSummary:
    """Totals of a topic whose offsets are dense from 0 in every partition."""

    records: Counter[int] = field(default_factory=Counter)
    key_bytes: int = 0
    value_bytes: int = 0

    @property
    def total(self) -> int:
        """Records of all partitions."""
        return sum(self.records.values())


def end_offsets(bootstrap: str, topic: str, **settings: Any) -> dict[int, int]:
    """High watermark of every partition. `settings` go to librdkafka."""
    with _consumer(bootstrap, "read_uncommitted", settings) as consumer:
        return {partition: end for partition, (_, end) in _watermarks(consumer, topic).items()}


def count_rows(bootstrap: str, topic: str, *, transactional: bool, timeout: float = 300.0) -> int:
    """Rows that are visible: by the end offsets, or by reading what is committed, since markers have offsets too."""
    if not transactional:
        return sum(end_offsets(bootstrap, topic).values())
    deadline = Deadline(timeout, f"counting {topic}")
    with _consumer(bootstrap, "read_committed", {}) as consumer:
        return sum(1 for _ in _until_the_end(consumer, topic, deadline))


def count_and_check(bootstrap: str, topic: str, *, timeout: float = 300.0) -> TopicSummary:
    """Count millions of records without keeping them; asserts that offsets are dense (so: no transactions).

    librdkafka checks every batch's CRC. About 3 s per million records.
    """
    summary = TopicSummary()
    deadline = Deadline(timeout, f"counting {topic}")
    with _consumer(bootstrap, "read_uncommitted", {}) as consumer:
        for message in _until_the_end(consumer, topic, deadline):
            partition, offset = _known(message.partition()), _known(message.offset())
            if offset != summary.records[partition]:
                raise AssertionError(f"{topic}-{partition}: offset {offset} instead of {summary.records[partition]}")
            summary.records[partition] += 1
            summary.key_bytes += len(message.key() or b"")
            summary.value_bytes += len(message.value() or b"")
    return summary


def read_confluent(
    bootstrap: str, topic: str, isolation: str, deadline: Deadline, settings: dict[str, Any]
) -> Iterator[Row]:
    """Yield every record up to the end of now."""
    with _consumer(bootstrap, isolation, settings) as consumer:
        for message in _until_the_end(consumer, topic, deadline):
            yield Row(
                topic,
                _known(message.partition()),
                _known(message.offset()),
                message.timestamp()[1],
                message.key(),
                message.value(),
                _header_list(message),
            )


def _header_list(message: Message) -> list[tuple[str, bytes | None]]:
    # The type allows all headers of a producer; those of a consumer are always a list of pairs.
    return cast(list[tuple[str, bytes | None]], message.headers() or [])


def _until_the_end(consumer: Consumer, topic: str, deadline: Deadline) -> Iterator[Message]:
    """Every message up to the end of now, as librdkafka reports it: markers of transactions are no messages."""
    reading = {number for number, (begin, end) in _watermarks(consumer, topic).items() if end > begin}
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in reading])
    while reading:
        deadline.check(f"not at the end of partitions {sorted(reading)}")
        # Of many messages `consume` waits for the last one, up to its timeout: here only for the first.
        for message in [*consumer.consume(1, timeout=0.2), *consumer.consume(10_000, timeout=0)]:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(_known(message.partition()))
            else:
                raise AssertionError(f"reading {topic}: {error}")


def _watermarks(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    found = consumer.list_topics(topic, timeout=READ_SECONDS).topics[topic]
    if found.error is not None:
        raise AssertionError(f"there is no topic {topic}: {found.error}")
    marks: dict[int, tuple[int, int]] = {}
    for number in sorted(found.partitions):
        low_and_high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=READ_SECONDS)
        if low_and_high is None:
            raise TimeoutError(f"no watermarks of {topic}-{number} within {READ_SECONDS:.0f} s")
        marks[number] = low_and_high
    return marks


def _consumer(bootstrap: str, isolation: str, settings: dict[str, Any]) -> Consumer:
    fixed = {
        "bootstrap.servers": bootstrap,
        "group.id": "read-back",  # required by the client, unused: partitions are assigned, nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        "log_level": 3,
    }
    return Consumer({**fixed, **settings})


def _known(number: int | None) -> int:
    assert number is not None, "a received message has a partition and an offset"
    return number
