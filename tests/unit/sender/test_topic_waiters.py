"""Topics that threads wait for: which question and which answer count for whom, and what is left of a wait that is over."""

from __future__ import annotations

import pytest

from tests.fakes.sender_fakes import MAX_AGE, metadata_of
from tests.unit.sender.test_metadata import NOW, ask, learn, metadata


def test_a_wish_is_met_only_by_the_answer_to_a_question_sent_after_it() -> None:
    """A request that was under way before does not count, although it names the topic: its response may be older."""
    made = metadata("a")
    ask(made)
    late = made.request_topics("a")
    made.on_response(metadata_of({"a": (1,)}), NOW)
    assert late.response is None
    assert made.cluster.topics["a"].leaders == (1,)
    assert ask(made) == ["a"], "at once"
    made.on_response(metadata_of({"a": (1, 2)}), NOW)
    assert late.response is not None
    assert late.response["a"].leaders == (1, 2)


def test_wishes_of_several_threads_go_into_one_question_and_end_alone() -> None:
    made = metadata()
    impatient, patient = made.request_topics("a", "b", not_before=NOW - 1), made.request_topics("b", "c")
    impatient.done = True
    assert ask(made) == ["b", "c"], "no thread waits for a any more, and it was asked for before"
    other = made.request_topics("b")
    made.on_response(metadata_of({"b": (1,), "c": ()}, codes={"c": 5}), NOW)
    assert patient.response is not None
    assert {name: info.error_code for name, info in patient.response.items()} == {"b": 0, "c": 5}
    assert (impatient.response, other.response) == (None, None)


def test_a_topic_whose_thread_could_not_wait_for_the_question_is_asked_for_once() -> None:
    """With `max.block.ms` 0 no thread can: its next call finds the topic, as with Java's producer."""
    made = metadata()
    for _ in range(2):
        made.request_topics("a").done = True
    assert made.due_at() == 0.0
    assert ask(made) == ["a"]
    made.on_failure(NOW)
    assert made.due_at() is None, "the next call asks again"
    made.request_topics("a").done = True
    learn(made, metadata_of({"a": (1,)}))
    assert made.cluster.topics["a"].leaders == (1,)
    assert made.due_at() == NOW + MAX_AGE, "it is in use from now on"


def test_topics_without_waiters_are_dropped_while_no_broker_can_be_asked() -> None:
    made = metadata()
    for _ in range(1000):
        made.request_topics("a").done = True
        made.request_topics("a", not_before=NOW).done = True
        made.due_at()
    assert (len(made._posted), len(made._waiters)) == (0, 0)  # no response shows the state beside it
    assert ask(made) == ["a"]


def test_an_answer_without_a_topic_meets_the_wish_all_the_same() -> None:
    made = metadata()
    waiter = made.request_topics("a")
    learn(made, metadata_of({}))
    assert waiter.response == {}
    assert made.due_at() is None, "only a thread that waits asks again"


def test_a_repeated_wish_waits_for_its_time() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": ()}, codes={"a": 3}))
    made.request_topics("a", not_before=NOW + 7)
    assert made.due_at() == NOW + 7
    assert made.request(NOW) is None
    assert made.due_at() == NOW + 7
    assert ask(made, NOW + 7) == ["a"]


def test_refreshes_and_wishes_take_turns() -> None:
    made = metadata("a")
    learn(made, metadata_of({"a": (1,)}))
    asked = []
    for number in range(4):
        made.request_update()
        made.request_topics(f"new{number}")
        asked.append(ask(made, NOW + 10))
        made.on_response(metadata_of({"a": (1,)}, epochs=number + 1), NOW + 10)
    assert [names == ["a"] for names in asked] == [True, False, True, False]


@pytest.mark.covers("SN7")
def test_when_every_topic_is_idle_the_turn_is_that_of_a_wish() -> None:
    """Otherwise no request was sent, and the sender slept although a waiter was due."""
    made = metadata("a", max_idle=5)
    learn(made, metadata_of({"a": (1,)}))
    made.request_topics("b")
    assert ask(made, NOW + MAX_AGE) == ["b"]
