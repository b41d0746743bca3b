"""The requests of a step, and when the next one is due: tables of (state, now) → requests. Ids: SN and RA."""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ConnectionFailed
from spark_producer.metrics.write_report import WriteReport
from spark_producer.protocol import INIT_PRODUCER_ID, METADATA, PRODUCE
from spark_producer.protocol.messages import InitProducerIdResponse, MetadataRequest, ProduceRequest
from tests.fakes.sender_fakes import (
    BACKOFF,
    MAX_AGE,
    TOPIC,
    SenderFakes,
    answer_to,
    first_letters,
    metadata_of,
    sender_fakes,
    sent_in,
)


def apis(made: SenderFakes) -> list[tuple[int, str]]:
    return [(request.node, request.api.name) for request in made.step().requests]


def test_nothing_is_requested_before_it_is_needed() -> None:
    made = sender_fakes(ready=False)
    step = made.step()
    assert (step.requests, step.wake_at) == ([], None)


def test_metadata_first_then_the_producer_id_then_batches() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.batches(b"a")
    (question,) = made.step().requests
    assert (question.node, question.api) == (-1, METADATA)
    assert isinstance(question.body, MetadataRequest)
    assert [topic.name for topic in question.body.topics or ()] == [TOPIC]
    assert made.step().requests == [], "one question at a time"
    made.complete(question, metadata_of({TOPIC: (1,)}))
    (question,) = made.step().requests
    assert question.api is INIT_PRODUCER_ID
    assert made.step().requests == [], "nothing is sent without an id"
    made.complete(question, InitProducerIdResponse(0, 0, 77, 3))
    (outgoing,) = made.step().requests
    assert (outgoing.node, outgoing.api.key) == (1, PRODUCE.key)
    (sent,) = sent_in(outgoing)
    assert sent.header[9:12] == (77, 3, 0)


@pytest.mark.covers("SN13")
def test_without_idempotence_there_is_no_id_and_no_sequence() -> None:
    made = sender_fakes(ready=False, idempotent=False)
    made.metadata.request_topics(TOPIC)
    made.batches(b"a")
    made.learn(metadata_of({TOPIC: (1,)}))
    (outgoing,) = made.produce()
    assert sent_in(outgoing)[0].header[9:12] == (-1, -1, -1)


@pytest.mark.parametrize("acks", [-1, 1])
def test_the_request_carries_acks_and_timeout(acks: int) -> None:
    made = sender_fakes(acks=acks)
    made.batches(b"a")
    (outgoing,) = made.produce()
    body = outgoing.body
    assert isinstance(body, ProduceRequest)
    assert (body.transactional_id, body.acks, body.timeout_ms) == (None, acks, 30_000)


@pytest.mark.covers("RA1")
def test_one_batch_per_partition_in_a_request_and_one_request_per_leader_in_a_step() -> None:
    made = sender_fakes()  # partitions 0 and 1 on node 1, 2 on node 2
    for partition in range(3):
        made.batches(b"a", b"b", partition=partition)
    steps = [made.step() for _ in range(3)]
    found = [
        {request.node: sorted(sent.tp.partition for sent in sent_in(request)) for request in step.requests}
        for step in steps
    ]
    assert found == [{1: [0, 1], 2: [2]}, {1: [0, 1], 2: [2]}, {}]


@pytest.mark.covers("SN14")
def test_a_connection_gets_batch_after_batch_before_the_first_answer() -> None:
    made = sender_fakes()
    made.batches(*(bytes([letter]) for letter in b"abcde"))
    requests = made.produce()
    assert first_letters(requests) == "abcde"
    assert [sent_in(request)[0].header.base_sequence for request in requests] == [0, 1, 2, 3, 4]


@pytest.mark.covers("RA1")
def test_every_step_begins_with_another_partition() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1, 1)}, max_request_size=2000)
    for partition in range(3):
        made.batches(b"a", b"b", partition=partition)
    orders = [[sent.tp.partition for sent in sent_in(request)] for request in made.produce()]
    assert [len(order) for order in orders] == [2, 2, 2]
    assert len({order[0] for order in orders}) == 3
    assert sorted(partition for order in orders for partition in order) == [0, 0, 1, 1, 2, 2]


@pytest.mark.covers("RA5")
def test_max_request_size_bounds_a_request_and_a_smaller_batch_still_fits() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1, 1)}, max_request_size=1500)
    made.batches(b"a")
    made.batches(b"b", partition=1)
    made.fakes.append(b"small", tp=TopicPartition(TOPIC, 2))
    sizes = [[sent.tp.partition for sent in sent_in(request)] for request in made.produce()]
    assert sorted(map(len, sizes)) == [1, 2]
    for request_partitions in sizes:
        assert not {0, 1} <= set(request_partitions)


def test_a_batch_larger_than_a_request_may_be_goes_alone() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1)}, max_request_size=1024)
    made.fakes.append(b"L" * 5000)
    made.fakes.append(b"small", tp=TopicPartition(TOPIC, 1))
    requests = made.produce()
    assert sorted(first_letters([request]) for request in requests) == ["L", "s"]


def test_linger_decides_when_the_next_step_is_due() -> None:
    made = sender_fakes(linger=0.010)
    made.batches(b"a")
    step = made.step()
    assert (step.requests, step.wake_at) == ([], made.now + 0.010)
    made.fakes.clock.advance(0.010)
    assert len(made.step().requests) == 1


def test_an_idle_sender_wakes_for_the_age_of_its_metadata_only() -> None:
    made = sender_fakes()
    assert made.step().wake_at == pytest.approx(made.now + MAX_AGE)
    made.fakes.clock.advance(MAX_AGE)
    assert apis(made) == [(-1, "Metadata")]


def test_a_node_that_is_being_connected_to_is_the_networks_to_wake_for() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.batches(b"a")
    made.network.unready = {1}
    step = made.step()
    assert (step.requests, step.wake_at) == ([], made.now + 120), "the next thing that time alone brings is expiry"
    made.network.unready = set()
    assert apis(made) == [(1, "Produce")]


def test_a_node_in_reconnect_backoff_is_asked_again_when_that_ends() -> None:
    made = sender_fakes()
    made.batches(b"a")
    made.network.unready, made.network.pauses = {1}, {1: 0.7}
    assert made.step().wake_at == pytest.approx(made.now + 0.7)


def test_a_node_that_is_not_ready_does_not_hold_up_the_others() -> None:
    made = sender_fakes()
    made.batches(b"a")
    made.batches(b"b", partition=2)
    made.network.unready = {1}
    assert apis(made) == [(2, "Produce")]


def test_questions_wait_while_no_node_can_be_asked_and_look_again_soon() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.network.least = None
    step = made.step()
    assert step.requests == []
    assert step.wake_at is not None
    assert made.now < step.wake_at <= made.now + 1
    made.network.least = -2
    assert apis(made) == [(-2, "Metadata")]


def test_questions_wait_for_a_node_in_backoff() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.network.unready, made.network.pauses = {-1}, {-1: 0.4}
    assert made.step().wake_at == pytest.approx(made.now + 0.4)


@pytest.mark.covers("NW9")
@pytest.mark.parametrize("strategy", [300.0, None])
def test_without_a_reachable_node_the_bootstrap_servers_are_asked_again(strategy: float | None) -> None:
    """KIP-899; the topics stay known, so that rows go on being taken in."""
    made = sender_fakes(rebootstrap_after=strategy)
    made.batches(b"a")
    made.metadata.request_update()
    made.fakes.clock.advance(1)
    made.network.lost, made.network.least, made.network.unready = True, None, {1, 2}
    made.step()
    assert (made.metadata.cluster.nodes == {}) is (strategy is not None)
    assert TOPIC in made.metadata.cluster.topics
    made.network.lost, made.network.least, made.network.unready = False, -1, set()
    made.fakes.clock.advance(1)
    made.learn(metadata_of({TOPIC: (2, 2, 2)}, epochs=1))
    assert [request.node for request in made.produce()] == [1 if strategy is None else 2]


@pytest.mark.covers("NW9")
def test_after_the_trigger_without_an_answer_the_bootstrap_servers_are_asked_again() -> None:
    """KIP-1102: nodes that are there and do not answer."""
    made = sender_fakes(rebootstrap_after=300.0)
    start = made.now
    made.metadata.request_update()
    asked = 0
    while made.metadata.cluster.nodes:
        made.fakes.clock.advance(1)
        for request in made.step().requests:
            asked += 1
            made.complete(request, error=ConnectionFailed("no answer"))
        assert made.now < start + 310
    assert made.now >= start + 300
    assert asked > 100


def test_a_question_and_a_batch_to_one_node_go_in_two_steps() -> None:
    """With kafka.max.in.flight.requests.per.connection=1 the node takes one request at a time."""
    made = sender_fakes(keep_order=True)
    made.batches(b"a")
    made.metadata.request_update()
    made.network.least = 1
    made.fakes.clock.advance(1)
    assert apis(made) == [(1, "Metadata")]
    assert apis(made) == [(1, "Produce")]


def test_a_partition_without_a_leader_is_asked_for_in_the_same_step() -> None:
    made = sender_fakes(leaders={TOPIC: (1,)})
    made.fakes.append(b"a", tp=TopicPartition("payments", 0))
    assert apis(made) == [(-1, "Metadata")]


def test_a_leader_that_comes_back_gets_the_batch() -> None:
    made = sender_fakes(leaders={TOPIC: (-1,)})
    made.batches(b"a")
    assert made.step().wake_at == pytest.approx(made.now + BACKOFF)
    made.fakes.clock.advance(BACKOFF)
    made.learn(metadata_of({TOPIC: (2,)}, epochs=1))
    assert apis(made) == [(2, "Produce")]


@pytest.mark.covers("SN11")
def test_the_id_is_asked_for_again_after_a_pause_when_a_node_fails() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.learn(metadata_of({TOPIC: (1,)}))
    for pause in (BACKOFF, 2 * BACKOFF):
        (question,) = made.step().requests
        assert question.api is INIT_PRODUCER_ID
        made.complete(question, InitProducerIdResponse(0, 15, -1, -1))
        assert made.step().wake_at == pytest.approx(made.now + pause)
        made.fakes.clock.advance(pause)
    made.get_id()
    made.batches(b"a")
    assert apis(made) == [(1, "Produce")]


@pytest.mark.covers("SN12", "SN28")
def test_a_refused_producer_id_ends_the_producer() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.learn(metadata_of({TOPIC: (1,)}))
    (question,) = made.step().requests
    made.complete(question, InitProducerIdResponse(0, 31, -1, -1))
    for part in ("CLUSTER_AUTHORIZATION_FAILED (31)", "producer id", "kafka.enable.idempotence", "IDEMPOTENT_WRITE"):
        assert part in str(made.error)
    step = made.step()
    assert (step.requests, step.wake_at) == ([], None)


def test_what_was_written_is_reported_once() -> None:
    made = sender_fakes()
    made.batches(b"a", b"b")
    made.batches(b"c", partition=2)
    for outgoing in made.produce():
        made.complete(outgoing, answer_to(outgoing))
    report = made.sender.take_report()
    assert report.ranges == {(TOPIC, 0): (100, 101, 2), (TOPIC, 2): (100, 100, 1)}
    assert (report.records, report.batches, report.requests, report.retries) == (3, 3, 3, 0)
    assert report.bytes > 2700
    assert made.sender.take_report() == WriteReport({})
