"""A recreated topic in the metadata of brokers before Metadata v10, and brokers that lag. Ids (tests/ids.md): MT3."""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.protocol import METADATA, PRODUCE
from spark_producer.protocol.messages import MetadataRequest
from spark_producer.sender import Metadata
from spark_producer.sender.stale_leader_epochs import MAX_BROKER_LAG_S
from tests.fakes.sender_fakes import MAX_AGE, TOPIC, answer_to, metadata_of, sender_fakes

NOW = 5000.0
NOT_LEADER = 6


def reported(made: Metadata, now: float, leader: int, epochs: int, topic_id: bytes = bytes(16)) -> tuple[int, int]:
    """The leader and the epoch that are believed after another answer."""
    made.use("a", now)
    made.request_update()
    assert isinstance(made.request(now), MetadataRequest)
    made.on_response(metadata_of({"a": (leader,)}, epochs=epochs, topic_id=topic_id), now)
    return made.cluster.leader_of(TopicPartition("a", 0))


def metadata() -> Metadata:
    return Metadata(max_age=MAX_AGE, backoff=lambda _: 0.0)


@pytest.mark.covers("MT3")
def test_without_topic_ids_older_epochs_are_accepted_after_a_while_without_newer_ones() -> None:
    made = metadata()
    assert reported(made, NOW, 1, 9) == (1, 9)
    assert reported(made, NOW + 100, 2, 0) == (1, 9)
    assert reported(made, NOW + 100 + MAX_BROKER_LAG_S - 0.1, 2, 0) == (1, 9)
    assert reported(made, NOW + 100 + MAX_BROKER_LAG_S, 2, 0) == (2, 0)
    assert reported(made, NOW + 110, 1, 1) == (1, 1), "its own epochs count on"


def test_a_broker_that_lags_is_not_believed_while_another_one_knows_more() -> None:
    made = metadata()
    reported(made, NOW, 1, 9)
    for seconds in range(60):
        leader, epoch = (2, 8) if seconds % 3 else (1, 9)
        assert reported(made, NOW + seconds, leader, epoch) == (1, 9)


def test_with_topic_ids_older_epochs_of_the_same_topic_are_never_believed() -> None:
    made = metadata()
    reported(made, NOW, 1, 9, b"1" * 16)
    for seconds in range(60):
        assert reported(made, NOW + seconds, 2, 8, b"1" * 16) == (1, 9)


@pytest.mark.covers("MT3")
def test_a_producer_leaves_the_former_leader_of_a_topic_created_again() -> None:
    made = sender_fakes(acquainted=False, ready=False, delivery_timeout=60)
    made.metadata.use(TOPIC, made.now)
    made.metadata.request_update()
    made.learn(metadata_of({TOPIC: (1,)}, epochs=9))
    made.get_id()
    made.batches(b"a")
    asked = 0
    while not made.fakes.incomplete.idle:
        assert made.now < 1030, "the former leader is asked for ever"
        for outgoing in made.step().requests:
            if outgoing.api is METADATA:
                asked += 1
                made.complete(outgoing, metadata_of({TOPIC: (2,)}, epochs=0))
            else:
                assert outgoing.api.key == PRODUCE.key
                made.complete(outgoing, answer_to(outgoing, 0 if outgoing.node == 2 else NOT_LEADER))
        made.fakes.clock.advance(0.1)
    assert made.error is None
    assert 2 <= asked < 30
