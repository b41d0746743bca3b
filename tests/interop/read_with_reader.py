"""A topic read by the package's own reader: what others have encoded.

Owns: the deadline. Must not know: who wrote.
"""

from __future__ import annotations

import time
from collections import Counter
from random import Random

from confluent_kafka import Producer

from spark_producer.admin import BlockingClient
from spark_producer.cli.connection_args import connection_settings
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.record.batch_v2 import batches
from spark_producer.record.codecs import Codec
from spark_producer.record.reading import ConsumerRecord, read_records, single_records
from tests.interop.generated_batches import rows_of_any_shape

SECONDS = 60.0


def read_with_reader(bootstrap: str, topic: str, expected: int) -> tuple[list[ConsumerRecord], Counter[int]]:
    """The records of partition 0, and how many batches had each codec; TimeoutError if there are fewer than expected."""
    found: list[ConsumerRecord] = []
    codecs: Counter[int] = Counter()
    deadline = time.monotonic() + SECONDS
    with BlockingClient(connection_settings(bootstrap, {"kafka.client.id": "reader"}), timeout=SECONDS) as client:
        reader = TopicReader(client, topic, from_beginning=True)
        while reader.positions[0] < expected:
            for fetched in reader.fetch():
                codecs.update(header.codec for header, _ in batches(fetched.data))
                found += [record for batch in read_records(fetched.data) for record in single_records(batch)]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} of {expected} records after {SECONDS} s")
    return found, codecs


def write_with_librdkafka(bootstrap: str, topic: str, codec: Codec, sets: int) -> list[ConsumerRecord]:
    """Write and flush `sets` sets of rows; return the records that a reader should find."""
    random = Random(33)
    wanted: list[ConsumerRecord] = []
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec.name.lower(), "linger.ms": 5}
    producer = Producer(settings | {"batch.num.messages": 150, "message.max.bytes": 10**7})
    for _ in range(sets):
        for row in rows_of_any_shape(random, 2):
            producer.produce(topic, row.value, row.key, timestamp=row.timestamp, headers=list(row.headers))
            wanted.append(ConsumerRecord(len(wanted), *row[1:]))
        assert producer.flush(SECONDS) == 0
    return wanted
