"""Records written by kafka-python, and the check that they are all there, as written.

Owns: the shape of these records. Must not know: which broker keeps them.
"""

from __future__ import annotations

from kafka import KafkaProducer

from tests.support.read_back import Client, read_topic

CLIENTS: list[Client] = ["kafka-python", "confluent"]
FIRST_TIMESTAMP = 1_356_998_400_000


def write_with_kafka_python(bootstrap: str, topic: str, count: int, partitions: int) -> None:
    """Write `count` records round robin, some without key, some without value."""
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    try:
        for number in range(count):
            producer.send(
                topic,
                key=None if number % 5 == 1 else b"key-%d" % number,
                value=None if number % 10 == 0 else b"value-%d" % number,
                headers=[("number", b"%d" % number), ("empty", b"")],
                partition=number % partitions,
                timestamp_ms=FIRST_TIMESTAMP + number,
            )
        producer.flush(timeout=30)
    finally:
        producer.close()


def assert_written(bootstrap: str, topic: str, client: Client, count: int, partitions: int) -> None:
    """Assert that the topic holds what `write_with_kafka_python` wrote, in order, exactly once."""
    rows = read_topic(bootstrap, topic, client=client, expected=count)
    by_number = {int(row.headers[0][1] or b""): row for row in rows}
    assert sorted(by_number) == list(range(count))
    for number, row in by_number.items():
        assert row.partition == number % partitions
        assert row.offset == number // partitions
        assert row.timestamp_ms == FIRST_TIMESTAMP + number
        assert row.key == (None if number % 5 == 1 else b"key-%d" % number)
        assert row.value == (None if number % 10 == 0 else b"value-%d" % number)
        assert row.headers[1] == ("empty", b"")
