"""The look-up of offsets at the leaders of a topic's partitions, for readers and for jobs that count records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from spark_producer.admin.client import BlockingClient
from spark_producer.common.error_codes import Action, Code
from spark_producer.common.offsets import LATEST
from spark_producer.errors import broker_error
from spark_producer.protocol import LIST_OFFSETS
from spark_producer.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

OFFSET_ATTEMPTS, OFFSET_SECONDS = 100, 10.0
"""Maximum attempts to look up offsets, and maximum seconds for all of them."""


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

    A partition without such a record has its end; with `isolation_level` 1 (read_committed) that is the last stable offset. A
    request to a broker that does not lead a partition yet, as happens just after a topic was created, is repeated for at most
    `OFFSET_SECONDS`, or the client's timeout if that is shorter.

    Raises:
        TopicNotFound: there is no such topic or partition; the request does not create it.
        BrokerError, BrokersUnreachable, KafkaTimeout, ConnectionFailed: the broker refuses, or cannot be reached.
    """
    left = _partitions(client, topic) if partitions is None else sorted(set(partitions))
    # Brokers return -1 where no record is as late. The ends are read first, so that later records are not left out.
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
    """Yield one row for each of `partitions` from their leaders; NETWORK_EXCEPTION stands for a missing row."""
    by_leader: dict[int, list[int]] = {}
    for partition, leader in client.leaders_of(topic, partitions).items():
        by_leader.setdefault(leader, []).append(partition)
    for leader, asked in by_leader.items():
        wanted = tuple(ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in asked)
        body = ListOffsetsRequest(isolation_level=isolation_level, topics=(ListOffsetsTopic(topic, wanted),))
        found = client.request(LIST_OFFSETS, body, node=leader).topics
        rows = {row.partition_index: row for each in found if each.name == topic for row in each.partitions}
        for each in asked:
            yield rows.get(each, ListOffsetsPartitionResponse(each, Code.NETWORK_EXCEPTION))


def _partitions(client: BlockingClient, topic: str) -> list[int]:
    response = client.metadata([topic])
    check(response.error_code, f"topic {topic!r}")
    rows = [row for row in response.topics if row.name == topic]
    check(rows[0].error_code if rows else Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}")
    return sorted(partition.partition_index for partition in rows[0].partitions)


def check(code: int, subject: str) -> None:
    """Raise the error of a response's error code for `subject`; do nothing for 0."""
    if code:
        raise broker_error(code, subject)
