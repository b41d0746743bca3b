"""What can be set on the embedded broker: one frozen table for the broker, one for a topic.

Owns: names, defaults and legal values.
Must not know: sockets, files, or the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from spark_producer.broker import codes
from spark_producer.errors import BrokerError, ConfigError

SMALLEST_SEGMENT: Final = 14
"""Kafka's lower bound of `segment.bytes`."""


@dataclass(frozen=True)
class TopicSettings:
    """The settings of one topic, under Kafka's names (with `_` for `.`).

    max_message_bytes: largest record batch accepted, header included (Kafka's default: 1 MiB + 12).
    segment_bytes: a segment file is closed, and the next begun, before it would outgrow this.
    """

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 256 * 1024 * 1024


_FIXED: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}
"""Settings that clients like to send, with the one value that is true of this broker."""


@dataclass(frozen=True)
class BrokerSettings:
    """The settings of a broker.

    default_partitions: of topics that are made without saying how many.
    auto_create_topics: Metadata makes unknown topics, if the request allows it.
    sync_each_append: fdatasync before a Produce is answered. Off by default, as in Kafka: an acknowledged batch then
        survives the death of the process at any moment, but not a loss of power.
    sync_on_close: put everything on the disk before `close` returns.
    max_request_bytes: a larger frame drops the connection (Kafka's `socket.request.max.bytes`).
    topic: defaults for every topic.
    """

    default_partitions: int = 1
    auto_create_topics: bool = True
    sync_each_append: bool = False
    sync_on_close: bool = True
    max_request_bytes: int = 100 * 1024 * 1024
    node_id: int = 1
    topic: TopicSettings = TopicSettings()

    def __post_init__(self) -> None:
        if self.default_partitions < 1:
            raise ConfigError(f"default_partitions is {self.default_partitions}; a topic has at least one partition")
        if self.max_request_bytes < 1:
            raise ConfigError(f"max_request_bytes is {self.max_request_bytes}; it must be positive")


def topic_settings(given: Mapping[str, str | None], defaults: TopicSettings) -> TopicSettings:
    """`defaults` with the settings that a CreateTopics request gives (Kafka's dotted names).

    Raises:
        BrokerError: INVALID_CONFIG, for a setting that this broker does not apply, or a value that is no number.
    """
    numbers = {field.name.replace("_", "."): field.name for field in fields(TopicSettings)}
    changes: dict[str, int] = {}
    for name, value in given.items():
        if name in numbers:
            changes[numbers[name]] = _natural(name, value)
        elif _FIXED.get(name) != value or value is None:
            known = ", ".join([*numbers, *(f"{key}={fixed}" for key, fixed in _FIXED.items())])
            raise BrokerError(
                f"topic setting {name}={value} is not supported by the embedded broker, which knows: {known}",
                code=codes.INVALID_CONFIG,
            )
    return replace(defaults, **changes)


def _natural(name: str, value: str | None) -> int:
    if (
        value is None
        or not value.isascii()
        or not value.isdigit()
        or (name == "segment.bytes" and int(value) < SMALLEST_SEGMENT)
    ):
        raise BrokerError(f"topic setting {name} has the bad value {value!r}", code=codes.INVALID_CONFIG)
    return int(value)
