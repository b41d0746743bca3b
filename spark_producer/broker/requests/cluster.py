"""The handlers of ApiVersions and Metadata."""

from __future__ import annotations

from typing import Final

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.broker.requests.topics import MAX_NEW_PARTITIONS
from spark_producer.broker.storage.base import LEADER_EPOCH
from spark_producer.broker.topic_names import is_legal_name
from spark_producer.broker.topic_store import NewTopic, Topic
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import API_VERSIONS, APIS, END_TXN, PRODUCE, TXN_OFFSET_COMMIT, AnyApi, messages

_TRANSACTION_VERSION: Final = "transaction.version"
_FIRST_WITH_FEATURES_FROM_0: Final = 4
_NO_NODE: Final = -1
_NEWEST_WITHOUT: Final = {PRODUCE.key: 11, END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4}
"""The newest versions of a broker without transaction.version 2, as in Kafka 3.9: the next ones imply it (KIP-890)."""

_FIRST_WITH_IDS: Final = 12
"""The first version of Metadata with topic ids: versions 10 and 11 have the field, but Kafka refuses it there (KafkaApis,
KAFKA-12701)."""


def api_versions(
    context: Context, version: int, request: messages.ApiVersionsRequest
) -> HandlerResult[messages.ApiVersionsResponse]:
    """Return the supported versions of each API, and the feature `transaction.version`.

    Produce is said to begin at version 0, as by Kafka's brokers since 4.0: librdkafka infers the message format from it
    (KAFKA-18659). The version that it then sends is within the actual range. A connection that is meant for another broker is
    refused (KIP-1242).
    """
    if code := _wrong_identity(context, request):
        return HandlerResult(messages.ApiVersionsResponse(code))
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


def _wrong_identity(context: Context, request: messages.ApiVersionsRequest) -> Code:
    """Return the error code of a request that is meant for another broker, or names only one of cluster and broker; else NONE."""
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return Code.INVALID_REQUEST
    own = context.topics.directory.cluster_id, context.settings.node_id
    is_own = request.cluster_id is None or (request.cluster_id, request.node_id) == own
    return Code.NONE if is_own else Code.REBOOTSTRAP_REQUIRED


def newest_version(api: AnyApi, transaction_version: int) -> int:
    """Return the newest version of an API at this level of `transaction.version`."""
    return api.max_version if transaction_version else _NEWEST_WITHOUT.get(api.key, api.max_version)


def unsupported_api_versions() -> messages.ApiVersionsResponse:
    """Return the response to an unsupported version of ApiVersions: it has the version for the next attempt (KIP-511)."""
    own = messages.ApiVersion(API_VERSIONS.key, API_VERSIONS.min_version, API_VERSIONS.max_version)
    return messages.ApiVersionsResponse(Code.UNSUPPORTED_VERSION, (own,))


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
