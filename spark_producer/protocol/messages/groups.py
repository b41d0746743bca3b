"""The messages about consumer groups: ListGroups."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import Int16, Int32, Since, String

# ListGroups (16)


class ListGroupsRequest(NamedTuple):
    """Asks which groups there are. An empty filter lets all of them pass (KIP-518, KIP-848)."""

    states_filter: Annotated[tuple[String, ...], Since(4)] = ()
    types_filter: Annotated[tuple[String, ...], Since(5)] = ()


class ListedGroup(NamedTuple):
    """One group."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


class ListGroupsResponse(NamedTuple):
    """The groups that this broker coordinates."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()
