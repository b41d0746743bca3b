"""Reading a topic as it grows, and showing its records to people: behind `pyproducer tail`, and for jobs that count.

Owns: positions in the partitions, fetching from their leaders, the text of a record.
Must not know: how batches are laid out (`record`), arguments and streams (`__main__`).

It reads without a group and uncommitted, so records of aborted transactions are shown too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast

import pyarrow.compute as pc

from spark_producer.errors import Action, CorruptRecord, broker_error, error_code
from spark_producer.protocol import FETCH, LIST_OFFSETS
from spark_producer.protocol.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from spark_producer.record.entries import end_of
from spark_producer.record.reading import Record, read_records, single_records
from spark_producer.tools import BlockingClient

EARLIEST, LATEST = -2, -1
"""What ListOffsets takes instead of a timestamp for the start and the end of a log."""

OFFSET_OUT_OF_RANGE = 1
NETWORK_EXCEPTION = 13
UNKNOWN_TOPIC_OR_PARTITION = 3

PARTITION_BYTES = 4 << 20
REQUEST_BYTES = 32 << 20
"""A fetch answers with at most so much, unless its first batch is larger."""

RETRY_PAUSE = 0.1
"""Seconds before a broker that does not lead a partition, or not yet, is asked again."""

OFFSET_ATTEMPTS = 100

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Fetched(NamedTuple):
    """Whole batches as they lie in the log of a partition. The first may begin before the position that was asked for."""

    partition: int
    data: memoryview


class TopicReader:
    """Reads partitions of one topic. `positions` are the next offsets to read; set them to read from elsewhere.

    `partitions`: None for all of them, as they are now. `on_reset(partition, position, start)` is called when a partition's
    next offset is not in the log, and it is read on from its start.

    Raises (constructor): as `offsets`.
    """

    def __init__(
        self,
        client: BlockingClient,
        topic: str,
        *,
        partitions: Sequence[int] | None = None,
        from_beginning: bool = False,
        pause: Callable[[float], None] = time.sleep,
        on_reset: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self._client = client
        self._pause = pause
        self._on_reset = on_reset
        self._topic = topic
        self.positions = offsets(client, topic, EARLIEST if from_beginning else LATEST, partitions)
        self._leaders = self._find_leaders()
        self._order = sorted(self.positions)
        """Partitions in the order in which they are asked for: the broker answers the first one at any size (KIP-74)."""

    def fetch(self, max_wait_ms: int = 500) -> list[Fetched]:
        """The next batches of all partitions, in any order; empty after waiting `max_wait_ms` for each leader.

        Raises:
            CorruptRecord: what the broker sent are no batches.
            BrokerError, BrokersUnreachable, KafkaTimeout, ConnectionFailed: the broker refuses, or cannot be asked.
        """
        found: list[Fetched] = []
        by_leader: dict[int, list[int]] = {}
        for partition in self._order:
            by_leader.setdefault(self._leaders[partition], []).append(partition)
        for leader, asked in by_leader.items():
            for answer in self._ask(leader, asked, 0 if found else max_wait_ms):
                found += self._accept(answer, first=answer.partition_index == asked[0])
        return found

    def records(self, max_wait_ms: int = 500) -> Iterator[tuple[int, Record]]:
        """(partition, record) of the next fetch.

        Raises:
            CorruptRecord: as `fetch` and `read_records`; names topic and partition.
        """
        positions = dict(self.positions)
        for partition, data in self.fetch(max_wait_ms):
            try:
                for batch in read_records(data):
                    first = pc.sum(pc.less(batch.column("offset"), positions[partition])).as_py() or 0
                    for record in single_records(batch.slice(first)):
                        yield partition, record
            except CorruptRecord as error:
                raise CorruptRecord(f"topic {self._topic!r}, partition {partition}: {error}") from error

    def _ask(self, leader: int, partitions: list[int], max_wait_ms: int) -> list[FetchPartitionResponse]:
        wanted = tuple(
            FetchPartition(partition=each, fetch_offset=self.positions[each], partition_max_bytes=PARTITION_BYTES)
            for each in partitions
        )
        body = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=REQUEST_BYTES,
            session_epoch=-1,
            topics=(FetchTopic(self._topic, wanted),),
        )
        answer = self._client.request(FETCH, body, node=leader)
        _check(answer.error_code, f"topic {self._topic!r}")
        rows = (row for topic in answer.responses if topic.topic == self._topic for row in topic.partitions)
        return [row for row in rows if row.partition_index in partitions]  # a broker may say more than it was asked

    def _accept(self, answer: FetchPartitionResponse, *, first: bool) -> list[Fetched]:
        partition = answer.partition_index
        if answer.error_code:
            self._recover(partition, answer.error_code)
            return []
        data = memoryview(cast(bytes, answer.records or b""))
        try:
            end, next_offset = end_of(data)
        except CorruptRecord as error:
            raise self._corrupt(partition, str(error)) from error
        if end:
            self.positions[partition] = next_offset
        elif len(data) and first:
            raise self._corrupt(partition, f"{len(data)} bytes hold no whole batch")
        # A batch that did not fit must be asked for first; else everyone's turn comes.
        self._order.remove(partition)
        self._order.insert(0 if len(data) and not end else len(self._order), partition)
        return [Fetched(partition, data[:end])] if end else []

    def _recover(self, partition: int, code: int) -> None:
        """After an error of one partition: find its leader or the start of its log anew, or raise."""
        if code == OFFSET_OUT_OF_RANGE:  # retention removed what was next, or the topic was made anew
            wanted = self.positions[partition]
            self.positions |= offsets(self._client, self._topic, EARLIEST, [partition])
            if self._on_reset is not None:
                self._on_reset(partition, wanted, self.positions[partition])
        elif Action.RETRY in error_code(code).action:
            self._pause(RETRY_PAUSE)
            self._leaders[partition] = self._client.leader_of(self._topic, partition)
        else:
            _check(code, f"topic {self._topic!r}, partition {partition}")

    def _find_leaders(self) -> dict[int, int]:
        return {partition: self._client.leader_of(self._topic, partition) for partition in self.positions}

    def _corrupt(self, partition: int, reason: str) -> CorruptRecord:
        where = f"topic {self._topic!r}, partition {partition}, offset {self.positions[partition]}"
        return CorruptRecord(f"{where}: {reason}", offset=self.positions[partition])


def offsets(
    client: BlockingClient,
    topic: str,
    timestamp: int = LATEST,
    partitions: Sequence[int] | None = None,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> dict[int, int]:
    """The first offset at or after `timestamp` (milliseconds, or EARLIEST, LATEST) of all or some `partitions`; the end of a
    partition that has no such record.

    A broker that does not yet lead a partition, as just after a topic was made, is asked again for some seconds.

    Raises:
        TopicNotFound: there is no such topic or partition; it is not created.
        BrokerError, BrokersUnreachable, KafkaTimeout, ConnectionFailed: the broker refuses, or cannot be asked.
    """
    left = _partitions(client, topic) if partitions is None else sorted(set(partitions))
    # Brokers answer -1 where no record is as late. The end is asked for first: what comes between the questions is read.
    ends = offsets(client, topic, LATEST, left, pause=pause) if timestamp >= 0 else {}
    found: dict[int, int] = {}
    for attempt in range(OFFSET_ATTEMPTS):
        refused: dict[int, int] = {}
        for row in _list_offsets(client, topic, timestamp, left):
            if row.error_code:
                refused[row.partition_index] = row.error_code
            else:
                found[row.partition_index] = ends[row.partition_index] if ends and row.offset < 0 else row.offset
        if not refused:
            break
        for partition, code in refused.items():
            if Action.RETRY not in error_code(code).action or attempt == OFFSET_ATTEMPTS - 1:
                _check(code, f"topic {topic!r}, partition {partition}")
        pause(RETRY_PAUSE)
        left = sorted(refused)
    return dict(sorted(found.items()))


def _list_offsets(
    client: BlockingClient, topic: str, timestamp: int, partitions: Sequence[int]
) -> Iterator[ListOffsetsPartitionResponse]:
    """What the leaders of `partitions` answer, one row for each of them: NETWORK_EXCEPTION for those that are left out."""
    by_leader: dict[int, list[int]] = {}
    for partition in partitions:
        by_leader.setdefault(client.leader_of(topic, partition), []).append(partition)
    for leader, asked in by_leader.items():
        wanted = tuple(ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in asked)
        body = ListOffsetsRequest(topics=(ListOffsetsTopic(topic, wanted),))
        answers = client.request(LIST_OFFSETS, body, node=leader).topics
        rows = {row.partition_index: row for answer in answers if answer.name == topic for row in answer.partitions}
        for each in asked:
            yield rows.get(each, ListOffsetsPartitionResponse(each, NETWORK_EXCEPTION))


def format_reset(partition: int, position: int, start: int) -> str:
    """What is said when reading goes on at the start of a log that does not hold `position`."""
    if start > position:
        what = f"offsets {position} to {start - 1} were removed from the log, and are skipped"
    else:
        what = f"offset {position} is not in the log: the topic was made anew, or its end was lost"
    return f"partition {partition}: {what}; reading on at {start}"


def format_record(partition: int, record: Record) -> str:
    """One line: partition, offset, time, key, value, headers."""
    parts = [
        f"{partition}:{record.offset}",
        format_timestamp(record.timestamp),
        f"key={format_bytes(record.key)}",
        f"value={format_bytes(record.value)}",
    ]
    if record.headers:
        pairs = ", ".join(f"{_printable(name)}: {format_bytes(value)}" for name, value in record.headers)
        parts.append(f"headers={{{pairs}}}")
    return "  ".join(parts)


def format_bytes(content: bytes | None) -> str:
    """UTF-8 text as it is, with control characters escaped; anything else as 0x…; None as null."""
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "0x" + content.hex()
    # Bytes that are mostly control characters are no text, even if they happen to be UTF-8.
    if sum(not (character.isprintable() or character.isspace()) for character in text) * 4 > len(text):
        return "0x" + content.hex()
    return _printable(text)


def format_timestamp(milliseconds: int) -> str:
    """Milliseconds since 1970 in UTC; the number itself where there is no such date, `no-time` for -1."""
    if milliseconds == -1:
        return "no-time"
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds}ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"


def _printable(text: str) -> str:
    """Nothing that could steer a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _partitions(client: BlockingClient, topic: str) -> list[int]:
    answer = client.metadata([topic])
    rows = [row for row in answer.topics if row.name == topic]
    _check(rows[0].error_code if rows else UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}")
    return sorted(partition.partition_index for partition in rows[0].partitions)


def _check(code: int, subject: str) -> None:
    if code:
        raise broker_error(code, subject)
