"""Expiry of batches wherever they are, and the effect of a late response. Ids (tests/ids.md): SN, RA and KIP-91."""

from __future__ import annotations

import pytest

from spark_producer.accumulator import BatchState
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import ConnectionFailed, DeliveryTimeout
from tests.fakes.sender_fakes import (
    answer_to,
    first_letters,
    in_flight,
    sender_fakes,
    sent_in,
)

FINAL = [code for code in Code if code and not code.action & (Action.RETRY | Action.SUCCESS)]
FATAL = [code for code in FINAL if Action.FATAL in code.action]


@pytest.mark.covers("RA24", "SN19", "SN37")
@pytest.mark.parametrize("where", ["queued", "in flight", "waiting to be sent again"])
def test_a_batch_that_is_not_acknowledged_in_time_fails(where: str) -> None:
    made = sender_fakes(delivery_timeout=120)
    made.network.unready = {1} if where == "queued" else set()
    made.batches(b"a")
    requests = made.produce()
    if where == "waiting to be sent again":
        made.complete(requests[0], answer_to(requests[0], 19))
    made.fakes.clock.advance(119.9)
    if where == "in flight":
        assert made.step().wake_at == pytest.approx(made.now + 0.1)
    made.fakes.clock.advance(0.1)
    assert made.step().requests == [], "nothing that has expired is sent"
    assert isinstance(made.error, DeliveryTimeout)
    assert made.fakes.incomplete.idle
    held = made.fakes.pool.total - made.fakes.pool.available
    assert held == (1024 if where == "in flight" else 0), "the network may still read what is in flight"
    if where == "in flight":
        made.complete(requests[0], answer_to(requests[0], 19))
        assert made.produce() == [], "a late refusal is not a reason to send it again"
    assert made.fakes.pool.available == made.fakes.pool.total


def test_a_batch_that_expires_because_its_leader_cannot_be_reached_says_why() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.network.unready = {1}
    made.network.errors = {1: ConnectionFailed("cannot resolve 'kafka-1.internal': Name or service not known")}
    made.batches(b"a")
    made.fakes.clock.advance(120)
    made.step()
    assert "Its leader, broker 1, cannot be reached: cannot resolve 'kafka-1.internal'" in str(made.error)
    assert "advertised.listeners" in str(made.error)


def test_a_batch_that_expires_without_a_leader_says_so() -> None:
    made = sender_fakes(delivery_timeout=120, leaders={"topic": (-1,)})
    made.batches(b"a")
    made.fakes.clock.advance(120)
    made.step()
    assert "The partition has no leader, or the brokers lack its address." in str(made.error)


@pytest.mark.covers("SN34", "SN33")
@pytest.mark.parametrize("code", [0, 19, 10, 46])
def test_the_buffer_of_a_batch_that_expired_in_flight_is_not_reused_before_its_answer(code: int) -> None:
    """KAFKA-19012: the next user of the buffer would change what is still being sent."""
    made = sender_fakes(delivery_timeout=120, memory=2048)
    made.fakes.append(b"poison me?" * 9, b"not yet" * 9)
    (outgoing,) = made.produce()
    (batch,) = outgoing.batches
    on_the_wire = batch.data
    before = bytes(on_the_wire)
    made.fakes.clock.advance(120)
    made.step()
    assert batch.state is BatchState.FAILED
    poisoned = made.fakes.pool.try_allocate(1024)
    assert poisoned is not None
    poisoned[:] = b"\xff" * 1024
    assert bytes(on_the_wire) == before
    assert made.fakes.pool.try_allocate(1024) is None
    made.complete(outgoing, answer_to(outgoing, code))
    assert made.fakes.pool.try_allocate(1024) is not None, "and after it the memory is free, once"
    assert made.fakes.pool.try_allocate(1) is None


@pytest.mark.covers("SN34")
def test_a_disconnect_frees_the_buffer_of_an_expired_batch() -> None:
    made = sender_fakes(delivery_timeout=120)
    (outgoing,) = in_flight(made, b"a")
    made.fakes.clock.advance(120)
    made.step()
    assert made.fakes.pool.available < made.fakes.pool.total
    made.complete(outgoing, error=ConnectionFailed("gone"))
    assert made.fakes.pool.available == made.fakes.pool.total


@pytest.mark.covers("SN20")
def test_a_late_acknowledgement_of_an_expired_batch_resolves_its_partition() -> None:
    made = sender_fakes(delivery_timeout=120)
    (outgoing,) = in_flight(made, b"a")
    made.fakes.clock.advance(120)
    made.step()
    made.batches(b"b")
    assert made.produce() == [], "it is unknown whether there is a gap"
    made.complete(outgoing, answer_to(outgoing))
    (after,) = made.produce()
    assert sent_in(after)[0].header[9:12] == (77, 0, 1)
    assert made.sender.take_report().records == 0, "it counts as failed, as its futures say"


@pytest.mark.covers("SN20", "SN22", "SN23")
def test_all_sent_batches_expired_begin_a_new_epoch_once_they_are_off_the_wire() -> None:
    made = sender_fakes(delivery_timeout=120)
    requests = in_flight(made, b"a", b"b")
    made.fakes.clock.advance(120)
    made.step()
    made.batches(b"c", b"d")
    for request in requests:
        assert made.produce() == []
        made.complete(request, answer_to(request, 19))
    made.fakes.clock.advance(1)
    found = []
    while not made.fakes.incomplete.idle:
        (request,) = made.produce()
        found.append(sent_in(request)[0].header[9:12])
        made.complete(request, answer_to(request))
    assert found == [(77, 1, 0), (77, 1, 1)]


@pytest.mark.covers("SN36")
def test_the_second_batch_does_not_overtake_an_expired_one_with_one_in_flight() -> None:
    made = sender_fakes(delivery_timeout=120, keep_order=True, idempotent=False)
    made.batches(b"a")
    (outgoing,) = made.produce()
    made.fakes.clock.advance(119)
    made.batches(b"b")
    made.fakes.clock.advance(1)
    assert made.produce() == []
    made.complete(outgoing, answer_to(outgoing))
    assert first_letters(made.produce()) == "b"


@pytest.mark.covers("SN38")
def test_the_next_expiry_is_that_of_the_oldest_batch_left() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.network.unready = {1, 2}
    made.batches(b"a")
    made.fakes.clock.advance(50)
    made.batches(b"b")
    assert made.step().wake_at == pytest.approx(made.now + 70)
    made.fakes.clock.advance(70)
    assert made.step().wake_at == pytest.approx(made.now + 50)
    made.fakes.clock.advance(50)
    made.step()
    assert made.fakes.incomplete.idle


@pytest.mark.covers("SN39")
def test_batches_of_several_partitions_expire_together() -> None:
    made = sender_fakes(delivery_timeout=120)
    for partition in range(3):
        made.batches(b"a", partition=partition)
    requests = made.produce()
    made.fakes.clock.advance(120)
    made.step()
    assert made.fakes.incomplete.idle
    for request in requests:
        made.complete(request, answer_to(request))
    assert made.fakes.pool.available == made.fakes.pool.total


@pytest.mark.covers("SN46")
def test_a_batch_that_was_given_up_takes_no_second_answer() -> None:
    made = sender_fakes()
    (outgoing,) = in_flight(made, b"a")
    (batch,) = outgoing.batches
    made.complete(outgoing, answer_to(outgoing, 29))
    reason = made.error
    assert batch.complete(5, -1) is False
    assert batch.fail(ConnectionFailed("gone")) is False
    assert made.error is reason
    assert "TOPIC_AUTHORIZATION_FAILED" in str(reason)


@pytest.mark.covers("SN6")
def test_the_callback_of_an_expired_batch_may_append() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.network.unready = {1}
    future = made.fakes.append_one(b"a", callback=lambda _, error: made.batches(b"b") if error else None)
    made.produce()
    made.fakes.clock.advance(120)
    made.network.unready = set()
    assert first_letters(made.produce()) == "b"
    assert isinstance(future.exception(0), DeliveryTimeout)
