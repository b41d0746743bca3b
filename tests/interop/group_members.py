"""Consumers of a group in this process, of librdkafka and of kafka-python, which are polled by turns."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from confluent_kafka import Consumer
from kafka import KafkaConsumer

SECONDS: Final = 60.0
GROUP: Final = "readers"
_POLL: Final = 0.05
_POLL_OF_PYTHON_MS: Final = 2000


class GroupMember(Protocol):
    """A consumer that has subscribed to the topic `t`. `values` are those of the records that it has read."""

    values: list[bytes]

    def poll(self) -> None:
        """Poll once, and keep the records that have arrived."""

    def partitions(self) -> set[int]:
        """The partitions that it is assigned."""

    def commit(self) -> None:
        """Commit what it has read; raises when it is refused."""

    def close(self) -> None:
        """Leave the group."""


class ConfluentMember:
    """A consumer of librdkafka, with its settings."""

    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        usual = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
        self.consumer = Consumer(usual | settings)
        self.consumer.subscribe(["t"])
        self.values: list[bytes] = []

    def poll(self) -> None:
        for message in self.consumer.consume(500, _POLL):
            if message.error() is None:
                self.values.append(message.value() or b"")

    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class PythonMember:
    """A consumer of kafka-python.

    A poll whose time is up in the middle of a SyncGroup leaves 3.0.12 without partitions for ever, also with real Kafka, so its
    polls may take longer.
    """

    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        usual = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
        }
        self.consumer = KafkaConsumer("t", bootstrap_servers=bootstrap_servers, **(usual | settings))
        self.values: list[bytes] = []

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=_POLL_OF_PYTHON_MS).values():
            self.values += [record.value for record in records]

    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close(autocommit=False)


MEMBERS: Final[dict[str, type[ConfluentMember] | type[PythonMember]]] = {
    "librdkafka": ConfluentMember,
    "kafka-python": PythonMember,
}


class Polled:
    """Context manager: members that are polled by turns, and closed in the end."""

    def __init__(self, *members: GroupMember) -> None:
        self.members = list(members)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self.members:
            member.close()

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll until it is so; else raise AssertionError with what there is."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            reported = [(sorted(each.partitions()), len(each.values)) for each in self.members]
            assert time.monotonic() < deadline, f"partitions and records of each: {reported}"
            for member in self.members:
                member.poll()

    def until_shared_out(self, shares: Sequence[int], partitions: int) -> None:
        """Poll until each member has its share of partitions, and together they have each of them once."""

        def shared_out() -> bool:
            owned = [each.partitions() for each in self.members]
            counts = Counter(partition for some in owned for partition in some)
            return sorted(map(len, owned)) == sorted(shares) and counts == Counter(range(partitions))

        self.until(shared_out)

    def until_read(self, wanted: Iterable[bytes]) -> None:
        """Poll until all these values were read, each once."""
        expected = Counter(wanted)
        self.until(lambda: sum(len(each.values) for each in self.members) >= expected.total())
        assert Counter(value for each in self.members for value in each.values) == expected
