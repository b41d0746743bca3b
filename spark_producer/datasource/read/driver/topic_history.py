"""What a stream knows about its topics from earlier look-ups: their ids, and which were deleted and created again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from spark_producer.common.cluster import TopicPartition
from spark_producer.protocol.messages.cluster import NO_UUID


class TopicHistory:
    """The ids of topics (KIP-516), and the topic-partitions whose offsets so far belong to an earlier topic.

    The offset log of Spark has no room for ids, so a topic that is created again while no query runs is noticed only if its
    offsets went backwards.
    """

    def __init__(self) -> None:
        self.ids: dict[str, bytes] = {}
        self._stale: dict[TopicPartition, int] = {}
        """The offsets that belong to an earlier topic."""

    def created_again(self, topic_ids: Mapping[str, bytes], starts: Mapping[TopicPartition, int]) -> Iterator[str]:
        """Yield the topics of `starts` whose id is not that of the last look-up. Their offsets in `starts` are then void."""
        for topic, topic_id in topic_ids.items():
            known = self.ids.get(topic, NO_UUID)
            stale = [each for each in starts if each.topic == topic]
            if NO_UUID not in (known, topic_id) and known != topic_id and stale:
                yield topic
                self.begin_again(stale, starts)
            self.ids[topic] = topic_id

    def begin_again(self, stale: Collection[TopicPartition], starts: Mapping[TopicPartition, int]) -> None:
        """Note that the offsets of some topic-partitions in `starts` are void."""
        self._stale |= {each: starts[each] for each in stale}

    def starts(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return `starts` without the void offsets, as if their topic-partitions were new."""
        self._stale = {each: offset for each, offset in self._stale.items() if starts.get(each) == offset}
        return {each: offset for each, offset in starts.items() if each not in self._stale}

    def distinct(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return `ends`, one less where it equals a void offset: Spark would take the equal offset for nothing new."""
        return {each: end - (self._stale.get(each) == end) for each, end in ends.items()}
