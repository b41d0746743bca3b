"""Sends single records: from the arguments of `Producer.send` to an open batch.

Its cost is paid for every record. So work that is the same for all records of a topic is done once, and only two objects are
created for a record: the record and its future.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_producer.accumulator import Callback, RecordAccumulator, RecordFuture
from spark_producer.common.cluster import Cluster, TopicPartition
from spark_producer.config import ProducerConfig
from spark_producer.config.control_topics import is_control_topic, refusal
from spark_producer.errors import BufferExhausted, RecordError
from spark_producer.metrics import ProducerMetrics
from spark_producer.partitioner import Partitioner, TopicPartitions
from spark_producer.producer.checks import with_connection_reason
from spark_producer.producer.metadata_wait import MetadataWaiter
from spark_producer.producer.record_size import max_record_bytes, too_large
from spark_producer.record.send_arguments import Field, Header, as_columns, read_record
from spark_producer.sender import Metadata

_DescribedTopics = dict[str, tuple[TopicPartitions, list[TopicPartition]]]
"""The topics by name, each with a `TopicPartition` for each of its partitions."""


class SingleRecords:
    """Queues single records. It is thread-safe."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        topics: MetadataWaiter,
        partitioner: Partitioner,
        events: ProducerMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._largest = max_record_bytes(config)
        self._max_block = config.max_block_ms / 1000
        self._accumulator = accumulator
        self._metadata = metadata
        self._topics = topics
        self._partitioner = partitioner
        self._events = events
        self._clock = clock
        self._snapshot: tuple[Cluster, _DescribedTopics] = (metadata.cluster, {})
        """a snapshot of the cluster and its described topics, which are replaced together, so that no lock is needed"""

    def send(
        self,
        topic: str,
        value: Field,
        key: Field,
        headers: Sequence[Header],
        timestamp_ms: int,
        partition: int | None,
        on_delivery: Callback | None,
    ) -> RecordFuture:
        """Queue one record; see `Producer.send`."""
        now = self._clock()
        record, requested = read_record(topic, value, key, headers, partition, timestamp_ms)
        if record.size > self._largest:
            too_large(as_columns(topic, record), self._config).raise_first()
        described, topic_partitions = self._find(topic, requested, now)
        chosen = self._partitioner.assign_one(described, record, requested)
        try:
            future = self._accumulator.append_one(topic_partitions[chosen], record, on_delivery, now + self._max_block)
        except BufferExhausted as error:
            raise with_connection_reason(error, self._topics.last_error) from None
        for name, number, size in self._partitioner.take_full():
            self._accumulator.close_full(TopicPartition(name, number), size)
        self._events.record_accepted(record.size, now)
        return future

    def _find(self, topic: str, requested: int, now: float) -> tuple[TopicPartitions, list[TopicPartition]]:
        """Return a topic and its topic-partitions; wait if the topic or the partition is not known yet."""
        cluster = self._metadata.cluster
        snapshot, known = self._snapshot
        if cluster is snapshot:
            found = known.get(topic)
            if found is not None and requested < found[0].partition_count:
                self._metadata.use(topic, now)
                return found
        if is_control_topic(topic):
            raise RecordError(refusal(topic))
        (described,) = self._topics.find({topic: requested}, now + self._max_block)
        found = described, [TopicPartition(topic, number) for number in range(described.partition_count)]
        if self._metadata.cluster is cluster:  # otherwise it may be described from another snapshot
            if cluster is not snapshot:
                known = {}
                self._snapshot = cluster, known
            known[topic] = found
        return found
