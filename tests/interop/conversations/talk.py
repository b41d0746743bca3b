"""The state of one conversation: its connections, and the names by which it calls producers, ids, partitions, groups and members.

Every conversation has its own transactional ids, groups and partitions, in which epochs and offsets begin at 0. So its answers
can be compared with those of another broker, once producer ids are numbered in the order of their appearance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

from spark_producer.common.error_codes import Code
from spark_producer.protocol import Api, RequestBody, ResponseBody
from tests.fakes.raw_client import RawClient

_WHO = re.compile(r"(\w+)([+-]\d+)?(\*)?")
_STRANGER = 1_000_000
_MEMBER_ID = re.compile("-[0-9a-f-]{36}$")
UUID_LENGTH = 37
"""The characters of a dash and a UUID, which end every member id."""
NO_PRODUCER = (-1, -1)


class NotMet(LookupError):
    """A step needs a producer that an earlier answer was to bring."""


class Place(NamedTuple):
    """Broker and partitions of a conversation: those of `topic` from `first` on, which no other conversation uses."""

    port: int
    topic: str
    first: int
    suffix: str


class Talk:
    """Context manager: closes its connections."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._connections: dict[str, RawClient] = {}
        self._producers: dict[str, tuple[int, int]] = {"stranger": NO_PRODUCER}
        self._ids: dict[int, str] = {-1: "-"}
        self._members: dict[str, str] = {}
        self.generation = -1
        """The last generation that a group returned."""
        self.unanswered: dict[str, Callable[[], str]] = {}
        """Connection → takes the answer to the request that was sent on it and not waited for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._connections.values():
            client.socket.close()

    def client(self, connection: str) -> RawClient:
        """The connection of that name, opened when it is first used."""
        if connection not in self._connections:
            self._connections[connection] = RawClient(self.place.port)
        return self._connections[connection]

    def hang_up(self, connection: str) -> None:
        """Forget a connection that the broker has closed: the next request of that name opens another one."""
        self._connections.pop(connection).socket.close()

    def ask(
        self, connection: str, api: Api[RequestBody, ResponseBody], version: int, body: RequestBody
    ) -> ResponseBody:
        """The answer to one request."""
        return self.client(connection).ask(api, body, version)

    def producer(self, who: str) -> tuple[int, int]:
        """Return producer id and epoch: `a` as last returned, `a-1` with the epoch before, `a*` with an unknown producer id."""
        found = _WHO.fullmatch(who)
        assert found, who
        name, epochs, stranger = found.groups()
        if name not in self._producers:
            raise NotMet(f"no producer is called {name} yet")
        producer_id, epoch = self._producers[name]
        return producer_id + (_STRANGER if stranger else 0), epoch + int(epochs or 0)

    def meet(self, who: str, producer_id: int, epoch: int) -> str:
        """Remember a response's producer, if it has one; return its text."""
        if producer_id >= 0:
            self._producers[who] = (producer_id, epoch)
        return self.producer_text(producer_id, epoch)

    def producer_text(self, producer_id: int, epoch: int) -> str:
        """A producer as it is written down: P1 epoch 0."""
        if producer_id not in self._ids:
            self._ids[producer_id] = f"P{len(self._ids)}"
        return "no producer" if producer_id < 0 else f"{self._ids[producer_id]} epoch {epoch}"

    def member(self, name: str) -> str:
        """The member id that is called so; a name that was not met is sent as it is."""
        return self._members.get(name, name)

    def is_member(self, name: str) -> bool:
        """Return whether a member id is called so."""
        return name in self._members

    def meet_member(self, name: str, member_id: str) -> None:
        """Remember the member id that a group has given out."""
        if member_id:
            self._members[name] = member_id

    def member_called(self, member_id: str) -> str:
        """A member as it is written down: by the last name under which it was met, or by how its id begins."""
        name = next((name for name, known in reversed(self._members.items()) if known == member_id), None)
        return name or _MEMBER_ID.sub("-…", member_id)

    def named(self, name: str) -> str:
        """The transactional id or group that is called so here; an empty one stays empty."""
        return f"{name}-{self.place.suffix}" if name else ""

    def is_ours(self, name: str) -> bool:
        """Return whether a transactional id or group belongs to this conversation."""
        return name.endswith(f"-{self.place.suffix}")

    def called(self, name: str) -> str:
        """Return a name without the suffix that `named` gave it."""
        return name.removesuffix(f"-{self.place.suffix}")

    def partition(self, number: int) -> int:
        """The partition that is called so here. From 1000 on there is none."""
        return self.place.first + number

    def partitions_text(self, numbers: Iterable[int]) -> str:
        """Partitions as they are called here."""
        return ", ".join(str(number - self.place.first) for number in sorted(numbers))


def error(code: int) -> str:
    """An error code as it is written down."""
    return "NONE" if code == 0 else f"{Code(code).name} ({code})"
