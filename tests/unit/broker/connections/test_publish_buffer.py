"""The publish buffer: when a connection that produces is paused, and when it goes on. The ids are those of tests/ids.md."""

from __future__ import annotations

import math

import pytest

from spark_producer.broker.connections.publish_buffer import (
    MAX_REQUESTS,
    RESUME_REQUESTS,
    UNLIMITED,
    PauseReason,
    PublishBuffer,
    Publisher,
)
from spark_producer.broker.memory.watermark import Watermark

LIMIT = 1000


def buffer_of(limit: int = LIMIT, memory: float = math.inf) -> PublishBuffer[str]:
    return PublishBuffer(limit, Watermark(memory))


def publisher_of(buffer: PublishBuffer[str], owner: str = "one") -> Publisher[str]:
    publisher = Publisher(buffer, owner)
    publisher.begin()
    return publisher


@pytest.mark.covers("PUB1", "PUB2")
def test_all_producers_are_paused_above_the_limit_and_not_before() -> None:
    buffer = buffer_of()
    one, two = publisher_of(buffer), publisher_of(buffer, "two")
    one.hold(LIMIT, 0)
    assert one.reasons == two.reasons == frozenset()
    two.hold(1, 0)
    assert one.reasons == two.reasons == {PauseReason.PUBLISH_BYTES}
    assert one.is_paused
    assert two.is_paused
    assert not Publisher(buffer, "a consumer").is_paused


@pytest.mark.covers("PUB3")
def test_they_go_on_at_half_exactly() -> None:
    buffer = buffer_of()
    one, two = publisher_of(buffer), publisher_of(buffer, "two")
    one.hold(LIMIT // 2 + 1, 0)
    two.hold(LIMIT // 2, 0)
    for publisher in (two, one):
        buffer.pause(publisher, 0.0)
    two.release(LIMIT // 2, 0)
    assert (one.is_paused, buffer.take_resumed(0.0), buffer.paused) == (True, [], 2)
    one.hold(499, 0)
    one.release(LIMIT // 2 + 1, 0)
    one.hold(1, 0)
    assert not one.is_paused
    assert buffer.take_resumed(0.0) == ["two", "one"], "in the order in which they were paused"
    assert (buffer.paused, buffer.pauses) == (0, 2)


@pytest.mark.covers("PUB4")
def test_of_two_reasons_one_is_enough() -> None:
    buffer = buffer_of()
    one, two = publisher_of(buffer), publisher_of(buffer, "two")
    for _ in range(MAX_REQUESTS):
        assert not one.is_paused
        one.hold(1, 0)
    assert not two.is_paused
    two.hold(1, 0)
    assert one.reasons == {PauseReason.PUBLISH_BYTES, PauseReason.PENDING_REQUESTS}
    assert two.reasons == {PauseReason.PUBLISH_BYTES}
    buffer.pause(one, 0.0)
    buffer.pause(two, 0.0)
    for _ in range(MAX_REQUESTS - RESUME_REQUESTS - 1):
        one.release(1, 0)
    two.release(1, 0)
    assert one.reasons == {PauseReason.PUBLISH_BYTES, PauseReason.PENDING_REQUESTS}, "501 bytes are more than half"
    one.release(1, 0)
    assert one.reasons == frozenset()
    for _ in range(RESUME_REQUESTS):
        one.hold(0, 0)
    assert one.reasons == {PauseReason.PENDING_REQUESTS}
    assert buffer.take_resumed(0.0) == ["two"]
    assert one.is_paused


def test_the_memory_of_what_waits_is_a_reason_too() -> None:
    buffer = buffer_of(memory=100)
    one = publisher_of(buffer)
    one.hold(1, 101)
    assert one.reasons == {PauseReason.WAITING_MEMORY}
    one.release(1, 101)
    assert one.reasons == frozenset()


@pytest.mark.covers("PUB6")
def test_who_leaves_while_paused_leaves_no_count() -> None:
    buffer = buffer_of(memory=100)
    one, two = publisher_of(buffer), publisher_of(buffer, "two")
    one.hold(LIMIT + 1, 101)
    assert one.may_wait_for_space(0.0, 10.0)
    for publisher in (one, two):
        buffer.pause(publisher, 0.0)
    one.close()
    assert (buffer.bytes.amount, buffer.memory.amount, buffer.paused, buffer.next_deadline()) == (0, 0, 1, math.inf)
    assert buffer.take_resumed(0.0) == ["two"]


@pytest.mark.covers("PUB7")
def test_without_a_limit_no_producer_is_paused() -> None:
    buffer = buffer_of(UNLIMITED)
    one = publisher_of(buffer)
    one.hold(2**60, 0)
    assert not one.is_paused
    assert buffer.bytes.peak == 2**60


def test_a_publisher_that_waits_for_space_retries_when_there_is_some() -> None:
    buffer = buffer_of()
    one = publisher_of(buffer)
    assert one.may_wait_for_space(5.0, 10.0)
    assert one.reasons == {PauseReason.STORAGE_SPACE}
    buffer.pause(one, 0.0)
    assert (buffer.take_resumed(14.9), buffer.next_deadline()) == ([], 15.0)
    buffer.space_freed()
    assert buffer.has_resumable()
    assert buffer.take_resumed(14.9) == ["one"]
    assert one.may_wait_for_space(14.9, 10.0), "others were faster"
    buffer.pause(one, 0.0)
    assert buffer.next_deadline() == 15.0, "its deadline stays"
    buffer.space_freed()
    one.deadline = math.inf
    assert one.may_wait_for_space(15.0, 10.0), "that is its next request"
    assert buffer.next_deadline() == 25.0


def test_a_publisher_waits_for_space_up_to_its_deadline() -> None:
    buffer = buffer_of()
    one = publisher_of(buffer)
    assert one.may_wait_for_space(5.0, 10.0)
    buffer.pause(one, 5.0)
    buffer.pause(one, 7.0)
    assert buffer.take_resumed(15.0) == ["one"]
    assert buffer.paused_ms == 10_000.0
    assert not one.may_wait_for_space(15.0, 10.0)
    assert not one.is_paused
