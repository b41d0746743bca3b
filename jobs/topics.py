"""Reading back of the quickstart's topics: counts of records, and some samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.cli.record_text import format_record
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.record.batch_v2 import batches, check_crc
from spark_producer.record.reading import read_records, single_records

SAMPLES = 3


class ReadBack(NamedTuple):
    """The contents of a topic.

    `ranges` maps each partition to its first offset, the offset after its last one, and its number of records. `sample` has
    lines of text.
    """

    ranges: Mapping[int, tuple[int, int, int]]
    bytes: int
    sample: list[str]

    @property
    def records(self) -> int:
        """The number of records in all partitions."""
        return sum(records for _, _, records in self.ranges.values())


def count_distinct(client: BlockingClient, topic: str, isolation: IsolationLevel) -> tuple[int, int]:
    """Return the number of records, and of distinct ones, that a reader with this isolation level sees up to the present end.

    Raises:
        CorruptRecord: a batch is damaged.
    """
    ends = offsets(client, topic, isolation_level=isolation)
    reader = TopicReader(client, topic, from_beginning=True, isolation=isolation)
    count, seen = 0, set[int]()
    while any(reader.positions[partition] < end for partition, end in ends.items()):
        for fetched in reader.fetch():
            for rows in read_records(fetched.data, aborted=fetched.aborted):
                count += rows.num_rows
                seen.update(map(hash, rows.column("value").to_pylist()))
    return count, len(seen)


def read_back(
    client: BlockingClient, topic: str, starts: Mapping[int, int], on_count: Callable[[int], None]
) -> ReadBack:
    """Fetch all records from `starts` to the present end. Check the CRC of every batch, count its records and decode a few.

    Raises:
        CorruptRecord: a batch is damaged.
    """
    reader = TopicReader(client, topic)
    ends = dict(reader.positions)
    reader.positions = dict(starts)
    counts = dict.fromkeys(ends, 0)
    size, sample = 0, list[str]()
    while any(reader.positions[partition] < end for partition, end in ends.items()):
        for fetched in reader.fetch():
            partition = fetched.topic_partition.partition
            for header, batch in batches(fetched.data):
                check_crc(header, batch)
                counts[partition] += header.records_count
                size += header.size
                if len(sample) < SAMPLES:
                    first = itertools.islice(read_records(batch), 1)
                    sample += [format_record(partition, next(single_records(rows.slice(0, 1)))) for rows in first]
        on_count(sum(counts.values()))
    return ReadBack({each: (starts[each], ends[each], counts[each]) for each in ends}, size, sample)
