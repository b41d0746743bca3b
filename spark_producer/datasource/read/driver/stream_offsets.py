"""The driver of a stream: how far each micro-batch reads, and which ranges it has.

It lives as long as the query, in one process of Spark, with one connected client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from spark_producer.admin import BlockingClient
from spark_producer.admin.group_offsets import GroupOffsets
from spark_producer.admin.partition_offsets import FoundTopics
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.config.durations import duration_ms
from spark_producer.config.offset_limits import SpecificOffsets, starting_limit
from spark_producer.config.subscription import subscription
from spark_producer.consumer.lost_offsets import report_loss
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.datasource.read.driver.assignment import assigned
from spark_producer.datasource.read.driver.data_loss import within_the_log
from spark_producer.datasource.read.driver.lookup_client import connect
from spark_producer.datasource.read.driver.offset_resolution import OffsetLookup, named, starting_offsets
from spark_producer.datasource.read.driver.rate_limit import TriggerDelay, limited_ends
from spark_producer.datasource.read.driver.topic_history import TopicHistory
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.errors import PyProducerError

logger = escaping_logger("pyproducer")

Offsets = dict[TopicPartition, int]
"""The next offset to read of each topic-partition."""

NEW_CHECKPOINT = "give the query a new checkpointLocation"
"""What to do about offsets of a checkpoint that belong to an earlier topic."""

LOOKUP_ATTEMPTS, LOOKUP_SECONDS = 3, 1.0
"""Look-ups before topic-partitions count as gone, or offsets as gone backwards, and seconds between them, as in Spark's source: a
broker may not know a topic yet, nor a leader that was just elected the end of its log."""

COMMIT_SECONDS = 10.0
"""Maximum seconds for committing offsets to `commitGroup`, for which a micro-batch waits."""


class StreamOffsets:
    """The offsets of one stream. It connects at the first call."""

    def __init__(
        self,
        settings: SourceSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        connect: Callable[[SourceSettings], BlockingClient] = connect,
    ) -> None:
        self._settings = settings
        self._source = settings.source
        self._subscription = subscription(settings.source)
        self._clock = clock
        self._connect = connect
        self._client: BlockingClient | None = None
        self._group: GroupOffsets | None = None
        self._committed: Offsets | None = None
        """The offsets of the last commit to `commitGroup`."""
        self._history = TopicHistory()
        self._delay: TriggerDelay | None = None
        if settings.source.min_offsets_per_trigger is not None:
            delay = duration_ms("maxTriggerDelay", settings.source.max_trigger_delay) / 1000
            self._delay = TriggerDelay(settings.source.min_offsets_per_trigger, delay)
        self._is_available_now = False
        self._last_ends: Offsets | None = None
        """With the trigger availableNow: the offsets at which the query ends."""
        self.latest: Offsets | None = None
        """The latest offsets of the last look-up, for the progress of the query."""

    def initial(self) -> Offsets:
        """Return the offsets at which a new query starts.

        Raises:
            TopicNotFound: a topic or partition does not exist. ConfigError: the starting point does not fit. DataLoss: with
            `failOnDataLoss`, an offset is not in the log. BrokerError, KafkaTimeout, ConnectionFailed: the brokers refuse, or
            cannot be reached.
        """
        limit = starting_limit(self._source, streaming=True)
        lookup = self._lookup(assigned(self._connected(), self._subscription))
        offsets = starting_offsets(lookup, limit, self._source)
        if isinstance(limit, SpecificOffsets):
            offsets = within_the_log(lookup, offsets, "startingOffsets", fail=self._source.fail_on_data_loss)
        return offsets

    @property
    def topic_ids(self) -> Mapping[str, bytes]:
        """The ids of the topics at the last look-up; none before the first one."""
        return self._history.ids

    def prepare_for_available_now(self) -> None:
        """Fix the end of the query at the offsets of the next look-up."""
        self._is_available_now = True

    def next_ends(self, starts: Offsets, *, limited: bool) -> Offsets:
        """Return the ends of the micro-batch that begins at `starts`: `starts` if it has to wait, or if nothing is new.

        Without `limited` the options for the size of a micro-batch do not count, as Spark wants it for the trigger `once`.

        Spark asks when the batch before has finished, so its offsets are committed to `commitGroup`.

        Raises: as `initial`.
        """
        self.commit(starts)
        ends = self._last_ends
        if ends is None:
            ends = self._latest_offsets(starts)
            if self._is_available_now:
                self._last_ends = ends
        self.latest = ends
        valid_starts = self._history.starts(starts)
        ends = self._history.distinct(ends)
        if not limited:
            return ends
        waits = self._delay is not None and not self._is_available_now
        if waits and self._delay is not None and self._delay.waits(valid_starts, ends, self._clock()):
            return starts
        if self._source.max_offsets_per_trigger is None:
            return ends
        added = self._earliest([each for each in ends if each not in valid_starts])
        return self._history.distinct(limited_ends(self._source.max_offsets_per_trigger, valid_starts | added, ends))

    def ranges(self, starts: Offsets, ends: Offsets) -> list[OffsetRange]:
        """Return the ranges of a micro-batch. New topic-partitions begin at their earliest offset.

        Raises:
            DataLoss: with `failOnDataLoss`, topic-partitions are gone or do not begin at 0, or offsets went backwards. And as
            `initial`.
        """
        self._check_gone(starts, ends)
        valid_starts = self._history.starts(starts)
        added = self._earliest([each for each in ends if each not in valid_starts])
        for each, offset in added.items():
            if offset and each not in starts:
                text = f"{each} is new, but its log begins at offset {offset} instead of 0: earlier records are gone"
                report_loss(text, "raise the retention of the topic", fail=self._source.fail_on_data_loss)
        valid_starts |= added
        self._check_gone(ends, valid_starts)
        if backwards := _backwards(valid_starts, ends):
            self._report_backwards(backwards, valid_starts, ends)
            valid_starts |= self._earliest(backwards)
        return [OffsetRange(each, valid_starts[each], end) for each, end in ends.items() if each in valid_starts]

    def commit(self, ends: Offsets) -> None:
        """Commit offsets of finished micro-batches to `commitGroup`, if it is set. A failure is a warning."""
        group = self._source.commit_group
        if group is None or not ends or ends == self._committed:
            return
        self._committed = ends
        try:
            if self._group is None:
                self._group = GroupOffsets(self._connected(), group)
            self._group.commit(ends, COMMIT_SECONDS)
        except PyProducerError as error:
            logger.warning(
                "offsets of the stream could not be committed to commitGroup %s, so Kafka's tools show an older position; the "
                "query does not need them: %s",
                group,
                error,
            )

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def _connected(self) -> BlockingClient:
        if self._client is None:
            self._client = self._connect(self._settings)
        return self._client

    def _lookup(self, found: FoundTopics) -> OffsetLookup:
        return OffsetLookup(self._connected(), found.leaders, IsolationLevel.of(self._settings.config.isolation_level))

    def _latest_offsets(self, starts: Offsets) -> Offsets:
        """Return the latest offset of each topic-partition, after a check for what was deleted or created again."""
        fail = self._source.fail_on_data_loss
        found = self._assigned(starts)
        for topic in self._history.created_again(found.topic_ids, starts):
            text = f"topic {topic!r} was deleted and created again since records of it were read"
            report_loss(f"{text}: unread records of the earlier topic are gone", NEW_CHECKPOINT, fail=fail)
        lookup = self._lookup(found)
        ends = lookup.of_all(LATEST)
        for _ in range(LOOKUP_ATTEMPTS - 1):
            if not _backwards(self._history.starts(starts), ends):
                break
            self._connected().pause(LOOKUP_SECONDS)
            ends = lookup.of_all(LATEST)
        self._check_gone(starts, ends)
        if backwards := _backwards(self._history.starts(starts), ends):
            self._report_backwards(backwards, starts, ends)
            self._history.begin_again(backwards, starts)
        return ends

    def _assigned(self, expected: Collection[TopicPartition]) -> FoundTopics:
        """Return the topic-partitions of the subscription, after more look-ups if some of `expected` are not among them."""
        client = self._connected()
        found = assigned(client, self._subscription, may_be_missing=bool(expected))
        for _ in range(LOOKUP_ATTEMPTS - 1):
            if all(each in found.leaders for each in expected):
                break
            client.pause(LOOKUP_SECONDS)
            found = assigned(client, self._subscription, may_be_missing=bool(expected))
        return found

    def _check_gone(self, known: Offsets, found: Offsets) -> None:
        if gone := [each for each in known if each not in found]:
            text = (
                f"{named(gone)} do not exist any more, or are not in the subscription: unread records of them are gone"
            )
            report_loss(text, "restore the topic or the subscription", fail=self._source.fail_on_data_loss)

    def _report_backwards(self, backwards: list[TopicPartition], starts: Offsets, ends: Offsets) -> None:
        first = min(backwards)
        text = (
            f"the offsets of {named(backwards)} went backwards, as after a topic was deleted and created again: {first} was read "
            f"up to offset {starts[first]}, and its log ends at {ends[first]}"
        )
        report_loss(text, NEW_CHECKPOINT, fail=self._source.fail_on_data_loss)

    def _earliest(self, wanted: list[TopicPartition]) -> Offsets:
        """Return the earliest offsets; without the topic-partitions that do not exist any more."""
        if not wanted:
            return {}
        found = self._assigned(wanted)
        return self._lookup(found).at({each: EARLIEST for each in wanted if each in found.leaders})


def _backwards(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return [each for each, start in starts.items() if ends.get(each, start) < start]
