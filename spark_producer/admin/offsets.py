"""The look-up of offsets of one topic, for readers and for jobs that count records."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.partition_offsets import NO_OFFSET, find_topics, list_offsets
from spark_producer.admin.topic_leaders import missing_partition
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.common.offsets import LATEST
from spark_producer.errors import broker_error


def offsets(
    client: BlockingClient,
    topic: str,
    timestamp: int = LATEST,
    partitions: Sequence[int] | None = None,
    *,
    isolation_level: int = 0,
) -> dict[int, int]:
    """Return the first offset at or after `timestamp` (milliseconds, or EARLIEST, LATEST) of each of `partitions` (None: all).

    A partition without such a record has its end; with `isolation_level` 1 (read_committed) that is the last stable offset.

    Raises:
        TopicNotFound: there is no such topic or partition; the request does not create it. And as `find_topics`, `list_offsets`.
    """
    found = find_topics(client, [topic])
    check(Code.UNKNOWN_TOPIC_OR_PARTITION if found.missing else 0, f"topic {topic!r}")
    wanted = sorted(found.leaders if partitions is None else {TopicPartition(topic, each) for each in partitions})
    for each in wanted:
        if each not in found.leaders:
            raise missing_partition("topic", topic, each.partition, len(found.leaders))

    def at(moment: int) -> dict[TopicPartition, int]:
        return list_offsets(client, dict.fromkeys(wanted, moment), found.leaders, isolation_level=isolation_level)

    # Brokers return no offset where no record is as late. The ends are read first, so that later records are not left out.
    ends = at(LATEST) if timestamp >= 0 else {}
    first = at(timestamp)
    return {each.partition: ends[each] if first[each] == NO_OFFSET else first[each] for each in wanted}


def check(code: int, subject: str) -> None:
    """Raise the error of a response's error code for `subject`; do nothing for 0."""
    if code:
        raise broker_error(code, subject)
