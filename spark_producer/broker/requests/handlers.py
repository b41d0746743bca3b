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
    RequestFrame,
)

Handler: TypeAlias = Callable[[Context, int, Any], Answer]

HANDLERS: Final[dict[int, Handler]] = {
    API_VERSIONS.key: admin.api_versions,
    METADATA.key: admin.metadata,
    CREATE_TOPICS.key: admin.create_topics,
    DELETE_TOPICS.key: admin.delete_topics,
    LIST_GROUPS.key: admin.list_groups,
    DESCRIBE_CONFIGS.key: configs.describe_configs,
    INCREMENTAL_ALTER_CONFIGS.key: configs.incremental_alter_configs,
    PRODUCE.key: writing.produce,
    INIT_PRODUCER_ID.key: writing.init_producer_id,
    FETCH.key: reading.fetch,
    LIST_OFFSETS.key: reading.list_offsets,
}


def handle(context: Context, request: RequestFrame) -> Answer:
    """Return the answer to one request."""
    return HANDLERS[request.api.key](context, request.version, request.body)
