"""A member of a group, and the answers that it gets: to JoinGroup and to SyncGroup, which both may come later."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from spark_producer.common.error_codes import Code

NO_GENERATION: Final = -1

_EMPTY: Final = sys.getsizeof("")

MEMBER_COST: Final = 2048
"""The bytes of memory that are counted for a member, beside its names and what it says of itself."""

PROTOCOL_COST: Final = 200
"""The bytes of memory that are counted for each protocol of a member, beside its name: a request may name 50,000 without one."""


def text_size(text: str) -> int:
    """Return the bytes of memory that a text counts for: one with a single character beyond Latin takes several for each."""
    return sys.getsizeof(text) - _EMPTY


class ClientInfo(NamedTuple):
    """Who sends a request: its client id, and the host that it comes from."""

    id: str = ""
    host: str = ""


class MemberProtocol(NamedTuple):
    """A way to share out that a member knows, and what the member says of itself for that."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """A JoinGroup as it came. A new member has an empty `member_id`; times are in seconds.

    needs_id: a new member is given its id first, and joins with it (KIP-394).
    may_skip: the leader can be told to keep the assignments that there are (KIP-814).
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
        """The bytes of memory that the member will count for."""
        # The names are in the member's id too, and in the group's table of instances.
        twice = text_size(self.client.id) + text_size(self.instance or "")
        text = 2 * twice + text_size(self.client.host) + text_size(self.protocol_type) + text_size(self.group)
        protocols = sum(PROTOCOL_COST + text_size(each.name) + len(each.metadata) for each in self.protocols)
        return MEMBER_COST + text + protocols


class JoinGroupMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance: str | None
    metadata: bytes


class JoinGroupResult(NamedTuple):
    """The answer to JoinGroup: the generation that has begun; to its leader with all members."""

    code: Code
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinGroupMember, ...] = ()
    skip_assignment: bool = False


class SyncGroupResult(NamedTuple):
    """The answer to SyncGroup: what the member is assigned."""

    code: Code
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


GroupResult = TypeVar("GroupResult", bound="JoinGroupResult | SyncGroupResult")


class GroupResponseFuture(Generic[GroupResult]):
    """The place of an answer, which may come later."""

    __slots__ = ("result",)

    def __init__(self, result: GroupResult | None = None) -> None:
        self.result: GroupResult | None = result


@dataclass(slots=True, eq=False)
class Member:
    """A member, who lives until `expires_at` unless it is heard of before, or waits for an answer."""

    id: str
    instance: str | None
    client: ClientInfo
    session_s: float
    rebalance_s: float
    protocols: tuple[MemberProtocol, ...]
    expires_at: float
    size: int
    is_new: bool = True
    """Whether it has not been in a generation yet: while it waits it may have gone."""
    assignment: bytes = b""
    joining: GroupResponseFuture[JoinGroupResult] | None = None
    syncing: GroupResponseFuture[SyncGroupResult] | None = None
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = frozenset(each.name for each in self.protocols)

    @property
    def is_kept(self) -> bool:
        """Whether it need not be heard of, since it waits for an answer of the group."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def update(self, join_request: JoinRequest) -> None:
        """Take what the member says of itself now."""
        self.protocols, self.client = join_request.protocols, join_request.client
        self.names = frozenset(each.name for each in self.protocols)
        self.session_s, self.rebalance_s, self.size = (
            join_request.session_s,
            join_request.rebalance_s,
            join_request.size,
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Return what it says of itself for a protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")
