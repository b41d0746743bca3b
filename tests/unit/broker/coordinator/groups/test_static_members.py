"""Static members (KIP-345): they come back with their instance id, and fence its earlier member."""

from __future__ import annotations

import pytest

from spark_producer.broker.coordinator.groups.group import GroupState
from spark_producer.broker.coordinator.groups.member import MemberProtocol
from spark_producer.common.error_codes import Code
from tests.unit.broker.coordinator.groups.group_harness import SESSION, GroupHarness, completed


@pytest.fixture
def play() -> GroupHarness:
    return GroupHarness()


def two(play: GroupHarness) -> tuple[str, str]:
    """Two static members, `a`, who leads, and `b`, in a stable group; their ids."""
    first = completed(play.join(instance="a")).member_id
    newcomer = play.join(instance="b")
    completed(play.join(first, "a"))
    second = completed(newcomer).member_id
    waits = play.sync(second, instance="b")
    play.sync(first, {first: b"A", second: b"B"}, instance="a")
    assert completed(waits).assignment == b"B"
    return first, second


def test_a_returning_member_causes_no_rebalance_and_keeps_its_assignment(play: GroupHarness) -> None:
    first, second = two(play)
    back = completed(play.join(instance="b"))
    assert (back.code, back.generation, back.leader, back.members) == (Code.NONE, 2, first, ())
    assert not back.skip_assignment
    assert play.has_state(GroupState.STABLE)
    assert completed(play.sync(back.member_id, instance="b")).assignment == b"B"
    assert play.heartbeat(second, "b") == Code.FENCED_INSTANCE_ID
    assert play.heartbeat(second) == Code.UNKNOWN_MEMBER_ID
    assert play.heartbeat(back.member_id, "b") == Code.NONE


@pytest.mark.parametrize("may_skip", [True, False])
def test_kip814_a_leader_that_comes_back_need_not_assign(play: GroupHarness, may_skip: bool) -> None:
    first, second = two(play)
    back = completed(play.join(instance="a", may_skip=may_skip))
    assert back.skip_assignment == may_skip
    assert play.group.leader == back.member_id
    if may_skip:
        assert back.leader == back.member_id
        assert {each.member_id for each in back.members} == {back.member_id, second}
    else:
        assert (back.leader, back.members) == (first, ()), "it must not take itself for the leader"


def test_a_member_that_comes_back_with_another_protocol_has_all_join_again(play: GroupHarness) -> None:
    two(play)
    both = (MemberProtocol("sticky", b""), MemberProtocol("range", b"t"))
    play.join(instance="a", protocols=both)
    assert play.has_state(GroupState.STABLE), "the protocol that all know is still the same one"
    waits = play.join(instance="b", protocols=both)
    assert (waits.result, play.group.state) == (None, GroupState.PREPARING)
    assert (
        completed(play.join(play.group.static["a"], "a", protocols=both)).protocol
        == completed(waits).protocol
        == "sticky"
    )


def test_a_member_that_is_away_for_less_than_its_session_is_kept_in_the_next_generation(play: GroupHarness) -> None:
    first, second = two(play)
    play.wait(SESSION - 1)
    play.heartbeat(first, "a")
    again, newcomer = play.join(first, "a"), play.join()
    play.wait(0.5)
    assert again.result is None
    assert second in play.group.members
    play.wait(1)
    assert second not in play.group.members, "its session is over"
    assert completed(again).generation == completed(newcomer).generation == 3


def test_members_that_are_all_away_are_waited_for_until_their_sessions_end(play: GroupHarness) -> None:
    """Rebalance timeouts that are shorter than sessions: the generation does not begin without anybody."""
    first = completed(play.join(instance="a", session_s=300.0, rebalance_s=1.0)).member_id
    play.sync(first, {}, instance="a")
    newcomer = completed(play.join(needs_id=True))
    play.join(newcomer.member_id, needs_id=True, rebalance_s=1.0)
    play.leave(newcomer.member_id)
    assert play.has_state(GroupState.PREPARING)
    play.wait(10.0)
    assert (play.group.state, list(play.group.members)) == (GroupState.PREPARING, [first])
    play.wait(300.0)
    assert play.has_state(GroupState.EMPTY)


def test_who_waits_is_fenced_at_once_by_who_comes_in_its_place(play: GroupHarness) -> None:
    first, second = two(play)
    waits = play.join(second, "b", protocols=(MemberProtocol("range", b"u"),))
    back = play.join(instance="b")
    assert completed(waits).code == Code.FENCED_INSTANCE_ID
    assert completed(play.join(second, "b")).code == Code.FENCED_INSTANCE_ID
    completed(play.join(first, "a"))
    assert completed(back).code == Code.NONE
    syncing = play.sync(completed(back).member_id, instance="b")
    play.join(instance="b")
    assert completed(syncing).code == Code.FENCED_INSTANCE_ID
    assert play.has_state(GroupState.PREPARING), "the leader may have assigned to the old id already"


def test_an_administrator_lets_a_member_go_by_its_instance_id(play: GroupHarness) -> None:
    first, second = two(play)
    assert play.leave("", "c") == Code.UNKNOWN_MEMBER_ID
    assert play.leave(first, "b") == Code.FENCED_INSTANCE_ID
    assert play.leave("", "b") == Code.NONE
    assert list(play.group.members) == [first]
    assert play.leave(second, "b") == Code.UNKNOWN_MEMBER_ID


def test_an_instance_that_is_not_known_is_no_member(play: GroupHarness) -> None:
    first, _ = two(play)
    assert play.heartbeat(first, "c") == Code.UNKNOWN_MEMBER_ID
    assert completed(play.join(first, "c")).code == Code.UNKNOWN_MEMBER_ID
    assert completed(play.sync(first, instance="c")).code == Code.UNKNOWN_MEMBER_ID


def test_a_member_that_has_not_synced_can_be_replaced(play: GroupHarness) -> None:
    completed(play.join(instance="a"))
    back = completed(play.join(instance="a"))
    assert back.generation == 2
    play.wait(SESSION - 1)
    assert completed(play.sync(back.member_id, {back.member_id: b"A"}, instance="a")).assignment == b"A"


def test_an_id_that_was_given_out_takes_no_static_members_place(play: GroupHarness) -> None:
    first, second = two(play)
    pending = completed(play.join(needs_id=True)).member_id
    assert completed(play.join(pending, "b")).code == Code.FENCED_INSTANCE_ID
    assert completed(play.join(pending, "c")).code == Code.UNKNOWN_MEMBER_ID
    assert play.group.static == {"a": first, "b": second}
    assert play.leave(second, "b") == play.leave(first, "a") == Code.NONE
    assert not play.group.static
    assert not play.group.members


def test_absent_members_are_not_checked_continuously(play: GroupHarness) -> None:
    static = completed(play.join(instance="a")).member_id
    completed(play.sync(static, {}, instance="a"))
    completed(play.join(instance="a", rebalance_s=0.0))
    newcomer = play.join(rebalance_s=1.0)
    play.wait(1)
    assert play.leave(completed(newcomer).member_id) == Code.NONE
    play.group.advance(play.now)
    assert play.has_state(GroupState.PREPARING)
    assert play.group.next_deadline() > play.now, "else a broker does nothing else until its session ends"
    play.wait(SESSION)
    assert play.has_state(GroupState.EMPTY)
