"""The offsets of consumer groups in transactions, and who coordinates what."""

from dataclasses import replace
from typing import Any

import pytest

from spark_producer.broker.context import Context
from spark_producer.broker.coordinator.log import NAME
from spark_producer.broker.storage.state_file import StateFile
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    ADD_OFFSETS_TO_TXN,
    DELETE_TOPICS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    messages,
)
from tests.unit.broker.coordinator.conftest import Broker
from tests.unit.broker.coordinator.transaction_requests import EXPLICIT, IMPLICIT, end, initialize, state
from tests.unit.broker.handler_calls import ask

NEWEST = {EXPLICIT: 4, IMPLICIT: 5}
TXN_VERSIONS = pytest.mark.parametrize("txn_version", [EXPLICIT, IMPLICIT], ids=["explicit", "implicit"])


def started(context: Context) -> tuple[int, int]:
    _, *producer = initialize(context)
    return producer[0], producer[1]


def add_group(context: Context, producer: tuple[int, int], group: str = "g", version: int = 4) -> int:
    request = messages.AddOffsetsToTxnRequest("id", *producer, group)
    return ask(context, ADD_OFFSETS_TO_TXN, request, version).error_code


def commit_offset(
    context: Context,
    producer: tuple[int, int],
    offset: int = 5,
    partition: tuple[str, int] = ("t", 0),
    *,
    group: str = "g",
    metadata: str | None = None,
    transactional_id: str = "id",
    version: int = 5,
    **fields: Any,
) -> int:
    """The error code."""
    topic, index = partition
    row = messages.TxnOffsetCommitRequestPartition(index, offset, 3, metadata)
    request = messages.TxnOffsetCommitRequest(transactional_id, group, *producer, **fields)
    topics = (messages.TxnOffsetCommitRequestTopic(topic, (row,)),)
    response = ask(context, TXN_OFFSET_COMMIT, request._replace(topics=topics), version)
    assert [(each.name, len(each.partitions)) for each in response.topics] == [(topic, 1)]
    return response.topics[0].partitions[0].error_code


def offsets(
    context: Context, group: str = "g", *, stable: bool = False, everything: bool = False
) -> dict[tuple[str, int], tuple[int, int]]:
    """Partition → (offset, error code)."""
    wanted = None if everything else (messages.OffsetFetchRequestTopic("t", (0, 1)),)
    request = messages.OffsetFetchRequest(
        groups=(messages.OffsetFetchRequestGroup(group, topics=wanted),), require_stable=stable
    )
    found = ask(context, OFFSET_FETCH, request).groups[0]
    assert (found.group_id, found.error_code) == (group, Code.NONE)
    old = messages.OffsetFetchRequest(group, wanted, require_stable=stable)
    assert ask(context, OFFSET_FETCH, old, 7).topics == found.topics
    return {
        (topic.name, row.partition_index): (row.committed_offset, row.error_code)
        for topic in found.topics
        for row in topic.partitions
    }


@TXN_VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_offsets_are_in_force_when_the_transaction_is_committed(broker: Broker, txn_version: int, commit: bool) -> None:
    me = started(broker.context)
    nothing, unstable = (-1, Code.NONE), (-1, Code.UNSTABLE_OFFSET_COMMIT)
    assert offsets(broker.context, stable=True) == {("t", 0): nothing, ("t", 1): nothing}
    if txn_version == EXPLICIT:
        assert add_group(broker.context, me) == Code.NONE
    assert commit_offset(broker.context, me, 5, version=NEWEST[txn_version]) == Code.NONE
    assert commit_offset(broker.context, me, 6, version=NEWEST[txn_version]) == Code.NONE

    for context in (broker.context, broker.restart()):
        assert offsets(context) == {("t", 0): nothing, ("t", 1): nothing}
        assert offsets(context, stable=True) == {("t", 0): unstable, ("t", 1): nothing}
        assert offsets(context, everything=True) == {}
    assert end(broker.context, me, commit=commit, txn_version=txn_version)[0] == Code.NONE
    for context in (broker.context, broker.restart()):
        after = (6, Code.NONE) if commit else nothing
        assert offsets(context, stable=True) == {("t", 0): after, ("t", 1): nothing}
        assert offsets(context, everything=True) == ({("t", 0): after} if commit else {})
        groups = ask(context, LIST_GROUPS, messages.ListGroupsRequest()).groups
        assert [group.group_id for group in groups] == (["g"] if commit else [])


def test_a_later_transaction_replaces_an_offset_and_keeps_the_others(context: Context) -> None:
    me = started(context)
    for offset, partition in ((5, ("t", 0)), (7, ("t", 1))):
        assert commit_offset(context, me, offset, partition) == Code.NONE
    me = (me[0], end(context, me)[2])
    assert commit_offset(context, me, 9) == Code.NONE
    assert offsets(context) == {("t", 0): (5, Code.NONE), ("t", 1): (7, Code.NONE)}
    assert end(context, me)[0] == Code.NONE
    assert offsets(context) == {("t", 0): (9, Code.NONE), ("t", 1): (7, Code.NONE)}


def test_a_crash_between_the_lines_of_an_end_loses_no_offset(broker: Broker) -> None:
    me = started(broker.context)
    assert commit_offset(broker.context, me, 5) == Code.NONE
    assert end(broker.context, me)[0] == Code.NONE
    broker.close()
    log = broker.data_dir / NAME
    *lines, _ = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines))
    StateFile(broker.data_dir).store(replace(StateFile(broker.data_dir).load(), coordinator_bytes=1))
    context = broker.open()
    assert offsets(context, stable=True)["t", 0] == (5, Code.NONE)
    assert state(context).transaction_state == "CompleteCommit"


def test_an_offset_is_unstable_until_the_last_transaction_ends(context: Context) -> None:
    _, *first = initialize(context, "a")
    _, *second = initialize(context, "b")
    for name, producer in (("a", first), ("b", second)):
        assert commit_offset(context, (producer[0], producer[1]), 5, transactional_id=name) == Code.NONE
    assert end(context, (first[0], first[1]), transactional_id="a")[0] == Code.NONE
    assert offsets(context)["t", 0] == (5, Code.NONE)
    assert offsets(context, stable=True)["t", 0] == (-1, Code.UNSTABLE_OFFSET_COMMIT)
    assert end(context, (second[0], second[1]), transactional_id="b", commit=False)[0] == Code.NONE
    assert offsets(context, stable=True)["t", 0] == (5, Code.NONE)


def test_a_fenced_producer_leaves_no_offset(context: Context) -> None:
    me = started(context)
    assert commit_offset(context, me) == Code.NONE
    initialize(context)
    assert offsets(context, stable=True)["t", 0] == (-1, Code.NONE)
    assert commit_offset(context, me) == Code.INVALID_PRODUCER_EPOCH
    assert add_group(context, me) == Code.PRODUCER_FENCED
    assert add_group(context, me, version=1) == Code.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, Code.INVALID_TXN_STATE), (3, Code.INVALID_TXN_STATE), (4, Code.TRANSACTION_ABORTABLE), (5, Code.NONE)],
)
def test_a_group_is_added_before_its_offsets(context: Context, version: int, code: Code) -> None:
    me = started(context)
    assert commit_offset(context, me, version=version) == code
    assert state(context).transaction_state == ("Ongoing" if version == 5 else "Empty")
    assert add_group(context, me, "h") == Code.NONE
    assert commit_offset(context, me, group="h", version=version) == Code.NONE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"partition": ("t", 3)}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": ("u", 0)}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "x" * 4097}, Code.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": "x" * 4096}, Code.NONE),
        ({"group": ""}, Code.INVALID_GROUP_ID),
        ({"group": "x" * 256}, Code.INVALID_GROUP_ID),
        ({"generation_id": 0}, Code.ILLEGAL_GENERATION),
        ({"generation_id": 0, "member_id": "me"}, Code.ILLEGAL_GENERATION),
        ({"member_id": "me"}, Code.NONE),
        ({"transactional_id": "unknown"}, Code.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_offsets_that_are_refused(context: Context, fields: dict[str, Any], code: Code) -> None:
    me = started(context)
    assert commit_offset(context, me, **fields) == code


def test_a_group_with_a_long_name_is_not_kept(context: Context) -> None:
    """A hundred thousand names of 32 KB would fill the memory."""
    me = started(context)
    assert add_group(context, me, "x" * 256) == Code.INVALID_GROUP_ID
    assert state(context).transaction_state == "Empty"
    assert add_group(context, me, "x" * 255) == Code.NONE


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("version", range(1, 7))
def test_this_broker_coordinates_everything(context: Context, version: int, kind: int) -> None:
    request = messages.FindCoordinatorRequest("k", kind, ("k", "l"))
    response = ask(context, FIND_COORDINATOR, request, version)
    place = (Code.INVALID_REQUEST, -1, "", -1) if kind == 2 else (Code.NONE, 1, "broker.test", 9999)
    if version < 4:
        assert (response.error_code, response.node_id, response.host, response.port) == place
    else:
        rows = [(row.key, row.error_code, row.node_id, row.host, row.port) for row in response.coordinators]
        assert rows == [("k", *place), ("l", *place)]


@pytest.mark.parametrize(
    ("filters", "count"),
    [((), 1), ((("Empty",),), 1), ((("Stable",),), 0), (((), ("classic",)), 1), (((), ("consumer",)), 0)],
)
def test_groups_are_listed_as_those_without_members(
    context: Context, filters: tuple[tuple[str, ...], ...], count: int
) -> None:
    me = started(context)
    commit_offset(context, me)
    end(context, me)
    rows = ask(context, LIST_GROUPS, messages.ListGroupsRequest(*filters)).groups
    assert rows == (messages.ListedGroup("g", "", "Empty", "classic"),) * count


@TXN_VERSIONS
def test_what_a_transaction_would_commit_for_a_deleted_topic_is_forgotten(broker: Broker, txn_version: int) -> None:
    me = started(broker.context)
    broker.context.topics.create("u", 1)
    if txn_version == EXPLICIT:
        add_group(broker.context, me)
    for partition in (("u", 0), ("t", 0)):
        assert commit_offset(broker.context, me, 7, partition, version=NEWEST[txn_version]) == Code.NONE
    assert [
        row.error_code for row in ask(broker.context, DELETE_TOPICS, messages.DeleteTopicsRequest(("u",))).responses
    ] == [Code.NONE]
    broker.context.topics.create("u", 1)
    assert end(broker.context, me, txn_version=txn_version)[0] == Code.NONE
    assert set(offsets(broker.context, everything=True)) == {("t", 0)}
    before = broker.context.coordinator.offsets.weight
    assert set(offsets(broker.restart(), everything=True)) == {("t", 0)}
    assert broker.context.coordinator.offsets.weight == before == 1
