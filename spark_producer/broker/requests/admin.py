"""The handlers of ApiVersions, Metadata, CreateTopics and DeleteTopics; and of SASL requests on a listener without SASL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.settings import TopicSettings, all_settings
from spark_producer.broker.storage.base import LEADER_EPOCH
from spark_producer.broker.topic_names import is_legal_name
from spark_producer.broker.topic_store import NewTopic, Topic
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError
from spark_producer.protocol import API_VERSIONS, APIS, END_TXN, PRODUCE, TXN_OFFSET_COMMIT, AnyApi, messages

logger = escaping_logger(__name__)

TOPIC_CONFIG: Final = 1
DEFAULT_CONFIG: Final = 5
"""The sources of a topic's setting (Kafka's ConfigSource)."""

MAX_NEW_PARTITIONS: Final = 10_000
"""Maximum number of partitions that one request can create, as in Kafka (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH):
about a second of work."""

_TRANSACTION_VERSION: Final = "transaction.version"
_FIRST_WITH_FEATURES_FROM_0: Final = 4
_NEWEST_WITHOUT: Final = {PRODUCE.key: 11, END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4}
"""The newest versions of a broker without transaction.version 2, as in Kafka 3.9: the next ones imply it (KIP-890)."""

_DEFAULT: Final = -1

_FIRST_WITH_IDS: Final = 12
"""The first version of Metadata with topic ids: versions 10 and 11 have the field, but Kafka refuses it there (KafkaApis,
KAFKA-12701)."""


def api_versions(
    context: Context, version: int, _request: messages.ApiVersionsRequest
) -> HandlerResult[messages.ApiVersionsResponse]:
    """Return the supported versions of each API, and the feature `transaction.version`.

    Produce is said to begin at version 0, as by Kafka's brokers since 4.0: librdkafka infers the message format from it
    (KAFKA-18659). The version that it then sends is within the actual range.
    """
    level = context.settings.transaction_version
    keys = [
        messages.ApiVersion(api.key, 0 if api.key == PRODUCE.key else api.min_version, newest_version(api, level))
        for api in sorted(APIS.values())
    ]
    if not level:
        return HandlerResult(messages.ApiVersionsResponse(api_keys=tuple(keys)))
    supported = messages.SupportedFeatureKey(_TRANSACTION_VERSION, 0, level)
    return HandlerResult(
        messages.ApiVersionsResponse(
            api_keys=tuple(keys),
            # Older clients break the connection at a feature that begins at 0 (KAFKA-17011).
            supported_features=(supported,) if version >= _FIRST_WITH_FEATURES_FROM_0 else (),
            finalized_features_epoch=0,
            finalized_features=(messages.FinalizedFeatureKey(_TRANSACTION_VERSION, level, level),),
        )
    )


def newest_version(api: AnyApi, transaction_version: int) -> int:
    """Return the newest version of an API at this level of `transaction.version`."""
    return api.max_version if transaction_version else _NEWEST_WITHOUT.get(api.key, api.max_version)


def unsupported_api_versions() -> messages.ApiVersionsResponse:
    """Return the response to an unsupported version of ApiVersions: it has the version for the next attempt (KIP-511)."""
    own = messages.ApiVersion(API_VERSIONS.key, API_VERSIONS.min_version, API_VERSIONS.max_version)
    return messages.ApiVersionsResponse(Code.UNSUPPORTED_VERSION, (own,))


def sasl_handshake(
    _context: Context, _version: int, _request: messages.SaslHandshakeRequest
) -> HandlerResult[messages.SaslHandshakeResponse]:
    """Refuse a SASL handshake: the listener has no SASL, or a re-authentication comes too early."""
    return HandlerResult(messages.SaslHandshakeResponse(Code.ILLEGAL_SASL_STATE))


def sasl_authenticate(
    _context: Context, _version: int, _request: messages.SaslAuthenticateRequest
) -> HandlerResult[messages.SaslAuthenticateResponse]:
    """Refuse a SASL message without a handshake."""
    message = "SaslAuthenticate request received after successful authentication"
    return HandlerResult(messages.SaslAuthenticateResponse(Code.ILLEGAL_SASL_STATE, message))


def metadata(
    context: Context, version: int, request: messages.MetadataRequest
) -> HandlerResult[messages.MetadataResponse]:
    """Return the one broker and the requested topics; unknown topics are created if the request and the settings allow it.

    A repeated topic is described once, even with different ids, since its name decides.
    """
    settings = context.settings
    if request.topics is None:
        topics = [_describe(context, topic) for topic in context.topics]
    else:
        named = {topic.topic_id if topic.name is None else topic.name: topic for topic in request.topics}
        wanted = list(named.values())
        if request.allow_auto_topic_creation and settings.auto_create_topics:
            refused = _create_missing(context, wanted)
        else:
            refused = {}
        topics = [_metadata_of(context, version, topic, refused) for topic in wanted]
    broker = messages.MetadataResponseBroker(settings.node_id, context.advertised.host, context.advertised.port)
    return HandlerResult(
        messages.MetadataResponse(
            brokers=(broker,),
            cluster_id=context.topics.directory.cluster_id,
            controller_id=settings.node_id,
            topics=tuple(topics),
        )
    )


def _create_missing(context: Context, wanted: list[messages.MetadataRequestTopic]) -> dict[str | None, int]:
    """Create the missing topics; return the error code of each one that was not created.

    Topics beyond the limit of one request get LEADER_NOT_AVAILABLE, which Kafka returns while a topic is being created: clients
    retry.
    """
    partitions = context.settings.default_partitions
    names = [topic.name for topic in wanted if topic.name is not None and context.topics.get(topic.name) is None]
    now = names[: max(MAX_NEW_PARTITIONS // partitions, 1)]
    made = context.topics.create_all(NewTopic(name, partitions) for name in now)
    refused: dict[str | None, int] = dict.fromkeys(names[len(now) :], Code.LEADER_NOT_AVAILABLE)
    refused |= {name: result.code for name, result in zip(now, made, strict=True) if isinstance(result, BrokerError)}
    return refused


def _metadata_of(
    context: Context, version: int, wanted: messages.MetadataRequestTopic, refused: dict[str | None, int]
) -> messages.MetadataResponseTopic:
    if wanted.name is None and version < _FIRST_WITH_IDS:
        return messages.MetadataResponseTopic(Code.INVALID_REQUEST, "", wanted.topic_id)
    if wanted.name is None:
        by_id = context.topics.get_by_id(wanted.topic_id)
        if by_id is None:
            return messages.MetadataResponseTopic(Code.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        return _describe(context, by_id)
    topic = context.topics.get(wanted.name)
    if topic is not None:
        return _describe(context, topic)
    code = refused.get(wanted.name)
    if code is None:
        legal = is_legal_name(wanted.name)
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if legal else Code.INVALID_TOPIC_EXCEPTION
    return messages.MetadataResponseTopic(code, wanted.name)


def _describe(context: Context, topic: Topic) -> messages.MetadataResponseTopic:
    node = context.settings.node_id
    partitions = [
        messages.MetadataResponsePartition(Code.NONE, partition.index, node, LEADER_EPOCH, (node,), (node,))
        for partition in topic.partitions
    ]
    return messages.MetadataResponseTopic(Code.NONE, topic.name, topic.topic_id, partitions=tuple(partitions))


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
