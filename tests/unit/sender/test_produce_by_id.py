"""Produce by topic id (KIP-516): the versions, the responses, and topics that are created again."""

from __future__ import annotations

from typing import cast

import pytest

from spark_producer.common.error_codes import Code
from spark_producer.errors import TransactionAbortable
from spark_producer.protocol import PRODUCE, PRODUCE_BY_ID
from spark_producer.protocol.messages import (
    NO_UUID,
    LeaderIdAndEpoch,
    MetadataResponse,
    NodeEndpoint,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from spark_producer.sender import ClientRequest
from spark_producer.sender.transactions.states import TxnCall
from tests.fakes.sender_fakes import BACKOFF, TOPIC, SenderFakes, metadata_of, sender_fakes, sent_in
from tests.fakes.transaction_fakes import transaction_fakes

FIRST = bytes([1] * 16)
SECOND = bytes([2] * 16)


def leaders(topic_id: bytes) -> MetadataResponse:
    return metadata_of({TOPIC: (1, 1)}, topic_id=topic_id)


def made_with(topic_id: bytes) -> SenderFakes:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.learn(leaders(topic_id))
    made.give_id(77, 0)
    return made


def topic_ids(outgoing: ClientRequest) -> set[tuple[str, bytes]]:
    return {(topic.name, topic.topic_id) for topic in cast(ProduceRequest, outgoing.body).topic_data}


def by_id(topic_id: bytes, code: int = 0, offset: int = 100, **fields: object) -> ProduceResponse:
    """A response from version 13 on, which has no names."""
    row = ProducePartitionResponse(0, code, -1 if code else offset, **fields)  # type: ignore[arg-type]
    return ProduceResponse(
        (ProduceTopicResponse("", topic_id, (row,)),), node_endpoints=(NodeEndpoint(2, "host2", 9092),)
    )


@pytest.mark.parametrize(("topic_id", "newest"), [(FIRST, 13), (NO_UUID, 12)], ids=["with an id", "without"])
def test_the_newest_version_follows_from_the_ids_that_metadata_has(topic_id: bytes, newest: int) -> None:
    """The request has both, name and id, since the leader may be a broker that takes names only."""
    made = made_with(topic_id)
    made.batches(b"a")
    (outgoing,) = made.produce()
    assert (outgoing.api.min_version, outgoing.api.max_version) == (3, newest)
    assert topic_ids(outgoing) == {(TOPIC, topic_id)}
    assert (PRODUCE.max_version, PRODUCE_BY_ID.max_version) == (12, 13)


def test_a_response_by_id_completes_its_batches() -> None:
    made = made_with(FIRST)
    made.batches(b"a")
    (outgoing,) = made.produce()
    made.complete(outgoing, by_id(FIRST))
    assert made.fakes.incomplete.idle


def test_a_response_still_belongs_to_its_batch_if_the_topic_has_another_id_by_then() -> None:
    """Java's producer loses it otherwise (KAFKA-19397)."""
    made = made_with(FIRST)
    made.batches(b"a")
    (outgoing,) = made.produce()
    made.metadata.request_update()
    made.learn(leaders(SECOND))
    made.complete(outgoing, by_id(FIRST))
    assert made.fakes.incomplete.idle


def test_a_leader_in_a_response_by_id_is_used_at_once() -> None:
    made = made_with(FIRST)
    made.batches(b"a")
    (outgoing,) = made.produce()
    made.complete(outgoing, by_id(FIRST, Code.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(2, 9)))
    assert [request.node for request in made.step().requests if request.batches] == [2]


def test_the_rows_go_to_the_topic_that_has_the_name_now() -> None:
    """The leader refuses the old id, the metadata is refreshed, and the same batch goes to the new id."""
    made = made_with(FIRST)
    made.batches(b"a")
    (outgoing,) = made.produce()
    before = sent_in(outgoing)
    made.complete(outgoing, by_id(FIRST, Code.UNKNOWN_TOPIC_ID))
    made.learn(leaders(SECOND))
    made.fakes.clock.advance(BACKOFF)
    (again,) = made.produce()
    assert topic_ids(again) == {(TOPIC, SECOND)}
    assert [sent.values for sent in sent_in(again)] == [sent.values for sent in before]
    made.complete(again, by_id(SECOND))
    assert made.fakes.incomplete.idle


def test_a_batch_that_an_id_refused_is_surely_not_written() -> None:
    made = made_with(FIRST)
    made.batches(b"a")
    (outgoing,) = made.produce()
    (batch,) = outgoing.batches
    made.complete(outgoing, by_id(FIRST, Code.UNKNOWN_TOPIC_ID))
    assert not batch.in_doubt


def test_a_transaction_with_rows_in_a_topic_that_is_gone_can_only_be_aborted() -> None:
    """The first batch is acknowledged in one topic, the second in another one of the same name."""
    made = transaction_fakes()
    made.begin()
    for value, topic_id in ((b"a", FIRST), (b"b", SECOND)):
        cluster = made.made.metadata.cluster
        topics = {TOPIC: cluster.topics[TOPIC]._replace(topic_id=topic_id)}
        made.made.metadata.cluster = cluster.replace(topics=topics)
        made.made.batches(value)
        made.run()
    error = made.do(TxnCall.COMMIT).error
    assert isinstance(error, TransactionAbortable)
    assert "because the topic was deleted and created again" in str(error)
