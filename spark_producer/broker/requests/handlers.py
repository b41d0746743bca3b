"""The table of request handlers, by API key.

A handler turns a request tuple into a `HandlerResult` and knows no sockets. Its time of day is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.broker.coordinator.groups.member import ClientInfo
from spark_producer.broker.requests import (
    cluster,
    configs,
    fetch,
    group_offsets,
    groups,
    list_offsets,
    members,
    partitions,
    produce,
    producers,
    sasl,
    topics,
    transactions,
)
from spark_producer.errors import UnsupportedVersion
from spark_producer.protocol import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
    Api,
    RequestBody,
    RequestFrame,
    ResponseBody,
)

Handler: TypeAlias = Callable[[Context, int, RequestBody], HandlerResult[ResponseBody]]
"""A function of (context, version, request) that returns the result."""


def _row(
    api: Api[RequestBody, ResponseBody], handler: Handler[RequestBody, ResponseBody]
) -> tuple[int, Handler[Any, Any]]:
    """Return a row of the table; here the type checker verifies that the handler is for this API."""
    return api.key, handler


HANDLERS: Final[dict[int, Handler[Any, Any]]] = dict(
    [
        _row(API_VERSIONS, cluster.api_versions),
        _row(METADATA, cluster.metadata),
        _row(CREATE_TOPICS, topics.create_topics),
        _row(DELETE_TOPICS, topics.delete_topics),
        _row(LIST_GROUPS, groups.list_groups),
        _row(FIND_COORDINATOR, groups.find_coordinator),
        _row(TXN_OFFSET_COMMIT, group_offsets.txn_offset_commit),
        _row(OFFSET_FETCH, group_offsets.offset_fetch),
        _row(OFFSET_COMMIT, group_offsets.offset_commit),
        _row(OFFSET_DELETE, group_offsets.offset_delete),
        _row(DESCRIBE_GROUPS, groups.describe_groups),
        _row(DELETE_GROUPS, groups.delete_groups),
        _row(JOIN_GROUP, members.join_group),
        _row(SYNC_GROUP, members.sync_group),
        _row(HEARTBEAT, members.heartbeat),
        _row(LEAVE_GROUP, members.leave_group),
        _row(SASL_HANDSHAKE, sasl.sasl_handshake),
        _row(SASL_AUTHENTICATE, sasl.sasl_authenticate),
        _row(DESCRIBE_CONFIGS, configs.describe_configs),
        _row(INCREMENTAL_ALTER_CONFIGS, configs.incremental_alter_configs),
        _row(ALTER_CONFIGS, configs.alter_configs),
        _row(CREATE_PARTITIONS, partitions.create_partitions),
        _row(DELETE_RECORDS, partitions.delete_records),
        _row(DESCRIBE_LOG_DIRS, partitions.describe_log_dirs),
        _row(PRODUCE, produce.produce),
        _row(INIT_PRODUCER_ID, transactions.init_producer_id),
        _row(ADD_PARTITIONS_TO_TXN, transactions.add_partitions),
        _row(ADD_OFFSETS_TO_TXN, transactions.add_offsets),
        _row(END_TXN, transactions.end_txn),
        _row(DESCRIBE_TRANSACTIONS, transactions.describe_transactions),
        _row(LIST_TRANSACTIONS, transactions.list_transactions),
        _row(FETCH, fetch.fetch),
        _row(LIST_OFFSETS, list_offsets.list_offsets),
        _row(DESCRIBE_PRODUCERS, producers.describe_producers),
        _row(WRITE_TXN_MARKERS, producers.write_txn_markers),
    ]
)


def handle(
    context: Context, request: RequestFrame[RequestBody, ResponseBody], host: str = ""
) -> HandlerResult[ResponseBody]:
    """Return the result of one request of a client on `host`.

    Raises:
        UnsupportedVersion: the version of the request is not supported with this `transaction_version`.
    """
    if request.version > cluster.newest_version(request.api, context.settings.transaction_version):
        raise UnsupportedVersion(f"{request.api.name} {request.version} is not supported with transaction_version=0")
    handler: Handler[RequestBody, ResponseBody] = HANDLERS[request.api.key]
    client_context = context._replace(client=ClientInfo(request.client_id or "", host))
    return handler(client_context, request.version, request.body)
