"""The table that says which function answers which request.

Each of these handlers is a pure step from a request tuple to an `Answer`, without sockets and clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from spark_producer.broker.context import Answer, Context
from spark_producer.broker.requests import admin, configs, reading, writing
from spark_producer.protocol import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    RequestBody,
    RequestFrame,
    ResponseBody,
)

Handler: TypeAlias = Callable[[Context, int, RequestBody], Answer[ResponseBody]]
"""Map (context, version, request) to the answer."""


def _row(
    api: Api[RequestBody, ResponseBody], handler: Handler[RequestBody, ResponseBody]
) -> tuple[int, Handler[Any, Any]]:
    """Return a row of the table; the type checker sees here that the handler is one for this API."""
    return api.key, handler


HANDLERS: Final[dict[int, Handler[Any, Any]]] = dict(
    [
        _row(API_VERSIONS, admin.api_versions),
        _row(METADATA, admin.metadata),
        _row(CREATE_TOPICS, admin.create_topics),
        _row(DELETE_TOPICS, admin.delete_topics),
        _row(LIST_GROUPS, admin.list_groups),
        _row(SASL_HANDSHAKE, admin.sasl_handshake),
        _row(SASL_AUTHENTICATE, admin.sasl_authenticate),
        _row(DESCRIBE_CONFIGS, configs.describe_configs),
        _row(INCREMENTAL_ALTER_CONFIGS, configs.incremental_alter_configs),
        _row(PRODUCE, writing.produce),
        _row(INIT_PRODUCER_ID, writing.init_producer_id),
        _row(FETCH, reading.fetch),
        _row(LIST_OFFSETS, reading.list_offsets),
    ]
)


def handle(context: Context, request: RequestFrame[RequestBody, ResponseBody]) -> Answer[ResponseBody]:
    """Return the answer to one request."""
    handler: Handler[RequestBody, ResponseBody] = HANDLERS[request.api.key]
    return handler(context, request.version, request.body)
