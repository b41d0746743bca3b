"""Reads offset ranges: fetches from the leaders of the partitions, and decodes what arrives."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import EARLIEST, LATEST, check, offsets
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.consumer.decoding import FetchedBatches, decode
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.settings import ALL_COLUMNS, FetchSettings
from spark_producer.errors import ConnectionFailed, DataLoss, KafkaTimeout
from spark_producer.protocol import FETCH
from spark_producer.protocol.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic

ALL = frozenset(ALL_COLUMNS)
_LOGGER = logging.getLogger(__name__)


def read_ranges(
    settings: FetchSettings, ranges: Sequence[OffsetRange], columns: frozenset[str] = ALL
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield the records of `ranges` as RecordBatches, each with its topic-partition, in the order of the offsets of a partition.

    The RecordBatches have those of the columns of `RECORD_SCHEMA` that are in `columns`, in this order, and `timestamp_type`
    (int32: 0 CreateTime, 1 LogAppendTime, -1 none) if it is named. Offsets without a record, of control batches and, with
    isolation level read_committed, of aborted transactions have no row. The ranges are of different topic-partitions.

    Raises:
        DataLoss: with `fail_on_data_loss`, offsets of a range are not in the log any more; else a warning is logged, and the
            rest of the range is read.
        CorruptRecord: bytes of the log are damaged; it names topic-partition and offset.
        BrokerError, KafkaTimeout, BrokersUnreachable, ConnectionFailed, AuthenticationFailed, TlsFailed: a broker refuses, or
            there was no progress for `timeout`.
    """
    pending = {each.topic_partition: each for each in ranges if each.start < each.end}
    if not pending:
        return
    with BlockingClient(
        settings.connection, timeout=settings.timeout, timeout_option="default.api.timeout.ms"
    ) as client:
        fetcher = _Fetcher(client, settings, pending)
        while fetcher.pending:
            for fetched in fetcher.fetch():
                for batch in decode(fetched, columns, check_crcs=settings.check_crcs):
                    yield fetched.topic_partition, batch


class _Fetcher:
    """Fetches one partition after the other. `pending` holds what is left of each range."""

    def __init__(
        self, client: BlockingClient, settings: FetchSettings, pending: dict[TopicPartition, OffsetRange]
    ) -> None:
        self.pending = pending
        self._client = client
        self._settings = settings
        self._leaders: dict[TopicPartition, int] = {}
        self._failures = 0
        self._progress_at = client.clock()

    def fetch(self) -> list[FetchedBatches]:
        """Return the next batches of the first partition, none after an error that is retried."""
        wanted = next(iter(self.pending.values()))
        topic, partition = wanted.topic_partition
        try:
            leader = self._leaders.get(wanted.topic_partition)
            if leader is None:
                leader = self._client.leaders_of(topic, [partition])[partition]
                self._leaders[wanted.topic_partition] = leader
            body = FetchRequest(
                max_wait_ms=self._settings.max_wait_ms,
                min_bytes=1,
                max_bytes=self._settings.max_bytes,
                isolation_level=self._settings.isolation,
                topics=(FetchTopic(topic, (self._partition(wanted),)),),
                rack_id=self._settings.client_rack,
            )
            response = self._client.request(FETCH, body, node=leader)
        except (ConnectionFailed, KafkaTimeout):
            self._retry(wanted.topic_partition)
            return []
        check(response.error_code, str(wanted.topic_partition))
        rows = (row for topic in response.responses for row in topic.partitions)
        row = next(rows, FetchPartitionResponse(partition, Code.NETWORK_EXCEPTION))
        return self._accept(wanted, row)

    def _partition(self, wanted: OffsetRange) -> FetchPartition:
        return FetchPartition(
            partition=wanted.topic_partition.partition,
            fetch_offset=wanted.start,
            partition_max_bytes=self._settings.partition_bytes,
        )

    def _accept(self, wanted: OffsetRange, row: FetchPartitionResponse) -> list[FetchedBatches]:
        if row.error_code == Code.OFFSET_OUT_OF_RANGE:
            self._lost(wanted)
        elif row.error_code and Action.RETRY in Code(row.error_code).action:
            self._retry(wanted.topic_partition)
        else:
            check(row.error_code, str(wanted.topic_partition))
            fetched = FetchedBatches.from_response(wanted, row)
            if fetched.next_offset > wanted.start:
                self._failures, self._progress_at = 0, self._client.clock()
                self._advance(wanted, fetched.next_offset)
                return [fetched]
            self._check_progress(wanted.topic_partition)
        return []

    def _advance(self, wanted: OffsetRange, position: int) -> None:
        del self.pending[wanted.topic_partition]
        if position < wanted.end:
            self.pending[wanted.topic_partition] = wanted._replace(start=position)

    def _retry(self, topic_partition: TopicPartition) -> None:
        self._leaders.pop(topic_partition, None)
        self._check_progress(topic_partition)
        self._client.pause(self._client.retry_backoff.delay(self._failures))
        self._failures += 1

    def _check_progress(self, topic_partition: TopicPartition) -> None:
        if self._client.clock() - self._progress_at > self._settings.timeout:
            raise KafkaTimeout(
                f"reading {topic_partition} failed: no records arrived within {self._settings.timeout:g} s. "
                "What to do: see whether the brokers run, or raise kafka.default.api.timeout.ms."
            )

    def _lost(self, wanted: OffsetRange) -> None:
        """Handle a range of which a part is not in the log."""
        topic, partition = wanted.topic_partition
        start = offsets(self._client, topic, EARLIEST, [partition])[partition]
        end = offsets(self._client, topic, LATEST, [partition])[partition]
        text = (
            f"reading {wanted.topic_partition}, offsets {wanted.start} to {wanted.end}, failed: the log has offsets {start} to "
            f"{end}. What to do: raise the topic's retention, or set failOnDataLoss to false to read what is left."
        )
        if self._settings.fail_on_data_loss:
            raise DataLoss(text)
        _LOGGER.warning("%s", text)
        self._advance(wanted, start if wanted.start < start else wanted.end)
