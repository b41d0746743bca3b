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
from spark_producer.datasource.read.driver.assignment import assigned, warn_if_empty
from spark_producer.datasource.read.driver.data_loss import within_the_log
from spark_producer.datasource.read.driver.lookup_client import connect
from spark_producer.datasource.read.driver.offset_json import LoggedOffsets, Offsets
from spark_producer.datasource.read.driver.offset_resolution import OffsetLookup, named, starting_offsets
from spark_producer.datasource.read.driver.rate_limit import TriggerDelay, limited_ends
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.errors import PyProducerError
from spark_producer.protocol.messages.cluster import NO_UUID

logger = escaping_logger("pyproducer")

NEW_CHECKPOINT = "give the query a new checkpointLocation"
"""What to do about offsets of a checkpoint that belong to an earlier topic."""

LOOKUP_ATTEMPTS, LOOKUP_SECONDS = 3, 1.0
"""Look-ups before topic-partitions count as gone, topics as created again, or offsets as gone backwards, and seconds between
them, as in Spark's source: a broker may not know a topic yet, nor a leader that was just elected the end of its log."""

MISSING_SECONDS = 600.0
"""Seconds for which the offsets of topic-partitions that are gone are kept with `failOnDataLoss` false: a broker that has just
started may not know its topics for some seconds, and what comes back is not to be read again."""

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
        self._missing_since: dict[TopicPartition, float] = {}
        """The topic-partitions that are gone, with `failOnDataLoss` false, and the time of the first look-up without them."""
        self._warned = set[str]()
        """The losses that were reported since the last look-up of ends: each is one warning for a micro-batch."""
        self._delay: TriggerDelay | None = None
        if settings.source.min_offsets_per_trigger is not None:
            delay = duration_ms("maxTriggerDelay", settings.source.max_trigger_delay) / 1000
            self._delay = TriggerDelay(settings.source.min_offsets_per_trigger, delay)
        self._is_available_now = False
        self._last_ends: LoggedOffsets | None = None
        """With the trigger availableNow: the offsets at which the query ends."""
        self.latest: Offsets | None = None
        """The latest offsets of the last look-up, for the progress of the query."""

    def initial(self) -> LoggedOffsets:
        """Return the offsets at which a new query starts.

        Raises:
            TopicNotFound: a topic or partition does not exist. ConfigError: the starting point does not fit. DataLoss: with
            `failOnDataLoss`, an offset is not in the log. BrokerError, KafkaTimeout, ConnectionFailed: the brokers refuse, or
            cannot be reached.
        """
        limit = starting_limit(self._source, streaming=True)
        found = assigned(self._connected(), self._subscription)
        lookup = self._lookup(found)
        offsets = starting_offsets(lookup, limit, self._source)
        if isinstance(limit, SpecificOffsets):
            offsets = within_the_log(lookup, offsets, "startingOffsets", fail=self._source.fail_on_data_loss)
        return LoggedOffsets(offsets, found.topic_ids)

    def prepare_for_available_now(self) -> None:
        """Fix the end of the query at the offsets of the next look-up."""
        self._is_available_now = True

    def next_ends(self, starts: LoggedOffsets, *, limited: bool) -> LoggedOffsets:
        """Return the ends of the micro-batch that begins at `starts`: `starts` if it has to wait, or if nothing is new.

        Without `limited` the options for the size of a micro-batch do not count, as Spark wants it for the trigger `once`.

        Spark asks when the batch before has finished, so its offsets are committed to `commitGroup`.

        Raises: as `initial`.
        """
        self.commit(starts.offsets)
        self._warned.clear()
        ends = self._last_ends
        if ends is None:
            ends = self._latest_offsets(starts)
            if self._is_available_now:
                self._last_ends = ends
        self.latest = ends.offsets
        valid_starts = _valid(starts, ends)
        delay = self._delay if limited and not self._is_available_now else None
        if delay is not None and delay.waits(valid_starts, ends.offsets, self._clock()):
            return starts
        if limited and self._source.max_offsets_per_trigger is not None:
            added = self._earliest([each for each in ends.offsets if each not in valid_starts])
            limit = limited_ends(self._source.max_offsets_per_trigger, valid_starts | added, ends.offsets)
            ends = ends._replace(offsets=limit)
        is_same = ends.offsets == starts.offsets and not starts.created_again(ends)
        return starts if is_same else ends  # ids alone, which the start may lack, make no micro-batch

    def ranges(self, starts: LoggedOffsets, ends: LoggedOffsets) -> list[OffsetRange]:
        """Return the ranges of a micro-batch. New topic-partitions begin at their earliest offset.

        Raises:
            DataLoss: with `failOnDataLoss`, topic-partitions are gone or do not begin at 0, or offsets went backwards. And as
            `initial`.
        """
        self._check_topics(starts, ends)
        self._check_gone(starts.offsets, ends.offsets)
        valid_starts = _valid(starts, ends)
        added = self._earliest([each for each in ends.offsets if each not in valid_starts])
        for each, offset in added.items():
            if offset and each not in starts.offsets:
                text = f"{each} is new, but its log begins at offset {offset} instead of 0: earlier records are gone"
                self._report(text, "raise the retention of the topic")
        valid_starts |= added
        self._check_gone(ends.offsets, valid_starts)
        return [
            OffsetRange(each, valid_starts[each], end) for each, end in ends.offsets.items() if each in valid_starts
        ]

    def commit(self, ends: Offsets) -> None:
        """Commit offsets of finished micro-batches to `commitGroup`, if it is set. A failure is a warning."""
        group = self._source.commit_group
        ends = {each: offset for each, offset in ends.items() if each not in self._missing_since}
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

    def _latest_offsets(self, starts: LoggedOffsets) -> LoggedOffsets:
        """Return the latest offset of each topic-partition, after a check for what was deleted or created again."""
        found = self._assigned(starts.offsets, starts.topic_ids)
        if self.latest is None:
            warn_if_empty(self._subscription, found)
        lookup = self._lookup(found)
        ends = LoggedOffsets(lookup.of_all(LATEST), found.topic_ids)
        for _ in range(LOOKUP_ATTEMPTS - 1):
            if not _backwards(starts, ends):
                break
            self._connected().pause(LOOKUP_SECONDS)
            ends = ends._replace(offsets=lookup.of_all(LATEST))
        ends = self._with_missing(starts, ends)
        self._check_topics(starts, ends)
        return ends

    def _with_missing(self, starts: LoggedOffsets, ends: LoggedOffsets) -> LoggedOffsets:
        """Return `ends` with the topic-partitions that only `starts` has, for `MISSING_SECONDS` if the id of their topic is
        known.

        Raises:
            DataLoss: with `failOnDataLoss`, there are such topic-partitions.
        """
        gone = starts.created_again(ends)
        missing = [each for each in starts.offsets if each not in ends.offsets and each not in gone]
        if any(each not in self._missing_since for each in missing):
            self._check_gone(missing, ends.offsets)
        now = self._clock()
        self._missing_since = {each: self._missing_since.get(each, now) for each in missing}
        kept = {
            each: starts.offsets[each]
            for each, since in self._missing_since.items()
            if each.topic in starts.topic_ids and now - since < MISSING_SECONDS
        }
        ids = {each.topic: starts.topic_ids[each.topic] for each in kept}
        return LoggedOffsets(ends.offsets | kept, {**ids, **ends.topic_ids})

    def _assigned(self, expected: Collection[TopicPartition], topic_ids: Mapping[str, bytes]) -> FoundTopics:
        """Return the topic-partitions of the subscription, after more look-ups if some of `expected` are not among them, or if
        topics have other ids than in `topic_ids`. What was missing before is not waited for again."""
        client = self._connected()
        awaited = [each for each in expected if each not in self._missing_since]
        found = assigned(client, self._subscription, may_be_missing=bool(expected))
        for _ in range(LOOKUP_ATTEMPTS - 1):
            has_ids = all(found.topic_ids.get(topic, known) in (known, NO_UUID) for topic, known in topic_ids.items())
            if has_ids and all(each in found.leaders for each in awaited):
                break
            client.pause(LOOKUP_SECONDS)
            found = assigned(client, self._subscription, may_be_missing=bool(expected))
        return found

    def _check_gone(self, known: Collection[TopicPartition], found: Offsets) -> None:
        if gone := [each for each in known if each not in found]:
            text = f"unread records of {named(gone)} are gone: deleted, or not in the subscription any more"
            self._report(text, "restore the topic or the subscription")

    def _check_topics(self, starts: LoggedOffsets, ends: LoggedOffsets) -> None:
        """Check that the offsets of both are of the same topics.

        Raises:
            DataLoss: with `failOnDataLoss`, a topic was created again, or offsets went backwards.
        """
        for topic in dict.fromkeys(each.topic for each in starts.created_again(ends)):
            text = f"topic {topic!r} was deleted and created again since records of it were read"
            self._report(f"{text}: unread records of the earlier topic are gone", NEW_CHECKPOINT)
        if backwards := _backwards(starts, ends):
            first = min(backwards)
            text = (
                f"the offsets of {named(backwards)} went backwards, as after a topic was deleted and created again: {first} was "
                f"read up to offset {starts.offsets[first]}, and its log ends at {ends.offsets[first]}"
            )
            self._report(text, NEW_CHECKPOINT)

    def _report(self, loss: str, advice: str) -> None:
        if loss not in self._warned:
            report_loss(loss, advice, fail=self._source.fail_on_data_loss)
            self._warned.add(loss)

    def _earliest(self, wanted: list[TopicPartition]) -> Offsets:
        """Return the earliest offsets; without the topic-partitions that do not exist any more."""
        if not wanted:
            return {}
        found = self._assigned(wanted, {})
        return self._lookup(found).at({each: EARLIEST for each in wanted if each in found.leaders})


def _backwards(starts: LoggedOffsets, ends: LoggedOffsets) -> list[TopicPartition]:
    """Return the topic-partitions whose end is before their start, without those whose topic was created again."""
    again = set(starts.created_again(ends))
    return [
        each for each, start in starts.offsets.items() if ends.offsets.get(each, start) < start and each not in again
    ]


def _valid(starts: LoggedOffsets, ends: LoggedOffsets) -> Offsets:
    """Return the starts from which the next micro-batch goes on; those of an earlier topic are left out, as if it were new."""
    void = {*starts.created_again(ends), *_backwards(starts, ends)}
    return {each: offset for each, offset in starts.offsets.items() if each not in void}
