"""A member of a group, and the results of JoinGroup and SyncGroup, which may be delayed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from spark_producer.common.error_codes import Code

NO_GENERATION: Final = -1

_EMPTY: Final = sys.getsizeof("")

MEMBER_COST: Final = 2048
"""Bytes of memory that are counted for a member, besides its names and its metadata."""

PROTOCOL_COST: Final = 200
"""Bytes of memory that are counted for each protocol of a member, besides its name: a request may name 50,000 empty ones."""


def text_size(text: str) -> int:
    """Return the bytes of memory of a string: one character beyond Latin-1 makes every character take several bytes."""
    return sys.getsizeof(text) - _EMPTY


class ClientInfo(NamedTuple):
    """The client of a request: its client id and its host."""

    id: str = ""
    host: str = ""


class MemberProtocol(NamedTuple):
    """A protocol that a member supports, with its metadata for it."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """A JoinGroup request. A new member has an empty `member_id`; times are in seconds.

    needs_id: whether a new member is first given its id, with which it joins again (KIP-394).
    may_skip: whether the client supports `skip_assignment`, with which a leader keeps the assignments (KIP-814).
    """

    group: str
    member_id: str
    instance: str | None
    client: ClientInfo
    session_s: float
    rebalance_s: float
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    needs_id: bool = True
    may_skip: bool = True

    @property
    def size(self) -> int:
        """The bytes of memory that are counted for the member."""
        # These names are also in the member's id and in the group's table of instances.
        twice = text_size(self.client.id) + text_size(self.instance or "")
        text = 2 * twice + text_size(self.client.host) + text_size(self.protocol_type) + text_size(self.group)
        protocols = sum(PROTOCOL_COST + text_size(each.name) + len(each.metadata) for each in self.protocols)
        return MEMBER_COST + text + protocols


class JoinGroupMember(NamedTuple):
    """A member in the JoinGroup response of the leader."""

    member_id: str
    instance: str | None
    metadata: bytes


class JoinGroupResult(NamedTuple):
    """The result of JoinGroup: the new generation, with all members for its leader."""

    code: Code
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinGroupMember, ...] = ()
    skip_assignment: bool = False


class SyncGroupResult(NamedTuple):
    """The result of SyncGroup: the member's assignment."""

    code: Code
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


GroupResult = TypeVar("GroupResult", bound="JoinGroupResult | SyncGroupResult")


class GroupResponseFuture(Generic[GroupResult]):
    """A result that may come later."""

    __slots__ = ("result",)

    def __init__(self, result: GroupResult | None = None) -> None:
        self.result: GroupResult | None = result


@dataclass(slots=True, eq=False)
class Member:
    """A member. It is removed at `expires_at`, unless it sends a request before or waits for a result."""

    id: str
    instance: str | None
    client: ClientInfo
    session_s: float
    rebalance_s: float
    protocols: tuple[MemberProtocol, ...]
    expires_at: float
    size: int
    is_new: bool = True
    """Whether it has not been in a generation yet: it may have gone while it waits."""
    assignment: bytes = b""
    joining: GroupResponseFuture[JoinGroupResult] | None = None
    syncing: GroupResponseFuture[SyncGroupResult] | None = None
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = frozenset(each.name for each in self.protocols)

    @property
    def is_kept(self) -> bool:
        """Whether its session cannot expire, since it waits for a result of the group."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def update(self, join_request: JoinRequest) -> None:
        """Replace protocols, client and timeouts by those of a new JoinGroup."""
        self.protocols, self.client = join_request.protocols, join_request.client
        self.names = frozenset(each.name for each in self.protocols)
        self.session_s, self.rebalance_s, self.size = (
            join_request.session_s,
            join_request.rebalance_s,
            join_request.size,
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata for a protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")
