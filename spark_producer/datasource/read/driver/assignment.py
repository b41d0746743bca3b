"""The topic-partitions that a subscription means now."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.admin import BlockingClient
from spark_producer.admin.missing_topics import suggest_topic_on_not_found
from spark_producer.admin.partition_offsets import FoundTopics, find_topics
from spark_producer.admin.topic_leaders import missing_partition
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.config.subscription import Assign, Subscribe, SubscribePattern, Subscription

logger = escaping_logger("pyproducer")


def assigned(client: BlockingClient, subscription: Subscription, *, may_be_missing: bool = False) -> FoundTopics:
    """Return the topic-partitions of a subscription, in order, with their leaders.

    A pattern matches anywhere in the name of a topic, as in Spark's source, but matches no internal topics. With `may_be_missing`
    topics that do not exist are in `missing`.

    Raises:
        TopicNotFound: a topic, or a partition of `assign`, does not exist. And as `find_topics`.
    """
    match subscription:
        case SubscribePattern():
            found = find_topics(client, None)
            return _only(found, [each for each in found.leaders if subscription.matches(each.topic)])
        case Subscribe(topics):
            found = _existing(client, topics, may_be_missing=may_be_missing)
            return _only(found, list(found.leaders))
        case Assign(topic_partitions):
            names = sorted({each.topic for each in topic_partitions})
            found = _existing(client, names, may_be_missing=may_be_missing)
            for each in topic_partitions:
                if each not in found.leaders and each.topic in found.topic_ids:
                    count = sum(one.topic == each.topic for one in found.leaders)
                    raise missing_partition("option assign: topic", each.topic, each.partition, count)
            return _only(found, [each for each in topic_partitions if each in found.leaders])


def warn_if_empty(subscription: Subscription, found: FoundTopics) -> None:
    """Log a warning if a pattern matches no topic: Spark's source reads nothing in silence then."""
    if isinstance(subscription, SubscribePattern) and not found.leaders:
        logger.warning(
            "subscribePattern %s matches no topic that this user can see, so there is nothing to read. Correct the pattern, or "
            "create a topic",
            subscription.regex,
        )


def _existing(client: BlockingClient, topics: Sequence[str], *, may_be_missing: bool) -> FoundTopics:
    found = find_topics(client, topics)
    if found.missing and not may_be_missing:
        for topic in found.missing:  # a broker may not know a new topic yet
            with suggest_topic_on_not_found(client, topic):
                client.wait_for_topic(topic)
        found = find_topics(client, topics)
    return found


def _only(found: FoundTopics, chosen: Sequence[TopicPartition]) -> FoundTopics:
    topics = {each.topic for each in chosen}
    return FoundTopics(
        {each: found.leaders[each] for each in sorted(chosen)},
        {name: topic_id for name, topic_id in found.topic_ids.items() if name in topics},
        found.missing,
    )
