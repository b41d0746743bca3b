"""The look-up of offsets by asking the leaders of a topic's partitions, for readers and for jobs that count records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from spark_producer.admin.client import BlockingClient
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import broker_error
from spark_producer.protocol import LIST_OFFSETS
from spark_producer.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

EARLIEST, LATEST = -2, -1
"""The values that ListOffsets takes instead of a timestamp for the start and the end of a log."""

OFFSET_ATTEMPTS, OFFSET_SECONDS = 100, 10.0
"""The attempts to ask for offsets, and the seconds after which none follows."""


def offsets(
    client: BlockingClient,
    topic: str,
    timestamp: int = LATEST,
    partitions: Sequence[int] | None = None,
    *,
    isolation_level: int = 0,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[int, int]:
    """Return the first offset at or after `timestamp` (milliseconds, or EARLIEST, LATEST) of each of `partitions` (None: all).

    For a partition that has no such record it is the end; with `isolation_level` 1 (read_committed) that is the beginning of the
    first open transaction, if there is one. A broker that does not yet lead a partition, as happens just after a
    topic was made, is asked again for some seconds, and no longer than the client waits for an answer.

    Raises:
        TopicNotFound: there is no such topic or partition, and it is not created.
        BrokerError, BrokersUnreachable, KafkaTimeout, ConnectionFailed: the broker refuses, or cannot be asked.
    """
    left = _partitions(client, topic) if partitions is None else sorted(set(partitions))
    # Brokers answer -1 where no record is as late. The ends are asked for first, so that records that come meanwhile are read.
    ends = offsets(client, topic, LATEST, left, isolation_level=isolation_level, pause=pause) if timestamp >= 0 else {}
    found: dict[int, int] = {}
    deadline = clock() + min(client.timeout, OFFSET_SECONDS)
    for attempt in range(OFFSET_ATTEMPTS):
        refused: dict[int, int] = {}
        for row in _list_offsets(client, topic, timestamp, left, isolation_level):
            if row.error_code:
                refused[row.partition_index] = row.error_code
            else:
                found[row.partition_index] = ends[row.partition_index] if ends and row.offset < 0 else row.offset
        if not refused:
            break
        last = attempt == OFFSET_ATTEMPTS - 1 or clock() >= deadline
        for partition, code in refused.items():
            if last or Action.RETRY not in Code(code).action:
                check(code, f"topic {topic!r}, partition {partition}")
        pause(client.retry_backoff.delay(attempt))
        left = sorted(refused)
    return dict(sorted(found.items()))


def _list_offsets(
    client: BlockingClient, topic: str, timestamp: int, partitions: Sequence[int], isolation_level: int
) -> Iterator[ListOffsetsPartitionResponse]:
    """Yield the answers of the leaders of `partitions`, one row for each; NETWORK_EXCEPTION stands for a row that is missing."""
    by_leader: dict[int, list[int]] = {}
    for partition, leader in client.leaders_of(topic, partitions).items():
        by_leader.setdefault(leader, []).append(partition)
    for leader, asked in by_leader.items():
        wanted = tuple(ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in asked)
        body = ListOffsetsRequest(isolation_level=isolation_level, topics=(ListOffsetsTopic(topic, wanted),))
        answers = client.request(LIST_OFFSETS, body, node=leader).topics
        rows = {row.partition_index: row for answer in answers if answer.name == topic for row in answer.partitions}
        for each in asked:
            yield rows.get(each, ListOffsetsPartitionResponse(each, Code.NETWORK_EXCEPTION))


def _partitions(client: BlockingClient, topic: str) -> list[int]:
    answer = client.metadata([topic])
    check(answer.error_code, f"topic {topic!r}")
    rows = [row for row in answer.topics if row.name == topic]
    check(rows[0].error_code if rows else Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}")
    return sorted(partition.partition_index for partition in rows[0].partitions)


def check(code: int, subject: str) -> None:
    """Raise the error that `code` in an answer means for `subject`; do nothing for 0."""
    if code:
        raise broker_error(code, subject)
