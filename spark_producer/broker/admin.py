"""The requests of every client and of administrators: ApiVersions, Metadata, CreateTopics, DeleteTopics.

Owns: from request tuple to response tuple.
Must not know: sockets, records.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Final

from spark_producer.broker import codes
from spark_producer.broker.context import Answer, Context, partition_key
from spark_producer.broker.log import LEADER_EPOCH
from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.topics import Topic
from spark_producer.errors import BrokerError
from spark_producer.protocol import API_VERSIONS, APIS, PRODUCE, messages

_DEFAULT: Final = -1
_TOPIC_CONFIG: Final = 1
_DEFAULT_CONFIG: Final = 5
"""Where a topic's setting comes from (Kafka's ConfigSource)."""


def api_versions(_context: Context, _version: int, _request: messages.ApiVersionsRequest) -> Answer:
    """What this broker speaks.

    Produce is said to begin at 0, as real brokers say since 4.0: librdkafka infers the message format from it
    (KAFKA-18659). What it really sends is within the true range.
    """
    keys = [
        messages.ApiVersion(api.key, 0 if api.key == PRODUCE.key else api.min_version, api.max_version)
        for api in sorted(APIS.values())
    ]
    return Answer(messages.ApiVersionsResponse(api_keys=tuple(keys)))


def unsupported_api_versions() -> messages.ApiVersionsResponse:
    """The answer to an ApiVersions of a version that we do not speak: what to ask instead (KIP-511)."""
    own = messages.ApiVersion(API_VERSIONS.key, API_VERSIONS.min_version, API_VERSIONS.max_version)
    return messages.ApiVersionsResponse(codes.UNSUPPORTED_VERSION, (own,))


def metadata(context: Context, _version: int, request: messages.MetadataRequest) -> Answer:
    """The one broker, and the topics asked for; unknown ones are made if both sides want that."""
    settings = context.settings
    if request.topics is None:
        topics = [_describe(context, topic) for topic in context.topics]
    else:
        auto_create = request.allow_auto_topic_creation and settings.auto_create_topics
        topics = [_metadata_of(context, wanted, auto_create=auto_create) for wanted in dict.fromkeys(request.topics)]
    broker = messages.MetadataResponseBroker(settings.node_id, context.advertised.host, context.advertised.port)
    return Answer(
        messages.MetadataResponse(
            brokers=(broker,),
            cluster_id=context.topics.cluster_id,
            controller_id=settings.node_id,
            topics=tuple(topics),
        )
    )


def _metadata_of(
    context: Context, wanted: messages.MetadataRequestTopic, *, auto_create: bool
) -> messages.MetadataResponseTopic:
    if wanted.name is None:
        by_id = context.topics.get_by_id(wanted.topic_id)
        if by_id is None:
            return messages.MetadataResponseTopic(codes.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        return _describe(context, by_id)
    topic = context.topics.get(wanted.name)
    if topic is not None:
        return _describe(context, topic)
    if not auto_create:
        return messages.MetadataResponseTopic(codes.UNKNOWN_TOPIC_OR_PARTITION, wanted.name)
    try:
        return _describe(context, context.topics.create(wanted.name, context.settings.default_partitions))
    except BrokerError as error:
        return messages.MetadataResponseTopic(error.code, wanted.name)


def _describe(context: Context, topic: Topic) -> messages.MetadataResponseTopic:
    node = context.settings.node_id
    partitions = [
        messages.MetadataResponsePartition(codes.NONE, partition.index, node, LEADER_EPOCH, (node,), (node,))
        for partition in topic.partitions
    ]
    return messages.MetadataResponseTopic(codes.NONE, topic.name, topic.topic_id, partitions=tuple(partitions))


def create_topics(context: Context, _version: int, request: messages.CreateTopicsRequest) -> Answer:
    """Make topics, or only check whether they could be made; each has its own result."""
    times = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise BrokerError(f"topic {topic.name!r} is in the request twice", code=codes.INVALID_REQUEST)
            results.append(_create(context, topic, validate_only=request.validate_only))
        except BrokerError as error:
            results.append(
                messages.CreatableTopicResult(topic.name, error_code=error.code, error_message=str(error), configs=None)
            )
    return Answer(messages.CreateTopicsResponse(topics=tuple(results)))


def _create(context: Context, wanted: messages.CreatableTopic, *, validate_only: bool) -> messages.CreatableTopicResult:
    partitions = _partition_count(context, wanted)
    configs = {config.name: config.value for config in wanted.configs}
    settings = context.topics.check(wanted.name, partitions, configs)
    topic_id = messages.NO_UUID if validate_only else context.topics.create(wanted.name, partitions, configs).topic_id
    return messages.CreatableTopicResult(
        wanted.name,
        topic_id,
        num_partitions=partitions,
        replication_factor=1,
        configs=_settings_of(settings, given=configs),
    )


def _partition_count(context: Context, wanted: messages.CreatableTopic) -> int:
    if wanted.assignments:
        if wanted.num_partitions != _DEFAULT or wanted.replication_factor != _DEFAULT:
            raise BrokerError("both counts and an assignment are given", code=codes.INVALID_REQUEST)
        indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
        nodes = {assignment.broker_ids for assignment in wanted.assignments}
        if indexes != list(range(len(indexes))) or nodes != {(context.settings.node_id,)}:
            raise BrokerError(
                f"partitions 0 to n must each be on broker {context.settings.node_id}",
                code=codes.INVALID_REPLICA_ASSIGNMENT,
            )
        return len(indexes)
    if wanted.replication_factor not in (_DEFAULT, 1):
        raise BrokerError(
            f"replication factor {wanted.replication_factor} with one broker", code=codes.INVALID_REPLICATION_FACTOR
        )
    return context.settings.default_partitions if wanted.num_partitions == _DEFAULT else wanted.num_partitions


def _settings_of(settings: TopicSettings, given: dict[str, str | None]) -> tuple[messages.CreatableTopicConfigs, ...]:
    return tuple(
        messages.CreatableTopicConfigs(
            name.replace("_", "."),
            str(value),
            config_source=_TOPIC_CONFIG if name.replace("_", ".") in given else _DEFAULT_CONFIG,
        )
        for name, value in asdict(settings).items()
    )


def delete_topics(context: Context, _version: int, request: messages.DeleteTopicsRequest) -> Answer:
    """Delete topics and their records at once."""
    results = []
    changed = []
    for name in request.topic_names:
        topic = context.topics.get(name)
        try:
            context.topics.delete(name)
        except BrokerError as error:
            results.append(messages.DeletableTopicResult(name, error.code, str(error)))
            continue
        results.append(messages.DeletableTopicResult(name))
        changed += [partition_key(name, partition.index) for partition in topic.partitions] if topic else []
    return Answer(messages.DeleteTopicsResponse(responses=tuple(results)), tuple(changed))
