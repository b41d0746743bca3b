"""The records of a topic, read by foreign clients.

Owns: reading all partitions from the beginning to the end with kafka-python or confluent-kafka, with a deadline.
Must not know: the package under test, nor Spark (`read_spark`), nor librdkafka before it is asked for (`read_confluent`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

Client = Literal["kafka-python", "confluent"]
READ_SECONDS = 60.0


class Row(NamedTuple):
    """One record as a foreign client sees it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read_topic(
    bootstrap: str,
    topic: str,
    *,
    client: Client = "kafka-python",
    expected: int | None = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    timeout: float = READ_SECONDS,
    **settings: Any,
) -> list[Row]:
    """Read the whole topic, ordered by partition and offset.

    `expected` is asserted. `settings` go to the client (security, for example), in the client's own spelling.
    Raises TimeoutError when the end is not reached within `timeout` seconds.
    """
    if client == "confluent":
        from tests.support.read_confluent import read_confluent as read
    else:
        read = _read_kafka_python
    deadline = Deadline(timeout, f"reading {topic} with {client}")
    rows = sorted(read(bootstrap, topic, isolation, deadline, settings), key=lambda row: (row.partition, row.offset))
    if expected is not None and len(rows) != expected:
        counts = dict(Counter(row.partition for row in rows))
        raise AssertionError(f"{len(rows)} records in {topic} instead of {expected}; by partition: {counts}")
    return rows


class Deadline:
    """An end to waiting, and what is said if it comes."""

    def __init__(self, seconds: float, what: str) -> None:
        self._end = time.monotonic() + seconds
        self._seconds, self._what = seconds, what

    def check(self, state: str) -> None:
        """Raise TimeoutError once the time is over."""
        if time.monotonic() > self._end:
            raise TimeoutError(f"{self._what} took longer than {self._seconds:.0f} s; {state}")


def _read_kafka_python(
    bootstrap: str, topic: str, isolation: str, deadline: Deadline, settings: dict[str, Any]
) -> Iterator[Row]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        enable_auto_commit=False,
        group_id=None,
        isolation_level=isolation,
        check_crcs=True,
        **settings,
    )
    try:
        numbers = consumer.partitions_for_topic(topic)
        if not numbers:
            raise AssertionError(f"there is no topic {topic} at {bootstrap}")
        partitions = [KafkaPythonPartition(topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while unread := [partition for partition in partitions if consumer.position(partition) < ends[partition]]:
            deadline.check(f"not at the end of {unread}")
            for records in consumer.poll(timeout_ms=200).values():
                for record in records:
                    yield Row(
                        topic,
                        record.partition,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        list(record.headers),
                    )
    finally:
        consumer.close()
