"""The input and the output of request handlers: `Context` and `HandlerResult`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple

from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.coordinator.groups.member import ClientInfo
from spark_producer.broker.deferred_response import DeferredResponse
from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.topic_store import TopicStore
from spark_producer.protocol import ResponseBody


class Endpoint(NamedTuple):
    """The address of the broker for clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Context(NamedTuple):
    """The broker as request handlers see it: topics, coordinator, settings, advertised address, and the client of the request."""

    topics: TopicStore
    settings: BrokerSettings
    advertised: Endpoint
    coordinator: BrokerCoordinator
    client: ClientInfo = ClientInfo()


class HandlerResult(NamedTuple, Generic[ResponseBody]):
    """The result of a request handler.

    body: the response; None if the client wants none (acks=0), or if it is `deferred`.
    changed: the keys of partitions whose log has changed (`partition_key`), and of completed group responses: delayed responses
        that wait for them are checked again.
    close: whether to drop the connection: there is no other way to report an error to a client that wants no response.
    deferred: the delayed response.
    """

    body: ResponseBody | None
    changed: tuple[Hashable, ...] = ()
    close: bool = False
    deferred: DeferredResponse | None = None


def partition_key(topic: str, partition: int) -> Hashable:
    """Return the key of a partition in `HandlerResult.changed` and in the purgatory."""
    return (topic, partition)
