"""Ready batches, their time, order and deadline: an accumulator with a clock that is stopped."""

from __future__ import annotations

import pytest

from spark_producer.accumulator import BatchState, ProducerBatch
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import DeliveryTimeout, ProducerClosed
from tests.fakes.accumulator_fakes import (
    NODE,
    OTHER,
    TP,
    AccumulatorFakes,
    Runner,
    accumulator_fakes,
    encoding_stopped,
    values_of,
)
from tests.support.waiting import wait_until

FULL = b"x" * 900
THIRD = TopicPartition("orders", 2)


def taken(fakes: AccumulatorFakes, *values: bytes) -> list[ProducerBatch]:
    """One full batch in flight for each value's first byte."""
    batches: list[ProducerBatch] = []
    for value in values:
        fakes.append(value.ljust(900, b"."))
    while fakes.ready() and len(batches) < len(values):
        batches.append(fakes.take())
    assert len(batches) == len(values)
    return batches


def firsts(batches: list[ProducerBatch]) -> bytes:
    return b"".join((values_of(batch)[0] or b"")[:1] for batch in batches)


@pytest.mark.covers("RA4")
def test_a_batch_lingers_and_is_ready_to_the_millisecond() -> None:
    fakes = accumulator_fakes(linger=0.010)
    created = fakes.clock.now
    fakes.append(b"a")
    assert (fakes.ready(), fakes.next_time()) == ([], created + 0.010)
    fakes.clock.now = created + 0.0099
    fakes.append(b"b")
    assert fakes.ready() == [], "later rows do not prolong, and do not shorten, the wait"
    fakes.clock.now = created + 0.010
    assert (fakes.ready(), fakes.next_time()) == ([TP], None)


@pytest.mark.covers("RA7")
def test_the_next_time_is_that_of_the_next_partition_and_ready_ones_do_not_count() -> None:
    fakes = accumulator_fakes(linger=0.010)
    fakes.append(b"a")
    fakes.clock.advance(0.004)
    fakes.append(b"b", tp=OTHER)
    assert fakes.next_time() == pytest.approx(fakes.clock.now + 0.006)
    fakes.clock.advance(0.006)
    assert fakes.ready() == [TP]
    assert fakes.next_time() == pytest.approx(fakes.clock.now + 0.004)


@pytest.mark.covers("RA2")
def test_a_full_batch_does_not_linger_and_the_next_open_one_does() -> None:
    fakes = accumulator_fakes(linger=10)
    fakes.append(FULL, b"y" * 200)
    assert fakes.ready() == [TP]
    fakes.take()
    assert fakes.ready() == []


@pytest.mark.covers("RA5", "RA1")
def test_one_batch_leaves_at_a_time_and_the_oldest_first() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(b"1" * 900, b"2" * 900, b"3" * 900)
    assert fakes.ready() == [TP]
    assert firsts([fakes.take(), fakes.take(), fakes.take()]) == b"123"
    assert fakes.ready() == []


@pytest.mark.covers("RA5")
def test_a_drain_keeps_to_its_limit_and_skips_what_does_not_fit() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(FULL)
    fakes.append(FULL, tp=OTHER)
    fakes.append(b"small", tp=THIRD)
    fakes.check()
    taken = fakes.drainer.drain(NODE, 1200, fakes.clock.now)
    assert [batch.topic_partition for batch in taken] == [TP, THIRD]
    assert fakes.ready() == [OTHER], "what did not fit is first the next time"


@pytest.mark.covers("RA29")
def test_a_node_without_partitions_gives_nothing() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(FULL)
    assert fakes.check().nodes == [NODE]
    assert fakes.drainer.drain(99, 1 << 20, fakes.clock.now) == []
    assert fakes.ready() == [TP]


@pytest.mark.covers("RA11")
def test_a_flush_makes_everything_ready_and_ends_with_the_last_acknowledgement() -> None:
    fakes = accumulator_fakes(linger=1000)
    fakes.append(b"a")
    fakes.append(b"b", tp=OTHER)
    assert fakes.ready() == []
    flush = Runner(fakes.accumulator.flush)
    wait_until(lambda: fakes.ready() == [TP, OTHER], "the flush makes both ready")
    fakes.complete(fakes.take())
    assert not flush.done.is_set()
    fakes.complete(fakes.take(OTHER))
    flush.result()
    fakes.append(b"c")
    assert fakes.ready() == [], "after the flush batches linger again"


@pytest.mark.covers("RA12")
def test_a_flush_waits_for_what_was_there_at_its_call_only() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(b"before")
    early = fakes.take()
    flush = Runner(fakes.accumulator.flush)
    wait_until(lambda: fakes.incomplete.flushing == 1, "the flush has begun")
    fakes.append(b"during", tp=OTHER)
    fakes.complete(early)
    flush.result()
    assert not fakes.incomplete.idle


@pytest.mark.covers("RA12")
def test_a_flush_waits_for_a_batch_that_is_sent_again() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(b"again")
    batch = fakes.take()
    flush = Runner(fakes.accumulator.flush)
    fakes.put_back(batch)
    fakes.clock.advance(0.1)
    assert fakes.ready() == [TP]
    assert not flush.done.is_set()
    fakes.complete(fakes.take())
    flush.result()


def test_flush_of_nothing_returns_at_once() -> None:
    fakes = accumulator_fakes()
    Runner(fakes.accumulator.flush).result()
    assert fakes.incomplete.idle


def test_drain_makes_everything_ready_for_good() -> None:
    fakes = accumulator_fakes(linger=1000)
    fakes.incomplete.begin_close()
    for value in (b"a", b"b"):
        fakes.append(value)
        assert fakes.ready() == [TP]
        fakes.complete(fakes.take())


def test_a_flush_that_comes_while_rows_come_in_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The I/O thread must be woken by the end of an append that kept it from sending."""
    fakes = accumulator_fakes(linger=1000)
    fakes.append(b"a")
    with encoding_stopped(monkeypatch) as (reached, go_on):
        appending = Runner(lambda: fakes.append(b"b"))
        assert reached.wait(20)
        flush = Runner(fakes.accumulator.flush)
        wait_until(lambda: len(fakes.wakeups) == 2, "the flush wakes the I/O thread")
        assert fakes.try_take() is None, "the batch is being written to"
        go_on.set()
        appending.result()
    assert fakes.ready() == [TP]
    fakes.complete(fakes.take())
    flush.result()


def test_a_linger_that_ends_while_rows_come_in_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = accumulator_fakes(linger=0.010)
    fakes.append(b"a")
    fakes.clock.advance(0.010)
    assert fakes.ready() == [TP]
    with encoding_stopped(monkeypatch) as (reached, go_on):
        appending = Runner(lambda: fakes.append(b"b"))
        assert reached.wait(20)
        assert fakes.try_take() is None, "it was ready, but rows come in again"
        fakes.incomplete.sleeps(None)
        wakeups = len(fakes.wakeups)
        go_on.set()
        appending.result()
    assert len(fakes.wakeups) == wakeups + 1
    assert values_of(fakes.take()) == [b"a", b"b"]


def test_an_append_without_a_waiting_drain_wakes_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = accumulator_fakes(linger=0.010)
    fakes.append(b"a")
    with encoding_stopped(monkeypatch) as (reached, go_on):
        appending = Runner(lambda: fakes.append(b"b"))
        assert reached.wait(20)
        assert fakes.next_time() == fakes.clock.now + 0.010
        go_on.set()
        appending.result()
    assert len(fakes.wakeups) == 1


@pytest.mark.covers("RA8")
def test_a_batch_sent_again_waits_for_its_backoff_whatever_hurries() -> None:
    fakes = accumulator_fakes(linger=0)
    (batch,) = taken(fakes, b"1")
    fakes.put_back(batch, backoff=0.1)
    fakes.incomplete.begin_close()
    assert (fakes.ready(), fakes.next_time()) == ([], fakes.clock.now + 0.1)
    fakes.clock.advance(0.1)
    assert fakes.ready() == [TP]


def test_put_back_keeps_the_order_of_creation() -> None:
    fakes = accumulator_fakes(linger=0)
    batches = taken(fakes, b"1", b"2", b"3", b"4")
    fakes.append(b"5" * 900)
    for index in (2, 0, 3, 1):
        fakes.put_back(batches[index], backoff=0)
    again = b""
    while fakes.ready():
        batch = fakes.take()
        again += firsts([batch])
        fakes.complete(batch)
    assert again == b"12345"


@pytest.mark.covers("SN15")
def test_batches_sent_again_go_one_at_a_time() -> None:
    """Holds also when the first one is in flight again while later ones still wait for their (failing) responses."""
    fakes = accumulator_fakes(linger=0)
    first, second, third = taken(fakes, b"1", b"2", b"3")
    fakes.put_back(first, backoff=0)
    assert fakes.ready() == [TP]
    assert fakes.take() is first
    fakes.put_back(second, backoff=0)
    assert fakes.ready() == [], "the first is in flight again: its failure must not let the second overtake it"
    fakes.put_back(third, backoff=0)
    assert fakes.ready() == []
    fakes.complete(first)
    assert fakes.ready() == [TP]
    assert fakes.take() is second


@pytest.mark.covers("SN18")
def test_a_batch_sent_again_waits_for_an_earlier_one_that_was_never_sent_again() -> None:
    fakes = accumulator_fakes(linger=0)
    first, second = taken(fakes, b"1", b"2")
    fakes.put_back(second, backoff=0)
    assert fakes.ready() == []
    fakes.complete(first)
    assert fakes.ready() == [TP]


def test_a_full_pool_makes_every_batch_worth_sending_and_wakes_the_io_thread() -> None:
    fakes = accumulator_fakes(memory=2048, batch_size=1024, linger=1000, max_block=1e6)
    fakes.append(b"a")
    fakes.append(b"b", tp=OTHER)
    assert fakes.ready() == []
    wakeups = len(fakes.wakeups)
    appending = Runner(lambda: fakes.append(b"c", tp=TopicPartition("orders", 2)))
    wait_until(lambda: fakes.pool.waiting > 0, "append waits for memory")
    assert len(fakes.wakeups) == wakeups + 1
    assert fakes.ready() == [TP, OTHER]
    fakes.complete(fakes.take())
    appending.result()


def test_a_new_batch_waits_for_one_that_is_sent_again() -> None:
    """Or five new ones would make the broker forget it, if it was written and only its answer was lost."""
    fakes = accumulator_fakes(linger=0)
    (first,) = taken(fakes, b"1")
    fakes.put_back(first, backoff=0)
    fakes.append(b"2" * 900)
    assert fakes.take() is first
    assert fakes.ready() == []
    fakes.complete(first)
    assert fakes.ready() == [TP]


@pytest.mark.covers("RA17", "SN36")
def test_with_one_in_flight_a_partition_is_mute_until_its_answer() -> None:
    fakes = accumulator_fakes(linger=0, keep_order=True)
    fakes.append(b"1" * 900, b"2" * 900)
    fakes.append(b"o", tp=OTHER)
    first = fakes.take()
    assert fakes.ready() == [OTHER]
    fakes.put_back(first, backoff=0)
    assert fakes.take() is first
    assert fakes.ready() == [OTHER]
    fakes.complete(first)
    assert fakes.ready() == [OTHER, TP]


@pytest.mark.covers("SN17", "SN18")
def test_has_earlier_looks_at_queue_and_flight() -> None:
    fakes = accumulator_fakes(linger=0)
    first, second = taken(fakes, b"1", b"2")
    queue = fakes.queue()
    assert (queue.has_earlier(first), queue.has_earlier(second)) == (False, True)
    fakes.put_back(first)
    assert queue.has_earlier(second)
    fakes.clock.advance(1)
    fakes.complete(fakes.take())
    assert not queue.has_earlier(second)


@pytest.mark.covers("RA16")
def test_an_open_batch_expires_while_it_lingers_and_later_rows_open_another() -> None:
    fakes = accumulator_fakes(linger=1000, delivery_timeout=120)
    fakes.append(b"a")
    fakes.clock.advance(120)
    (expired,) = fakes.expire()
    assert expired.state is BatchState.FAILED
    assert fakes.incomplete.idle
    assert fakes.pool.available == fakes.pool.total
    fakes.append(b"b")
    fakes.incomplete.begin_close()
    assert values_of(fakes.take()) == [b"b"]


@pytest.mark.covers("RA15", "PB7", "PB8")
def test_expiry_counts_from_creation_through_every_retry() -> None:
    fakes = accumulator_fakes(linger=0, delivery_timeout=120)
    created = fakes.clock.now
    (batch,) = taken(fakes, b"1")
    assert fakes.incomplete.next_expiry() == created + 120
    fakes.clock.advance(100)
    fakes.put_back(batch)
    batch.last_error = "NOT_ENOUGH_REPLICAS (19)"
    assert fakes.incomplete.next_expiry() == created + 120
    assert fakes.completion.take_expired(created + 119.999) == []
    assert fakes.completion.take_expired(created + 120) == [batch]
    error = fakes.completion.expiry_error(batch, created + 120)
    assert isinstance(error, DeliveryTimeout)
    assert (error.topic, error.partition) == ("orders", 0)  # type: ignore[attr-defined]
    for part in ("1 records", "topic 'orders', partition 0", "120.0 s", "kafka.delivery.timeout.ms", "after 1 failed"):
        assert part in str(error)
    assert "The last response: NOT_ENOUGH_REPLICAS (19)." in str(error)


@pytest.mark.covers("RA15")
def test_timeouts_beyond_any_clock_do_not_overflow() -> None:
    fakes = accumulator_fakes(linger=2.0**63, delivery_timeout=2.0**63)
    fakes.append(b"a")
    assert fakes.ready() == []
    fakes.clock.advance(1e9)
    assert fakes.expire() == []
    fakes.incomplete.begin_close()
    assert fakes.ready() == [TP]


@pytest.mark.covers("RA16", "RA23", "SN39")
def test_the_oldest_of_all_batches_expires_first_wherever_it_is() -> None:
    fakes = accumulator_fakes(linger=1000, delivery_timeout=120)
    assert (fakes.incomplete.next_expiry(), fakes.completion.take_expired(1e9)) == (None, [])
    start = fakes.clock.now
    fakes.append(b"lingers")
    fakes.clock.advance(1)
    fakes.append(b"y", tp=OTHER)
    assert fakes.incomplete.next_expiry() == start + 120
    fakes.incomplete.begin_close()
    lingered, other = fakes.take(), fakes.take(OTHER)
    fakes.complete(lingered)
    assert fakes.incomplete.next_expiry() == start + 121
    fakes.put_back(other, backoff=500)
    assert fakes.completion.take_expired(start + 121) == [other]


def test_the_first_batch_expires_though_it_flew_again_after_later_ones() -> None:
    fakes = accumulator_fakes(linger=0, delivery_timeout=120)
    start = fakes.clock.now
    (first,) = taken(fakes, b"1")
    fakes.clock.advance(50)
    taken(fakes, b"2")
    fakes.put_back(first, backoff=0)
    assert fakes.take() is first
    assert fakes.completion.take_expired(start + 120) == [first]


@pytest.mark.covers("SN38")
def test_an_acknowledged_batch_never_expires() -> None:
    fakes = accumulator_fakes(linger=0)
    (batch,) = taken(fakes, b"1")
    fakes.complete(batch)
    assert (fakes.incomplete.next_expiry(), fakes.completion.take_expired(1e12)) == (None, [])


def test_the_first_reason_of_a_failure_stays() -> None:
    fakes = accumulator_fakes()
    reason = DeliveryTimeout("the reason")
    fakes.completion.abort(reason)
    fakes.completion.abort(ProducerClosed("later"))
    fakes.accumulator.close(ProducerClosed("later still"))
    with pytest.raises(DeliveryTimeout, match="the reason"):
        fakes.incomplete.check()
