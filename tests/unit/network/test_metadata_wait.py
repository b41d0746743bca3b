"""The meaning of metadata for a thread that waits for a topic: one table for producer, driver, command line and jobs."""

from __future__ import annotations

from typing import NamedTuple, TypedDict, Unpack

import pytest

from spark_producer.errors import BrokerError, MetadataTimeout, TopicNotFound
from spark_producer.network.metadata_wait import PARTITION_GRACE, TopicStatus, TopicWait

DEADLINE = 60.0
ALMOST, OVER = DEADLINE - 0.001, DEADLINE
READY, AGAIN, NO_PARTITION = TopicStatus.READY, TopicStatus.PENDING, TopicStatus.NO_PARTITION


class Answer(NamedTuple):
    error_code: int = 0
    leaders: tuple[int, ...] = ()


THERE = Answer(0, (1, 2, -1))


class Options(TypedDict, total=False):
    partition: int
    needs_leader: bool
    may_appear: bool
    unknown_timeout: float


def wait(**options: Unpack[Options]) -> TopicWait:
    return TopicWait("t", DEADLINE, "60 s", **options)


@pytest.mark.parametrize("now", [0.0, ALMOST, OVER, OVER + 9])
@pytest.mark.parametrize(
    "options",
    [{}, {"partition": 2}, {"partition": 1, "needs_leader": True}, {"may_appear": False}],
    ids=lambda options: str(options),
)
def test_a_topic_that_is_there_is_ready_at_any_time(now: float, options: Options) -> None:
    assert wait(**options).evaluate(now, THERE) is READY


@pytest.mark.parametrize(
    ("answer", "options", "error", "said"),
    [
        (Answer(3), {}, TopicNotFound, r"UNKNOWN_TOPIC_OR_PARTITION \(3\) for topic 't', still after 60 s"),
        (Answer(5), {}, MetadataTimeout, r"topic 't' was not ready within 60 s.*LEADER_NOT_AVAILABLE \(5\)"),
        (Answer(0), {}, MetadataTimeout, "LEADER_NOT_AVAILABLE"),
        (Answer(9), {}, MetadataTimeout, "REPLICA_NOT_AVAILABLE"),
        (
            THERE,
            {"partition": 2, "needs_leader": True},
            MetadataTimeout,
            "topic 't', partition 2 .*LEADER_NOT_AVAILABLE",
        ),
    ],
    ids=["unknown", "no leader yet", "no partitions", "retriable", "one partition without a leader"],
)
def test_what_may_pass_is_asked_again_until_the_deadline(
    answer: Answer, options: Options, error: type[Exception], said: str
) -> None:
    waiting = wait(**options)
    assert [waiting.evaluate(now, answer) for now in (0.0, 6.0, ALMOST)] == [AGAIN] * 3
    with pytest.raises(error, match=said) as raised:
        waiting.evaluate(OVER, answer)
    assert str(waiting.error()) == str(raised.value), "also if no further answer comes"
    assert waiting.answered


def test_no_broker_has_answered_yet() -> None:
    assert not wait().answered


@pytest.mark.parametrize(
    ("code", "name"), [(17, "INVALID_TOPIC_EXCEPTION"), (29, "TOPIC_AUTHORIZATION_FAILED"), (777, "777")]
)
def test_a_refusal_ends_the_wait_at_once(code: int, name: str) -> None:
    with pytest.raises(BrokerError, match=f"{name} .*topic 't'") as raised:
        wait().evaluate(0.0, Answer(code))
    assert raised.value.code == code


def test_a_topic_that_is_not_created_is_not_waited_for() -> None:
    with pytest.raises(TopicNotFound, match="for topic 't'") as raised:
        wait(may_appear=False).evaluate(0.0, Answer(3))
    assert "still after" not in str(raised.value)


def test_brokers_that_contradict_each_other_do_not_shorten_the_wait() -> None:
    waiting = wait()
    assert [waiting.evaluate(now, Answer(code)) for now, code in ((0, 3), (10, 5), (40, 3), (59, 0))] == [AGAIN] * 4
    assert waiting.evaluate(59.5, THERE) is READY


def test_a_missing_partition_has_its_grace_from_the_first_answer_on() -> None:
    waiting = wait(partition=3)
    begun = 30.0
    assert waiting.evaluate(begun, THERE) is AGAIN
    assert waiting.evaluate(begun + PARTITION_GRACE - 0.001, THERE) is AGAIN
    assert waiting.evaluate(begun + PARTITION_GRACE, THERE) is NO_PARTITION
    assert waiting.evaluate(begun + PARTITION_GRACE, Answer(0, (1, 1, 1, 1))) is READY


@pytest.mark.parametrize(("now", "may_appear"), [(OVER, True), (0.0, False)])
def test_a_missing_partition_is_not_waited_for_past_the_deadline_nor_by_who_expects_none(
    now: float, may_appear: bool
) -> None:
    assert wait(partition=3, may_appear=may_appear).evaluate(now, THERE) is NO_PARTITION


def test_the_end_of_a_wait_for_a_partition_names_it() -> None:
    waiting = wait(partition=3)
    waiting.evaluate(ALMOST, THERE)
    with pytest.raises(MetadataTimeout, match="do not know partition 3"):
        raise waiting.error()


def test_a_topic_that_is_unknown_for_long_enough_ends_the_wait_before_its_deadline() -> None:
    waiting = wait(unknown_timeout=8)
    assert [waiting.evaluate(now, Answer(3)) for now in (20.0, 27.9)] == [AGAIN] * 2
    with pytest.raises(TopicNotFound, match=r"\(3\) for topic 't', still after 8 s\. What to do: create the topic"):
        waiting.evaluate(28.0, Answer(3))
    assert waiting.ends_early(28.0)


def test_a_topic_that_is_being_created_is_waited_for_until_the_deadline() -> None:
    waiting = wait(unknown_timeout=8)
    reported = ((0, 3), (7, 5), (9, 3), (16, 5), (40, 5), (59, 0))
    assert [waiting.evaluate(now, Answer(code)) for now, code in reported] == [AGAIN] * len(reported)


def test_a_topic_that_another_broker_knows_is_waited_for_until_the_deadline() -> None:
    waiting = wait(unknown_timeout=8)
    waiting.evaluate(0.0, Answer(3))
    waiting.exists()
    assert waiting.evaluate(ALMOST, Answer(3)) is AGAIN
    with pytest.raises(TopicNotFound, match="still after 60 s"):
        waiting.evaluate(OVER, Answer(3))
