"""Records of every kind for the embedded broker's tests, and the clients of others that write them.

Owns: what the records are. Must not know: the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.support.read_back import Client, Row, read_topic

CLIENTS: list[Client] = ["kafka-python", "confluent"]
SECONDS = 30.0
FIRST_TIMESTAMP = 1_356_998_400_000


class Record(NamedTuple):
    """A record before it has an offset."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def records_of_every_kind(partitions: int, count: int = 60, writer: Client = "confluent") -> list[Record]:
    """Null and empty keys and values, headers (also twice the same, empty and null), timestamps that go back.

    kafka-python writes no null header values, and no record with neither key nor value: it gets none of these.
    """
    nothing = None if writer == "confluent" else b"nothing"
    keys = (None, b"", b"key", bytes(range(256)))
    values = (b"value", b"", None, b"\xff" * 3000)
    headers: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
        (),
        (("a", b"1"), ("a", b"2")),
        (("ü", b""), ("none", nothing)),
    )
    records = [
        Record(
            number % partitions,
            FIRST_TIMESTAMP + (number * 7919) % 1000,
            keys[number % len(keys)],
            values[(number // 4) % len(values)],
            headers[number % len(headers)],
        )
        for number in range(count)
    ]
    if writer == "confluent":
        return records
    return [record for record in records if record.key is not None or record.value is not None]


def write(client: Client, bootstrap: str, topic: str, records: Sequence[Record], **settings: Any) -> None:
    """Write `records` with acks=all; `settings` in the client's own spelling. Returns when all are acknowledged."""
    if client == "kafka-python":
        _write_kafka_python(bootstrap, topic, records, settings)
    else:
        _write_confluent(bootstrap, topic, records, settings)


def _write_kafka_python(bootstrap: str, topic: str, records: Sequence[Record], settings: dict[str, Any]) -> None:
    producer = KafkaProducer(**{"bootstrap_servers": bootstrap, "acks": "all", **settings})
    try:
        futures = [
            producer.send(
                topic,
                partition=record.partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        for future in futures:
            future.get(SECONDS)
    finally:
        producer.close(SECONDS)


def _write_confluent(bootstrap: str, topic: str, records: Sequence[Record], settings: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **settings})
    produce_confluent(producer, topic, records)


def produce_confluent(producer: Producer, topic: str, records: Sequence[Record]) -> None:
    """Write with a producer that goes on living."""
    failures = []
    for record in records:
        producer.produce(
            topic,
            partition=record.partition,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS) == 0, "not everything was acknowledged in time"
    assert failures == []


def read(client: Client, bootstrap: str, topic: str) -> list[Row]:
    """The whole topic, by partition and offset."""
    return read_topic(bootstrap, topic, client=client, timeout=SECONDS)


def assert_holds(rows: Sequence[Row], records: Sequence[Record]) -> None:
    """Each partition holds its records, in the order of writing, at offsets 0, 1, 2 ..."""
    for partition in {record.partition for record in records} | {row.partition for row in rows}:
        written = [record for record in records if record.partition == partition]
        found = [row for row in rows if row.partition == partition]
        assert [row.offset for row in found] == list(range(len(written)))
        assert [
            Record(row.partition, row.timestamp_ms, row.key, row.value, tuple(row.headers)) for row in found
        ] == written
