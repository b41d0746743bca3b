"""The reader of a topic as it grows, for `pyproducer tail` and for tools that count the batches of a log.

`read_ranges` ends at a known offset; this reader waits at the broker for the next record. It reads without a consumer group. With
isolation level read_uncommitted, the default as in Kafka's console consumer, it returns records of open and aborted transactions
too; with read_committed only those of committed transactions and of no transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.offsets import check, offsets
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.consumer.decoding import FetchedBatches, decode
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.protocol import FETCH
from spark_producer.protocol.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
)
from spark_producer.record.decoded_columns import RECORD_SCHEMA
from spark_producer.record.reading import ConsumerRecord, single_records

PARTITION_BYTES = 4 << 20
REQUEST_BYTES = 32 << 20
"""Maximum bytes of a Fetch response, for a partition and in all, unless its first batch is larger."""

END = (1 << 63) - 1
"""The end of the offset range that is read: after every offset."""

COLUMNS = frozenset(RECORD_SCHEMA.names)


class TopicReader:
    """Reads partitions of one topic. `positions` are the next offsets to read; set them to move the reader.

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
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
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
        """The partitions in the order of the next fetch: the broker returns a batch of the first whatever its size (KIP-74)."""
        self._moved: list[int] = []
        """The partitions whose leader must be looked up again."""
        self._failures = 0
        """The number of successive fetches in which a broker has refused a partition."""

    def fetch(self, max_wait_ms: int = 500) -> list[FetchedBatches]:
        """Return the next batches of all partitions, in any order; none after `max_wait_ms` without records at each leader.

        Raises:
            CorruptRecord: the bytes from the broker are not batches.
            BrokerError, BrokersUnreachable, KafkaTimeout, ConnectionFailed: the broker refuses, or cannot be reached.
        """
        found: list[FetchedBatches] = []
        by_leader: dict[int, list[int]] = {}
        for partition in self._order:
            by_leader.setdefault(self._leaders[partition], []).append(partition)
        for leader, partitions in by_leader.items():
            for response in self._fetch_from(leader, partitions, 0 if found else max_wait_ms):
                found += self._accept(response, first=response.partition_index == partitions[0])
        if self._moved:
            self._back_off()
            self._leaders |= self._client.leaders_of(self._topic, self._moved)
            self._moved = []
        elif found:
            self._failures = 0
        return found

    def records(self, max_wait_ms: int = 500) -> Iterator[tuple[int, ConsumerRecord]]:
        """Yield (partition, record) for each record of the next fetch.

        Raises: as `fetch`; `CorruptRecord` also for damage inside a batch.
        """
        for fetched in self.fetch(max_wait_ms):
            for batch in decode(fetched, COLUMNS, check_crcs=True):
                for record in single_records(batch):
                    yield fetched.topic_partition.partition, record

    def _fetch_from(self, leader: int, partitions: list[int], max_wait_ms: int) -> list[FetchPartitionResponse]:
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
            topics=(FetchTopic(self._topic, partitions=wanted),),
        )
        response = self._client.request(FETCH, body, node=leader)
        check(response.error_code, f"topic {self._topic!r}")
        rows = (row for topic in response.responses if topic.topic == self._topic for row in topic.partitions)
        known = set(partitions)
        return [row for row in rows if row.partition_index in known]  # a broker may return more than was requested

    def _accept(self, response: FetchPartitionResponse, *, first: bool) -> list[FetchedBatches]:
        partition = response.partition_index
        if response.error_code:
            self._recover(partition, response.error_code)
            return []
        wanted = OffsetRange(TopicPartition(self._topic, partition), self.positions[partition], END)
        fetched = FetchedBatches.from_response(wanted, response, first=first)
        self.positions[partition] = fetched.next_offset
        # A partition whose batch did not fit goes to the start of the next fetch; any other to its end.
        del self._order[partition]
        if response.records and not fetched.data:
            self._order = {partition: None} | self._order
        else:
            self._order[partition] = None
        return [fetched] if fetched.data else []

    def _recover(self, partition: int, code: int) -> None:
        """After the error of a partition, go to the start of its log, or have its leader looked up, or raise the error."""
        if code == Code.OFFSET_OUT_OF_RANGE:  # retention removed the next records, or the topic was recreated
            wanted = self.positions[partition]
            self.positions |= offsets(self._client, self._topic, EARLIEST, [partition])
            if self.positions[partition] == wanted:  # the broker contradicts itself, so do not retry at once
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
