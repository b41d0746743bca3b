"""What every request handler gets: the topics, the settings, and the address that clients are told.

Owns: nothing; it names things together.
Must not know: sockets.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.topic_store import TopicStore


class Endpoint(NamedTuple):
    """Where clients reach the broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Context(NamedTuple):
    """The broker, as the handlers see it."""

    topics: TopicStore
    settings: BrokerSettings
    advertised: Endpoint


class Answer(NamedTuple):
    """What came of a request.

    body: the response, None if the client wants none (acks=0).
    changed: partitions whose log has changed, so that those who wait for them are looked at again; see `partition_key`.
    unconfirmed: `body` is a ProduceResponse that must not go out before what it acknowledges is confirmed (`requests.writing`).
    close: drop the connection, the only way to tell a client that wants no response that something is wrong.
    """

    body: tuple[Any, ...] | None
    changed: tuple[Hashable, ...] = ()
    unconfirmed: bool = False
    close: bool = False


def partition_key(topic: str, partition: int) -> Hashable:
    """How `Answer.changed` and waiting requests name a partition."""
    return (topic, partition)
