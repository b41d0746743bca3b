"""Requests to the broker's handlers, without a socket."""

from typing import cast

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context, Endpoint, HandlerResult
from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.requests.handlers import handle
from spark_producer.broker.topic_store import TopicStore
from spark_producer.protocol import Api, RequestBody, RequestFrame, ResponseBody

BROKER = Endpoint("broker.test", 9999)

MAX_RECORDS = 100 * 1024 * 1024
"""More bytes than any answer has."""


def handled(
    context: Context, api: Api[RequestBody, ResponseBody], body: RequestBody, version: int | None = None
) -> HandlerResult[ResponseBody]:
    """The answer to a request, in the newest version of the API unless one is given."""
    return handle(context, RequestFrame(api, api.max_version if version is None else version, 1, "test", body))


def ask(
    context: Context, api: Api[RequestBody, ResponseBody], body: RequestBody, version: int | None = None
) -> ResponseBody:
    """The response to a request that wants one, as it is now."""
    answer = handled(context, api, body, version)
    response = answer.body if answer.deferred is None else answer.deferred.response(MAX_RECORDS)
    assert response is not None
    return cast("ResponseBody", response)


def context_of(store: TopicStore, settings: BrokerSettings, advertised: Endpoint = BROKER) -> Context:
    """The broker as the handlers see it, with a coordinator that keeps its log beside the topics of `store`."""
    return Context(store, settings, advertised, BrokerCoordinator(store, settings))
