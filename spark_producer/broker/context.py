"""The types that every request handler gets and returns: the broker as it sees it (`Context`), and its `HandlerResult`."""

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
    """The address at which clients reach the broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Context(NamedTuple):
    """The broker as the request handlers see it: its topics, its transactions and groups, its settings, the address that clients
    are told, and the client whose request is handled."""

    topics: TopicStore
    settings: BrokerSettings
    advertised: Endpoint
    coordinator: BrokerCoordinator
    client: ClientInfo = ClientInfo()


class HandlerResult(NamedTuple, Generic[ResponseBody]):
    """The result of handling a request.

    body: the response; None if the client wants none (acks=0), or if it comes later.
    changed: the partitions whose log has changed (`partition_key`), and the answers that groups have given; requests that wait
        for them are looked at again.
    close: the connection must be dropped: there is no other way to tell a client that wants no response of an error.
    pending: what has the response once it is ready.
    """

    body: ResponseBody | None
    changed: tuple[Hashable, ...] = ()
    close: bool = False
    deferred: DeferredResponse | None = None


def partition_key(topic: str, partition: int) -> Hashable:
    """Return the key by which `HandlerResult.changed` and waiting requests name a partition."""
    return (topic, partition)
