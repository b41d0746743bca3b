"""The handlers of CreateTopics and DeleteTopics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.settings import TopicSettings, all_settings
from spark_producer.broker.topic_store import NewTopic
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

logger = escaping_logger(__name__)

TOPIC_CONFIG: Final = 1
DEFAULT_CONFIG: Final = 5
"""The sources of a topic's setting (Kafka's ConfigSource)."""

MAX_NEW_PARTITIONS: Final = 10_000
"""Maximum number of partitions that one request can create, as in Kafka (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH):
about a second of work."""

_DEFAULT: Final = -1


def create_topics(
    context: Context, _version: int, request: messages.CreateTopicsRequest
) -> HandlerResult[messages.CreateTopicsResponse]:
    """Create topics, or only check whether they could be created.

    Each topic has its own result; a repeated name is refused with one result (ControllerApis).
    """
    times = Counter(topic.name for topic in request.topics)
    results = {
        name: _refused(name, BrokerError("Duplicate topic name.", code=Code.INVALID_REQUEST))
        for name, count in times.items()
        if count > 1
    }
    new: list[NewTopic] = []
    left = MAX_NEW_PARTITIONS
    for topic in request.topics:
        if times[topic.name] > 1:
            continue
        try:
            wanted = _new_topic(context, topic)
            settings = context.topics.check(wanted)
            left -= wanted.partitions
            if left < 0:
                raise BrokerError("Excessively large number of partitions per request.", code=Code.POLICY_VIOLATION)
        except BrokerError as error:
            results[topic.name] = _refused(topic.name, error)
            continue
        results[topic.name] = _created(wanted, settings)
        new.append(wanted)
    if not request.validate_only:
        for wanted, made in zip(new, context.topics.create_all(new), strict=True):
            if isinstance(made, BrokerError):
                results[wanted.name] = _refused(wanted.name, made)
            else:
                results[wanted.name] = results[wanted.name]._replace(topic_id=made.topic_id)
    return HandlerResult(messages.CreateTopicsResponse(topics=tuple(results.values())))


def _refused(name: str, error: BrokerError) -> messages.CreatableTopicResult:
    return messages.CreatableTopicResult(name, error_code=error.code, error_message=str(error), configs=None)


def _new_topic(context: Context, wanted: messages.CreatableTopic) -> NewTopic:
    configs = {config.name: config.value for config in wanted.configs}
    return NewTopic(wanted.name, _partition_count(context, wanted), configs)


def _created(new: NewTopic, settings: TopicSettings) -> messages.CreatableTopicResult:
    """Return the result for a topic that can be created, without its id."""
    return messages.CreatableTopicResult(
        new.name,
        num_partitions=new.partitions,
        replication_factor=1,
        configs=tuple(
            messages.CreatableTopicConfigs(
                name, value, config_source=TOPIC_CONFIG if name in new.configs else DEFAULT_CONFIG
            )
            for name, value in all_settings(settings).items()
        ),
    )


def _partition_count(context: Context, wanted: messages.CreatableTopic) -> int:
    if wanted.assignments:
        if wanted.num_partitions != _DEFAULT or wanted.replication_factor != _DEFAULT:
            raise BrokerError("counts and a replica assignment exclude each other", code=Code.INVALID_REQUEST)
        indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
        nodes = {assignment.broker_ids for assignment in wanted.assignments}
        if indexes != list(range(len(indexes))) or nodes != {(context.settings.node_id,)}:
            raise BrokerError(
                f"partitions 0 to n must each be assigned to broker {context.settings.node_id} alone",
                code=Code.INVALID_REPLICA_ASSIGNMENT,
            )
        return len(indexes)
    if wanted.replication_factor not in (_DEFAULT, 1):
        raise BrokerError(
            f"replication factor {wanted.replication_factor} is not possible with one broker",
            code=Code.INVALID_REPLICATION_FACTOR,
        )
    return context.settings.default_partitions if wanted.num_partitions == _DEFAULT else wanted.num_partitions


def delete_topics(
    context: Context, _version: int, request: messages.DeleteTopicsRequest
) -> HandlerResult[messages.DeleteTopicsResponse]:
    """Delete topics and their records at once. A repeated name is refused with one result (ControllerApis)."""
    times = Counter(request.topic_names)
    results = [
        messages.DeletableTopicResult(name, Code.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    changed: list[Hashable] = []
    gone: set[str] = set()
    names = [name for name, count in times.items() if count == 1]
    for name, deleted in zip(names, context.topics.delete_all(names), strict=True):
        if isinstance(deleted, BrokerError):
            results.append(messages.DeletableTopicResult(name, deleted.code, str(deleted)))
        else:
            results.append(messages.DeletableTopicResult(name))
            changed += [partition_key(name, partition.index) for partition in deleted.partitions]
            gone.add(name)
    try:
        context.coordinator.forget_topics(gone)
    except BrokerError as error:  # the topics are deleted all the same; the next start deletes these offsets
        logger.error("the offsets of groups for deleted topics could not be deleted: %s", error)
    return HandlerResult(messages.DeleteTopicsResponse(responses=tuple(results)), tuple(changed))
