"""The state machine of a group, step by step: generations, leaders, and what time does."""

from __future__ import annotations

import pytest

from spark_producer.broker.coordinator.groups import member_requests
from spark_producer.broker.coordinator.groups.group import NEW_MEMBER_TIMEOUT_S, GroupState
from spark_producer.broker.coordinator.groups.member import MemberProtocol
from spark_producer.common.error_codes import Code
from tests.unit.broker.coordinator.groups.group_harness import REBALANCE, SESSION, GroupHarness, completed


@pytest.fixture
def play() -> GroupHarness:
    return GroupHarness()


def test_the_first_member_leads_the_first_generation(play: GroupHarness) -> None:
    joined = completed(play.join())
    assert joined.code == Code.NONE
    assert (joined.generation, joined.leader, joined.protocol_type, joined.protocol) == (
        1,
        joined.member_id,
        "consumer",
        "range",
    )
    assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, b"t")]
    assert play.has_state(GroupState.COMPLETING)
    assert completed(play.sync(joined.member_id, {joined.member_id: b"all"})).assignment == b"all"
    assert play.has_state(GroupState.STABLE)


def test_a_member_id_begins_with_the_clients_name_or_the_instance(play: GroupHarness) -> None:
    assert completed(play.join()).member_id.startswith("c-")
    waiting = play.join(instance="me")
    assert waiting.result is None
    assert play.group.static["me"].startswith("me-")


def test_members_join_again_when_another_one_comes(play: GroupHarness) -> None:
    first = completed(play.join()).member_id
    completed(play.sync(first, {}))
    newcomer = play.join()
    assert newcomer.result is None
    assert play.has_state(GroupState.PREPARING)
    assert play.heartbeat(first) == Code.REBALANCE_IN_PROGRESS
    again = completed(play.join(first))
    second = completed(newcomer)
    assert (again.generation, second.generation) == (2, 2)
    assert [each.member_id for each in again.members] == [first, second.member_id]
    assert (second.leader, second.members) == (first, ())


def test_who_does_not_join_again_in_time_is_let_go(play: GroupHarness) -> None:
    first, second = play.stable(2)
    newcomer = play.join()
    again = play.join(first)
    while play.now < 1000 + REBALANCE - 5:  # alive, but it does not join
        assert play.heartbeat(second) == Code.REBALANCE_IN_PROGRESS
        play.wait(5)
    assert again.result is None
    play.wait(5)
    assert sorted(each.member_id for each in completed(again).members) == sorted([first, completed(newcomer).member_id])
    assert play.heartbeat(second) == Code.UNKNOWN_MEMBER_ID


def test_a_member_that_is_silent_for_its_session_is_let_go(play: GroupHarness) -> None:
    first, second = play.stable(2)
    play.wait(SESSION - 1)
    assert play.heartbeat(first) == Code.NONE
    play.wait(1)
    assert list(play.group.members) == [first]
    assert play.heartbeat(second) == Code.UNKNOWN_MEMBER_ID
    assert play.heartbeat(first) == Code.REBALANCE_IN_PROGRESS


def test_sessions_of_waiting_members_do_not_expire(play: GroupHarness) -> None:
    first, second, third = play.stable(3)
    waits = [play.join(first), play.join(second)]
    for _ in range(5):  # the third one lives, and the others say nothing for longer than their sessions
        play.wait(SESSION - 1)
        play.heartbeat(third)
    assert set(play.group.members) == {first, second, third}
    completed(play.join(third))
    assert all(each.result for each in waits)


def test_a_new_member_that_has_gone_is_not_waited_for_for_ever(play: GroupHarness) -> None:
    (first,) = play.stable(1, rebalance_s=2000.0)
    newcomer = play.join(rebalance_s=2000.0)
    while play.now < 1000 + NEW_MEMBER_TIMEOUT_S:
        play.heartbeat(first)
        play.wait(SESSION / 2)
    assert completed(newcomer).code == Code.UNKNOWN_MEMBER_ID
    assert list(play.group.members) == [first]


def test_another_member_leads_when_the_leader_does_not_join_again(play: GroupHarness) -> None:
    first, second = play.stable(2)
    newcomer, again = play.join(), play.join(second)
    play.wait(REBALANCE)
    assert completed(again).leader == second
    assert len(completed(again).members) == 2
    assert completed(newcomer).members == ()
    assert first not in play.group.members


def test_a_leader_that_brings_no_assignment_is_let_go_and_the_others_join_again(play: GroupHarness) -> None:
    first = completed(play.join()).member_id
    newcomer = play.join()
    completed(play.join(first))
    second = completed(newcomer).member_id
    waits = play.sync(second)
    while play.now < 1000 + REBALANCE:
        assert waits.result is None
        play.heartbeat(first)
        play.wait(SESSION / 2)
    assert completed(waits).code == Code.REBALANCE_IN_PROGRESS
    assert list(play.group.members) == [second]
    assert completed(play.join(second)).leader == second


def test_a_join_in_the_middle_of_a_sync_ends_it(play: GroupHarness) -> None:
    first = completed(play.join()).member_id
    newcomer = play.join()
    completed(play.join(first))
    waits = play.sync(completed(newcomer).member_id)
    play.join()
    assert completed(waits).code == Code.REBALANCE_IN_PROGRESS
    assert completed(play.sync(first, {})).code == Code.REBALANCE_IN_PROGRESS


def test_who_has_missed_an_answer_gets_it_again(play: GroupHarness) -> None:
    first = completed(play.join()).member_id
    newcomer = play.join()
    before = completed(play.join(first))
    second = completed(newcomer).member_id
    assert completed(play.join(first)) == before
    assert completed(play.join(second)) == completed(newcomer)
    play.sync(first, {second: b"mine"})
    assert completed(play.sync(second)).assignment == b"mine"
    assert completed(play.sync(second)).assignment == b"mine"
    assert completed(play.join(second)).generation == before.generation, (
        "a follower with unchanged metadata changes nothing"
    )
    assert play.has_state(GroupState.STABLE)
    assert play.join(first).result is None, "the leader may have found new partitions"


def test_changed_metadata_rebalance(play: GroupHarness) -> None:
    _, second = play.stable(2)
    assert play.join(second, protocols=(MemberProtocol("range", b"u"),)).result is None
    assert play.has_state(GroupState.PREPARING)


def test_the_first_of_two_joins_of_a_member_ends(play: GroupHarness) -> None:
    first, _ = play.stable(2)
    given_up = play.join(first, protocols=(MemberProtocol("range", b"u"),))
    play.join(first, protocols=(MemberProtocol("range", b"v"),))
    assert completed(given_up).code == Code.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("count", [1, 2])
def test_a_member_leaves(play: GroupHarness, count: int) -> None:
    *others, last = play.stable(count)
    generation = play.group.generation
    assert play.leave(last) == Code.NONE
    assert play.leave(last) == Code.UNKNOWN_MEMBER_ID
    if others:
        assert completed(play.join(others[0])).generation == generation + 1
    else:
        assert (play.group.state, play.group.generation, play.group.is_unused) == (
            GroupState.EMPTY,
            generation + 1,
            True,
        )
        assert completed(play.join()).generation == generation + 2


def test_a_member_that_leaves_while_it_waits_is_answered(play: GroupHarness) -> None:
    first, second = play.stable(2)
    waits = play.join(second, protocols=(MemberProtocol("range", b"u"),))
    assert play.leave(second) == Code.NONE
    assert completed(waits).code == Code.UNKNOWN_MEMBER_ID
    assert play.join(first).result is not None


def test_the_protocol_that_most_like_best_is_chosen(play: GroupHarness) -> None:
    a, b, c = (MemberProtocol(name, name.encode()) for name in "abc")
    first = completed(play.join(protocols=(a, b, c))).member_id
    second, third = play.join(protocols=(b, a)), play.join(protocols=(c, a, b))
    joined = completed(play.join(first, protocols=(a, b, c)))
    assert (joined.protocol, [each.metadata for each in joined.members]) == ("a", [b"a"] * 3)
    assert {completed(second).protocol, completed(third).protocol} == {"a"}
    play.join(completed(third).member_id, protocols=(b, c, a))
    play.join(completed(second).member_id, protocols=(b, a))
    assert completed(play.join(first, protocols=(a, b, c))).protocol == "b"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", ("range",)), ("consumer", ()), ("connect", ("range",)), ("consumer", ("sticky",))],
)
def test_who_shares_no_protocol_cannot_join(play: GroupHarness, protocol_type: str, protocols: tuple[str, ...]) -> None:
    play.stable(1)
    supported = tuple(MemberProtocol(name, b"") for name in protocols)
    assert (
        completed(play.join(protocol_type=protocol_type, protocols=supported)).code == Code.INCONSISTENT_GROUP_PROTOCOL
    )


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", ("range",)), ("consumer", ())])
def test_who_has_no_protocol_is_not_the_first_either(
    play: GroupHarness, protocol_type: str, protocols: tuple[str, ...]
) -> None:
    supported = tuple(MemberProtocol(name, b"") for name in protocols)
    assert (
        completed(play.join(protocol_type=protocol_type, protocols=supported)).code == Code.INCONSISTENT_GROUP_PROTOCOL
    )


def test_an_empty_group_takes_another_protocol_type(play: GroupHarness) -> None:
    (first,) = play.stable(1)
    play.leave(first)
    assert (
        completed(play.join(protocol_type="connect", protocols=(MemberProtocol("eager", b""),))).protocol_type
        == "connect"
    )


def test_kip394_a_member_id_is_given_out_first_and_must_be_used(play: GroupHarness) -> None:
    joined = completed(play.join(needs_id=True))
    assert (joined.code, joined.generation) == (Code.MEMBER_ID_REQUIRED, -1)
    assert not play.group.members
    assert not play.group.is_unused
    assert completed(play.join(joined.member_id, needs_id=True)).code == Code.NONE
    assert completed(play.join("another", needs_id=True)).code == Code.UNKNOWN_MEMBER_ID


def test_kip394_a_member_id_that_is_not_used_is_forgotten(play: GroupHarness) -> None:
    joined = completed(play.join(needs_id=True))
    play.wait(SESSION)
    assert play.group.is_unused
    assert completed(play.join(joined.member_id)).code == Code.UNKNOWN_MEMBER_ID


def test_kip394_a_generation_waits_for_member_ids_that_were_given_out(play: GroupHarness) -> None:
    first, second = play.stable(2)
    joined = completed(play.join(needs_id=True))
    play.leave(second)
    waits = play.join(first)
    assert waits.result is None
    third = play.join(joined.member_id)
    assert {each.member_id for each in completed(waits).members} == {first, completed(third).member_id}


@pytest.mark.parametrize("leaves", [True, False])
def test_kip394_nor_does_it_wait_when_they_go(play: GroupHarness, leaves: bool) -> None:
    first, second = play.stable(2)
    joined = completed(play.join(needs_id=True))
    play.leave(second)
    waits = play.join(first)
    if leaves:
        assert play.leave(joined.member_id) == Code.NONE
    else:
        play.wait(SESSION)
    assert [each.member_id for each in completed(waits).members] == [first]


def test_kip134_the_first_members_wait_for_each_other() -> None:
    play = GroupHarness(delay=3.0)
    waits = [play.join()]
    play.wait(2.9)
    waits.append(play.join())
    play.wait(2.9)  # extended once by the newcomer
    assert [each.result for each in waits] == [None, None]
    play.wait(0.2)
    assert {completed(each).generation for each in waits} == {1}


def test_kip134_the_extension_ends_with_the_rebalance_timeout() -> None:
    play = GroupHarness(delay=3.0)
    waits = []
    while play.now < 1000 + REBALANCE:
        waits.append(play.join())
        play.wait(1.0)
    assert all(each.result for each in waits[: int(REBALANCE)])


def test_the_longest_rebalance_timeout_is_bounded() -> None:
    play = GroupHarness(longest=100.0)
    first, second = play.stable(2, rebalance_s=1e6)
    waits = play.join(first, rebalance_s=1e6)
    for _ in range(20):
        assert waits.result is None
        play.heartbeat(second)
        play.wait(5.0)
    assert [each.member_id for each in completed(waits).members] == [first]


def test_commits_of_offsets(play: GroupHarness) -> None:
    def commit(member_id: str = "", generation: int = -1, *, transactional: bool = False) -> int:
        return member_requests.commit(
            play.group, member_id, None, generation, transactional=transactional, now=play.now
        )

    assert commit() == commit("unknown") == Code.NONE, "the group has no members"
    first = completed(play.join()).member_id
    assert commit(first, 1) == Code.REBALANCE_IN_PROGRESS, "it has not got its assignment yet"
    assert commit(first, 1, transactional=True) == Code.NONE
    play.sync(first, {})
    assert commit() == Code.UNKNOWN_MEMBER_ID
    assert commit(transactional=True) == Code.NONE
    assert commit("unknown", 1) == commit("unknown", 1, transactional=True) == Code.UNKNOWN_MEMBER_ID
    assert commit(first, 0) == commit(first, 2, transactional=True) == Code.ILLEGAL_GENERATION
    assert commit(first) == Code.ILLEGAL_GENERATION
    play.join()
    assert commit(first, 1) == Code.NONE, "it may write down what it has read before it joins again"
    play.wait(SESSION - 1)
    assert commit(first, 1) == Code.NONE
    play.wait(SESSION - 1)
    assert first in play.group.members, "a commit is a sign of life"
