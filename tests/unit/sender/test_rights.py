"""Answers that say that our user lacks a right: whom they name, what ends with them, and what goes on."""

from __future__ import annotations

import pickle

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, TopicNotFound
from spark_producer.network.metadata_wait import TopicWait
from spark_producer.protocol.messages import InitProducerIdResponse
from tests.fakes.sender_fakes import TOPIC, answer_to, first_letters, in_flight, metadata_of, sender_fakes, sent_in

OUT_OF_ORDER = Code.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.covers("SEC29")
def test_a_topic_that_may_not_be_written_to_is_named_with_the_user_and_the_others_go_on() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1, 1)})
    first = made.fakes.append_one(b"a", tp=TopicPartition(TOPIC, 0))
    second = made.fakes.append_one(b"b", tp=TopicPartition(TOPIC, 1))
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, {0: 29}))
    error = first.exception(0)
    assert isinstance(error, BrokerError)
    assert not isinstance(error, TopicNotFound)
    assert (error.code, error.topic, error.partition) == (29, TOPIC, 0)  # type: ignore[attr-defined]
    for part in (f"{TOPIC}", "user 'app'", "grant WRITE on the topic", "attempt 1"):
        assert part in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert second.result(0).offset >= 0
    assert made.fakes.incomplete.error is None


@pytest.mark.covers("SEC29")
def test_a_right_that_is_granted_in_between_loses_none_of_the_later_batches() -> None:
    """The broker has not counted the refused batch, so the next one has a gap: the partition restarts its sequence numbers."""
    made = sender_fakes()
    requests = in_flight(made, b"a", b"b", b"c")
    for outgoing, code in zip(requests, (29, OUT_OF_ORDER, OUT_OF_ORDER), strict=True):
        made.complete(outgoing, answer_to(outgoing, code))
    written, epochs = [], set()
    while not made.fakes.incomplete.idle:
        made.fakes.clock.advance(1)
        for outgoing in made.produce():
            (sent,) = sent_in(outgoing)
            written.append((sent.header.base_sequence, first_letters([outgoing])))
            epochs.add(sent.header.producer_epoch)
            made.complete(outgoing, answer_to(outgoing))
    assert written == [(0, "b"), (1, "c")]
    assert epochs == {1}


@pytest.mark.covers("SEC29")
def test_no_right_to_a_producer_id_ends_the_producer_and_names_both_remedies() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.learn(metadata_of({TOPIC: (1,)}))
    (question,) = made.step().requests
    made.complete(question, InitProducerIdResponse(0, 31, -1, -1))
    for part in ("user 'app'", "WRITE on a topic", "IDEMPOTENT_WRITE on the cluster", "kafka.enable.idempotence=false"):
        assert part in str(made.fakes.incomplete.error)


@pytest.mark.covers("SEC29")
@pytest.mark.parametrize("code", [31, 53])
def test_a_right_to_the_cluster_or_transaction_that_is_lost_ends_the_producer(code: int) -> None:
    made = sender_fakes()
    first, _ = in_flight(made, b"a", b"b")
    made.complete(first, answer_to(first, code))
    assert isinstance(made.fakes.incomplete.error, BrokerError)
    assert "user 'app'" in str(made.fakes.incomplete.error)


@pytest.mark.covers("SEC29")
def test_a_wait_for_a_topic_without_a_right_fails_at_once() -> None:
    class Answer:
        error_code, leaders = 29, ()

    wait = TopicWait("pay", 100.0, "60 s", user="user 'app'")
    with pytest.raises(BrokerError) as caught:
        wait.evaluate(0.0, Answer())
    assert not isinstance(caught.value, TopicNotFound)
    for part in ("TOPIC_AUTHORIZATION_FAILED (29) for topic 'pay'", "user 'app'"):
        assert part in str(caught.value)
