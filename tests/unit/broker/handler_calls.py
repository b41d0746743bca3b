"""Calls of the broker's request handlers, without a socket."""

from typing import cast

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context, Endpoint, HandlerResult
from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.requests.handlers import handle
from spark_producer.broker.topic_store import TopicStore
from spark_producer.protocol import Api, RequestBody, RequestFrame, ResponseBody

BROKER = Endpoint("broker.test", 9999)

MAX_RECORDS = 100 * 1024 * 1024
"""More bytes than any response has."""


def handled(
    context: Context, api: Api[RequestBody, ResponseBody], body: RequestBody, version: int | None = None
) -> HandlerResult[ResponseBody]:
    """Return the handler's result for a request, in the newest version of the API unless one is given."""
    return handle(context, RequestFrame(api, api.max_version if version is None else version, 1, "test", body))


def ask(
    context: Context, api: Api[RequestBody, ResponseBody], body: RequestBody, version: int | None = None
) -> ResponseBody:
    """Return the current response to a request."""
    result = handled(context, api, body, version)
    response = result.body if result.deferred is None else result.deferred.response(MAX_RECORDS)
    assert response is not None
    return cast("ResponseBody", response)


def context_of(store: TopicStore, settings: BrokerSettings, advertised: Endpoint = BROKER) -> Context:
    """Return the context of the handlers, with a coordinator whose log is beside the topics of `store`."""
    return Context(store, settings, advertised, BrokerCoordinator(store, settings))
