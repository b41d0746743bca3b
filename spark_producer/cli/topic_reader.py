"""The reader of a topic as it grows, for `pyproducer tail` and for jobs that read back what was written.

It reads without a consumer group. With isolation level read_uncommitted, the default as in Kafka's console consumer, it shows the
records of open and aborted transactions too; with read_committed those of committed ones alone, and of none.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.offsets import EARLIEST, LATEST, check, offsets
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import CorruptRecord
from spark_producer.kernel.arrays import numbers
from spark_producer.protocol import FETCH, decoded_records
from spark_producer.protocol.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
)
from spark_producer.record.log_entries import end_of
from spark_producer.record.reading import ConsumerRecord, read_records, single_records

PARTITION_BYTES = 4 << 20
REQUEST_BYTES = 32 << 20
"""The most bytes with which a fetch is answered, for a partition and in all, unless its first batch is larger."""


class Isolation(enum.IntEnum):
    """What a reader sees of transactions: everything at once, or what was committed."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Fetched(NamedTuple):
    """Whole batches as they are in the log of a partition. The first may begin before the position that was asked for.

    aborted: (producer id, first offset) of the transactions whose records the reader must leave out.
    """

    partition: int
    data: memoryview
    aborted: tuple[tuple[int, int], ...] = ()


class TopicReader:
    """Reads partitions of one topic. `positions` are the next offsets to read; set them to read from elsewhere.

    With `partitions` None it reads all partitions that exist now. `on_reset(partition, position, start)` is called when the next
    offset of a partition is not in the log; reading then goes on at the start of the log.

    The constructor raises what `offsets` raises.
    """

    def __init__(
        self,
        client: BlockingClient,
        topic: str,
        *,
        partitions: Sequence[int] | None = None,
        from_beginning: bool = False,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        pause: Callable[[float], None] = time.sleep,
        on_reset: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self._client = client
        self._pause = pause
        self._on_reset = on_reset
        self._topic = topic
        self._isolation = isolation
        start = EARLIEST if from_beginning else LATEST
        self.positions = offsets(client, topic, start, partitions, isolation_level=isolation)
        self._leaders = client.leaders_of(topic, self.positions)
        self._order = dict.fromkeys(sorted(self.positions))
        """The partitions in the order in which they are asked for: the broker answers the first at any size (KIP-74)."""
        self._moved: list[int] = []
        """The partitions whose leader is to be found anew."""
        self._failures = 0
        """The fetches, without a break, in which a broker has refused a partition."""

    def fetch(self, max_wait_ms: int = 500) -> list[Fetched]:
        """Return the next batches of all partitions, in any order; nothing if none come within `max_wait_ms` for each leader.

        Raises:
            CorruptRecord: the bytes that the broker sent are not batches.
            BrokerError, BrokersUnreachable, KafkaTimeout, ConnectionFailed: the broker refuses, or cannot be asked.
        """
        found: list[Fetched] = []
        by_leader: dict[int, list[int]] = {}
        for partition in self._order:
            by_leader.setdefault(self._leaders[partition], []).append(partition)
        for leader, asked in by_leader.items():
            for answer in self._ask(leader, asked, 0 if found else max_wait_ms):
                found += self._accept(answer, first=answer.partition_index == asked[0])
        if self._moved:
            self._back_off()
            self._leaders |= self._client.leaders_of(self._topic, self._moved)
            self._moved = []
        elif found:
            self._failures = 0
        return found

    def records(self, max_wait_ms: int = 500) -> Iterator[tuple[int, ConsumerRecord]]:
        """Yield (partition, record) for each record of the next fetch.

        Raises:
            CorruptRecord: as `fetch` and `read_records`; the text names the topic and partition.
        """
        positions = dict(self.positions)
        for partition, data, aborted in self.fetch(max_wait_ms):
            try:
                for batch in read_records(data, aborted=aborted):
                    first = int((numbers(batch.column("offset")) < positions[partition]).sum())
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
            isolation_level=self._isolation,
            session_epoch=-1,
            topics=(FetchTopic(self._topic, wanted),),
        )
        answer = self._client.request(FETCH, body, node=leader)
        check(answer.error_code, f"topic {self._topic!r}")
        rows = (row for topic in answer.responses if topic.topic == self._topic for row in topic.partitions)
        known = set(partitions)
        return [row for row in rows if row.partition_index in known]  # a broker may answer more than it was asked

    def _accept(self, answer: FetchPartitionResponse, *, first: bool) -> list[Fetched]:
        partition = answer.partition_index
        if answer.error_code:
            self._recover(partition, answer.error_code)
            return []
        data = decoded_records(answer.records) or memoryview(b"")
        try:
            end, next_offset = end_of(data)
        except CorruptRecord as error:
            raise self._corrupt(partition, str(error)) from error
        if end:
            self.positions[partition] = next_offset
        elif len(data) and first:
            raise self._corrupt(partition, f"{len(data)} bytes hold no whole batch")
        # A partition whose batch did not fit must be asked for first next time; any other goes to the end of the order.
        del self._order[partition]
        if len(data) and not end:
            self._order = {partition: None} | self._order
        else:
            self._order[partition] = None
        aborted = tuple((each.producer_id, each.first_offset) for each in answer.aborted_transactions or ())
        return [Fetched(partition, data[:end], aborted)] if end else []

    def _recover(self, partition: int, code: int) -> None:
        """After an error of one partition, find the start of its log anew, or note that its leader is to be found, or raise."""
        if code == Code.OFFSET_OUT_OF_RANGE:  # retention removed the next records, or the topic was made anew
            wanted = self.positions[partition]
            self.positions |= offsets(self._client, self._topic, EARLIEST, [partition])
            if self.positions[partition] == wanted:  # the broker contradicts itself
                self._back_off()
            elif self._on_reset is not None:
                self._on_reset(partition, wanted, self.positions[partition])
        elif Action.RETRY in Code(code).action:
            self._moved.append(partition)
        else:
            check(code, f"topic {self._topic!r}, partition {partition}")

    def _back_off(self) -> None:
        self._pause(self._client.retry_backoff.delay(self._failures))
        self._failures += 1

    def _corrupt(self, partition: int, reason: str) -> CorruptRecord:
        where = f"topic {self._topic!r}, partition {partition}, offset {self.positions[partition]}"
        return CorruptRecord(f"{where}: {reason}", offset=self.positions[partition])
