"""The records of a topic as Arrow columns, millions of records in a second or two, for checks over whole columns.

Owns: reading every partition to the end that a client of others names, the package's own reader, a deadline.
Must not know: what a test expects of the records.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from spark_producer.admin import BlockingClient
from spark_producer.cli.connection_args import connection_settings
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.record.reading import read_records
from tests.support.read_confluent import end_offsets

SECONDS = 120.0


def read_columns(bootstrap: str, topic: str) -> dict[int, Any]:
    """Partition → Arrow table of its records (`RECORD_SCHEMA`), by offset; CRCs are checked.

    librdkafka says where each partition ends, so that an end which only our reader sees is an error.
    """
    ends = end_offsets(bootstrap, topic)
    found: dict[int, list[Any]] = {partition: [] for partition in ends}
    deadline = time.monotonic() + SECONDS
    with BlockingClient(connection_settings(bootstrap, {"kafka.client.id": "read-columns"}), timeout=SECONDS) as client:
        reader = TopicReader(client, topic, from_beginning=True)
        while unread := {part: at for part, at in reader.positions.items() if at < ends[part]}:
            assert time.monotonic() < deadline, f"{topic} is read up to {unread} within {SECONDS:g} s, not to {ends}"
            for fetched in reader.fetch():
                found[fetched.topic_partition.partition] += read_records(fetched.data)
    assert reader.positions == ends
    return {partition: pa.Table.from_batches(batches) for partition, batches in found.items() if batches}
