"""When the cluster is asked for, and which answer is believed. Ids (tests/ids.md): MT."""

from __future__ import annotations

from typing import Any

import pytest

from spark_producer.common.cluster import Node, TopicPartition
from spark_producer.protocol.messages import MetadataRequest, MetadataResponse
from spark_producer.sender import Metadata
from tests.fakes.sender_fakes import BACKOFF, MAX_AGE, backoff, metadata_of

NOW = 5000.0


def metadata(*wanted: str, max_idle: float = float("inf")) -> Metadata:
    made = Metadata(max_age=MAX_AGE, backoff=backoff, rebootstrap_after=300.0, max_idle=max_idle)
    if wanted:
        made.request_topics(*wanted)
    return made


def ask(made: Metadata, now: float = NOW) -> list[str]:
    """The topics of the question that is due, as a list without an order of its own."""
    request = made.request(now)
    assert isinstance(request, MetadataRequest)
    return sorted(topic.name or "" for topic in request.topics or ())


def learn(made: Metadata, response: MetadataResponse, now: float = NOW) -> None:
    ask(made, now)
    made.on_response(response, now)


@pytest.mark.covers("MT8")
def test_nothing_is_asked_until_a_topic_is_wanted_and_then_at_once() -> None:
    made = metadata()
    assert (made.due_at(), made.request(NOW)) == (None, None)
    made.request_topics("a")
    assert ask(made) == ["a"]


def test_one_question_at_a_time() -> None:
    made = metadata("a")
    ask(made)
    assert (made.due_at(), made.request(NOW)) == (None, None)


@pytest.mark.covers("MT1")
def test_a_settled_answer_is_good_for_its_age() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1, 2)}))
    assert made.due_at() == NOW + MAX_AGE
    assert made.request(NOW + MAX_AGE - 0.001) is None
    assert ask(made, NOW + MAX_AGE) == ["a"]


@pytest.mark.covers("MT4")
def test_a_second_topic_is_asked_for_at_once_and_alone() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1, 2)}))
    waiter = made.request_topics("b")
    assert ask(made) == ["b"]
    made.on_response(metadata_of({"b": (2,)}), NOW)
    assert {name: info.leaders for name, info in made.cluster.topics.items()} == {"a": (1, 2), "b": (2,)}
    assert waiter.response == {"b": made.cluster.topics["b"]}
    assert made.due_at() == NOW + MAX_AGE
    assert ask(made, NOW + MAX_AGE) == ["a", "b"], "a refresh is for all"


@pytest.mark.covers("MT1")
def test_a_new_topic_is_asked_for_in_the_midst_of_a_pause_but_only_once() -> None:
    made = metadata("a")
    ask(made)
    made.on_failure(NOW)
    assert made.request(NOW) is None
    made.request_topics("b")
    assert ask(made) == ["b"]
    made.on_failure(NOW)
    assert made.due_at() == pytest.approx(NOW + BACKOFF), "a's turn"
    assert ask(made, NOW + BACKOFF) == ["a"]
    made.on_failure(NOW + BACKOFF)
    assert ask(made, NOW + 2 * BACKOFF) == ["b"]


def test_what_is_found_stale_during_a_question_is_asked_again() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    made.request_update()
    ask(made, NOW + 1)
    made.request_update()
    made.on_response(metadata_of({"a": (2,)}, epochs=1), NOW + 1)
    assert ask(made, NOW + 1) == ["a"]


def test_a_snapshot_that_says_the_same_is_the_same() -> None:
    """An unchanged snapshot costs no new look at thousands of partitions, and no new description of them."""
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    before = made.cluster
    learn(made, metadata_of({"a": (1,)}), NOW + MAX_AGE)
    assert made.cluster is before
    made.request_topics("b")
    learn(made, metadata_of({"b": (1,)}), NOW + MAX_AGE)
    assert (made.cluster.nodes, made.cluster.topics["a"]) == (before.nodes, before.topics["a"])
    assert made.cluster.nodes is before.nodes
    assert made.cluster.number == before.number + 1


def test_a_stale_leader_is_asked_for_at_once_but_not_twice_without_a_pause() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    made.request_update()
    learn(made, metadata_of({"a": (1,)}), NOW + 1)
    made.request_update()
    assert made.due_at() == pytest.approx(NOW + 1 + BACKOFF), "the same answer again: no progress"
    learn(made, metadata_of({"a": (2,)}, epochs=1), NOW + 2)
    made.request_update()
    assert made.due_at() == NOW + 2, "that was progress"


@pytest.mark.covers("MT1")
def test_pauses_grow_with_failures_and_end_with_an_answer() -> None:
    made = metadata("a")
    now, pauses = NOW, []
    for _ in range(4):
        ask(made, now)
        made.on_failure(now)
        due = made.due_at()
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == pytest.approx([BACKOFF, 2 * BACKOFF, 4 * BACKOFF, 8 * BACKOFF])
    learn(made, metadata_of({"a": (1,)}), now)
    made.request_update()
    assert made.due_at() == now


def test_an_answer_without_brokers_is_a_failure_and_changes_nothing() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    before = made.cluster
    made.request_update()
    learn(made, MetadataResponse(), NOW + 1)
    assert made.cluster is before
    assert made.due_at() == pytest.approx(NOW + 1 + BACKOFF)


@pytest.mark.covers("MT6")
@pytest.mark.parametrize(
    "response",
    [
        metadata_of({"a": ()}, codes={"a": 5}),
        metadata_of({"a": ()}),
        metadata_of({"a": (1, -1)}),
        metadata_of({}),
    ],
    ids=["no leader yet", "no partitions", "one partition without leader", "not in the answer"],
)
def test_an_unsettled_topic_is_asked_for_again_after_growing_pauses(response: MetadataResponse) -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1, 1)}))
    learn(made, response, NOW + MAX_AGE)
    assert made.due_at() == pytest.approx(NOW + MAX_AGE + BACKOFF)
    learn(made, response, NOW + MAX_AGE + BACKOFF)
    assert made.due_at() == pytest.approx(NOW + MAX_AGE + 3 * BACKOFF)


@pytest.mark.parametrize("code", [3, 29], ids=["vanished", "refused"])
def test_a_topic_that_only_its_writers_can_bring_back_is_asked_for_by_them(code: int) -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    learn(made, metadata_of({"a": ()}, codes={"a": code}), NOW + MAX_AGE)
    assert "a" not in made.cluster.topics, "so the next use asks"
    assert made.due_at() == NOW + 2 * MAX_AGE
    made.request_leaders({"a"}, NOW + MAX_AGE + 1)
    assert ask(made, NOW + MAX_AGE + 1) == ["a"], "batches wait for it"
    made.request_leaders({"a"}, NOW + MAX_AGE + 1)
    made.on_response(metadata_of({"a": (1,)}), NOW + MAX_AGE + 1)
    assert made.due_at() == NOW + 2 * MAX_AGE + 1, "a question under way was enough"


def test_leaders_of_partitions_known_and_unknown() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1, -1)}))
    leaders = [
        made.cluster.leader_of(TopicPartition(topic, n))[0] for topic, n in (("a", 0), ("a", 1), ("a", 2), ("b", 0))
    ]
    assert leaders == [1, -1, -1, -1]
    assert made.cluster.nodes == {1: Node("host1", 9092), 2: Node("host2", 9092)}
    assert made.cluster.addresses == {1: ("host1", 9092), 2: ("host2", 9092)}


@pytest.mark.covers("MT2")
@pytest.mark.parametrize(
    ("known", "described", "expected"),
    [(5, 4, 1), (5, 5, 2), (5, 6, 2), (-1, -1, 2), (5, -1, 2)],
    ids=["older", "same", "newer", "old brokers", "a broker without epochs"],
)
def test_an_answer_with_an_older_leader_epoch_is_not_believed(known: int, described: int, expected: int) -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}, epochs=known))
    made.request_update()
    learn(made, metadata_of({"a": (2,)}, epochs=described), NOW + 1)
    assert made.cluster.leader_of(TopicPartition("a", 0))[0] == expected


@pytest.mark.covers("MT3")
def test_a_topic_created_again_starts_its_epochs_again() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}, epochs=9, topic_id=b"1" * 16))
    made.request_update()
    learn(made, metadata_of({"a": (2,)}, epochs=0, topic_id=b"2" * 16), NOW + 1)
    assert made.cluster.leader_of(TopicPartition("a", 0))[0] == 2


@pytest.mark.covers("MT3")
def test_a_topic_that_was_deleted_and_came_back_starts_its_epochs_again() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}, epochs=9))
    made.request_update()
    learn(made, metadata_of({"a": ()}, codes={"a": 3}), NOW + 1)
    made.request_update()
    learn(made, metadata_of({"a": (2,)}, epochs=0), NOW + 2)
    assert made.cluster.leader_of(TopicPartition("a", 0)) == (2, 0)


def test_partitions_come_in_any_order_and_may_become_more() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    made.request_update()
    response = metadata_of({"a": (1, 2, 1)})
    shuffled = response.topics[0]._replace(partitions=response.topics[0].partitions[::-1])
    learn(made, response._replace(topics=(shuffled,)), NOW + 1)
    assert made.cluster.topics["a"].leaders == (1, 2, 1)


def test_the_snapshot_is_replaced_never_changed() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    before = made.cluster
    copy = (dict(before.nodes), dict(before.topics))
    made.request_update()
    learn(made, metadata_of({"a": (2,)}, nodes=(2,), epochs=1), NOW + 1)
    assert (dict(before.nodes), dict(before.topics)) == copy
    assert made.cluster is not before


def test_only_a_topic_with_a_waiting_thread_is_created() -> None:
    """A refresh must not bring back a topic that was deleted meanwhile, nor may the question for another one."""
    made = metadata("a")
    request = made.request(NOW)
    assert request is not None
    assert request.allow_auto_topic_creation
    made.on_response(metadata_of({"a": (1, 2)}), NOW)
    refresh = made.request(NOW + MAX_AGE)
    assert refresh is not None
    assert not refresh.allow_auto_topic_creation
    made.on_response(metadata_of({"a": (1, 2)}), NOW + MAX_AGE)
    made.request_topics("b")
    wanted = made.request(NOW + 2 * MAX_AGE)
    assert wanted is not None
    assert wanted.allow_auto_topic_creation
    assert [topic.name for topic in wanted.topics or ()] == ["b"]


def test_a_topic_that_vanished_makes_no_other_topic_wait() -> None:
    made = metadata("old", "new")
    learn(made, metadata_of({"old": (), "new": (1,)}, codes={"old": 3}))
    assert made.due_at() == NOW + MAX_AGE, "no thread waits for the old topic"
    made.request_topics("newer")
    assert ask(made) == ["newer"], "at once"


# metadata.max.idle.ms


@pytest.mark.covers("SN7")
def test_an_unused_topic_is_forgotten_with_the_next_refresh() -> None:
    made = metadata("idle", "busy", max_idle=200)
    learn(made, metadata_of({"idle": (1,), "busy": (1,)}))
    made.use("idle", NOW + 100)
    made.use("busy", NOW + 101)
    assert ask(made, NOW + MAX_AGE) == ["busy"]
    assert (made.take_forgotten(), made.take_forgotten()) == ({"idle"}, set())
    made.on_response(metadata_of({"busy": (1,)}), NOW + MAX_AGE)
    assert set(made.cluster.topics) == {"busy"}
    made.request_topics("idle")
    assert ask(made, NOW + MAX_AGE) == ["idle"], "at once, when it is written to again"


@pytest.mark.covers("SN7")
def test_when_every_topic_is_idle_nothing_is_asked_and_nothing_is_due() -> None:
    made = metadata("a", max_idle=5)
    learn(made, metadata_of({"a": (1,)}))
    made.use("a", NOW)
    assert made.request(NOW + MAX_AGE) is None
    assert (made.due_at(), made.cluster.topics) == (None, {})
    assert made.cluster.nodes, "the brokers stay known"
    made.request_topics("a")
    assert ask(made, NOW + MAX_AGE) == ["a"]


@pytest.mark.covers("SN7")
def test_a_topic_that_is_waited_for_is_never_idle() -> None:
    """The topic was written to long ago, has vanished, and a thread waits for it to come back."""
    made = metadata("a", max_idle=5)
    learn(made, metadata_of({"a": (1,)}))
    made.use("a", NOW)
    made.request_topics("a", not_before=NOW + 120)
    assert made.request(NOW + 60) is None
    assert ask(made, NOW + 120) == ["a"]


@pytest.mark.covers("SN7")
def test_a_forgotten_topic_with_batches_left_is_asked_for_but_not_created_again() -> None:
    made = metadata("a", max_idle=5)
    learn(made, metadata_of({"a": (1,)}))
    made.use("a", NOW)
    assert made.request(NOW + MAX_AGE) is None
    made.request_leaders({"a"}, NOW + MAX_AGE)
    request = made.request(NOW + MAX_AGE)
    assert request is not None
    assert [topic.name for topic in request.topics or ()] == ["a"]
    assert not request.allow_auto_topic_creation


# REBOOTSTRAP_REQUIRED (KIP-1102)


@pytest.mark.covers("NW9")
@pytest.mark.parametrize(("code", "nodes"), [(129, False), (129, True), (-1, True)])
def test_an_answer_that_demands_it_sends_us_to_the_bootstrap_servers(code: int, nodes: bool) -> None:
    """With and without brokers in the answer; another error of the whole is only a failure."""
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    made.request_update()
    answer = metadata_of({"a": (2,)}, epochs=1) if nodes else MetadataResponse()
    learn(made, answer._replace(error_code=code), NOW + 1)
    assert (made.cluster.nodes == {}) is (code == 129)
    assert made.cluster.topics["a"].leaders == (1,), "rows go on being taken in"
    assert made.due_at() == pytest.approx(NOW + 1 + BACKOFF)
    learn(made, MetadataResponse(error_code=129), NOW + 2)
    assert made.due_at() == pytest.approx(NOW + 2 + 2 * BACKOFF), (
        "a bootstrap server that says so too is not asked at once"
    )


@pytest.mark.covers("NW9")
def test_without_the_strategy_the_demand_is_a_failure() -> None:
    made = Metadata(max_age=MAX_AGE, backoff=backoff)
    made.request_topics("a")
    learn(made, metadata_of({"a": (1,)}))
    made.request_update()
    learn(made, MetadataResponse(error_code=129), NOW + 1)
    assert made.cluster.nodes
    assert made.due_at() == pytest.approx(NOW + 1 + BACKOFF)


# The cluster id (KIP-1242)


def checking(rebootstrap_after: float | None = 300.0, *, check_cluster: bool = True) -> Metadata:
    """Metadata of topic a, as the cluster "ours" has it."""
    made = Metadata(max_age=MAX_AGE, backoff=backoff, rebootstrap_after=rebootstrap_after, check_cluster=check_cluster)
    made.request_topics("a")
    learn(made, metadata_of({"a": (1,)})._replace(cluster_id="ours"))
    made.request_update()
    return made


@pytest.mark.covers("NW9")
def test_a_response_of_another_cluster_sends_us_to_the_bootstrap_servers() -> None:
    """The address of a broker was given to another cluster: its leaders are not used, and rows go on being taken in."""
    made = checking()
    assert made.cluster_id == "ours"
    learn(made, metadata_of({"a": (2,)}, epochs=1)._replace(cluster_id="theirs"), NOW + 1)
    assert made.cluster.nodes == {}
    assert made.cluster_id is None
    assert made.cluster.topics["a"].leaders == (1,)
    assert made.due_at() == pytest.approx(NOW + 1 + BACKOFF)
    learn(made, metadata_of({"a": (2,)}, epochs=1)._replace(cluster_id="theirs"), NOW + 2)
    assert made.cluster_id == "theirs", "the bootstrap servers decide"


@pytest.mark.covers("NW9")
@pytest.mark.parametrize(
    ("cluster_id", "options"),
    [("ours", {}), (None, {}), ("theirs", {"check_cluster": False})],
    ids=["the same", "none, as from old brokers", "not checked"],
)
def test_a_response_is_used_if_there_is_nothing_to_check(cluster_id: str | None, options: dict[str, Any]) -> None:
    made = checking(**options)
    learn(made, metadata_of({"a": (2,)}, epochs=1)._replace(cluster_id=cluster_id), NOW + 1)
    assert made.cluster.topics["a"].leaders == (2,)


@pytest.mark.covers("NW9")
def test_the_broker_of_another_cluster_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    made = checking()
    node = made.cluster.nodes[2]
    name = f"broker 2 at {node.host}:{node.port}"
    made.request(NOW + 1, 2)
    made.on_response(metadata_of({"a": (2,)})._replace(cluster_id="theirs"), NOW + 1)
    [record] = caplog.records
    assert record.getMessage().startswith(f"{name} is of cluster 'theirs', not of 'ours'. What to do: see where the")


@pytest.mark.covers("NW9")
def test_after_a_refused_connection_the_bootstrap_servers_are_asked_after_a_pause() -> None:
    made = checking()
    made.reject_nodes(NOW + 1)
    assert made.cluster.nodes == {}
    assert made.cluster_id is None
    assert made.due_at() == pytest.approx(NOW + 1 + BACKOFF)
