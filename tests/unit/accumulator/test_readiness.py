"""Which batches are worth sending, when, in which order, and until when: an accumulator under a clock that stands."""

from __future__ import annotations

import pytest

from spark_producer.accumulator import BatchState, ProducerBatch
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import DeliveryTimeout, ProducerClosed
from tests.fakes.accumulator_fakes import NODE, OTHER, TP, Bench, Runner, encoding_stopped, values_of, workbench
from tests.support.waiting import wait_until

FULL = b"x" * 900
THIRD = TopicPartition("orders", 2)


def taken(bench: Bench, *values: bytes) -> list[ProducerBatch]:
    """One full batch in flight for each value's first byte."""
    batches: list[ProducerBatch] = []
    for value in values:
        bench.append(value.ljust(900, b"."))
    while bench.ready() and len(batches) < len(values):
        batches.append(bench.take())
    assert len(batches) == len(values)
    return batches


def firsts(batches: list[ProducerBatch]) -> bytes:
    return b"".join((values_of(batch)[0] or b"")[:1] for batch in batches)


def test_ra4_a_batch_lingers_and_is_ready_to_the_millisecond() -> None:
    bench = workbench(linger=0.010)
    created = bench.clock.now
    bench.append(b"a")
    assert (bench.ready(), bench.next_time()) == ([], created + 0.010)
    bench.clock.now = created + 0.0099
    bench.append(b"b")
    assert bench.ready() == [], "later rows do not prolong, and do not shorten, the wait"
    bench.clock.now = created + 0.010
    assert (bench.ready(), bench.next_time()) == ([TP], None)


def test_ra7_the_next_time_is_that_of_the_next_partition_and_ready_ones_do_not_count() -> None:
    bench = workbench(linger=0.010)
    bench.append(b"a")
    bench.clock.advance(0.004)
    bench.append(b"b", tp=OTHER)
    assert bench.next_time() == pytest.approx(bench.clock.now + 0.006)
    bench.clock.advance(0.006)
    assert bench.ready() == [TP]
    assert bench.next_time() == pytest.approx(bench.clock.now + 0.004)


def test_ra2_a_full_batch_does_not_linger_and_the_next_open_one_does() -> None:
    bench = workbench(linger=10)
    bench.append(FULL, b"y" * 200)
    assert bench.ready() == [TP]
    bench.take()
    assert bench.ready() == []


def test_ra5_ra1_one_batch_leaves_at_a_time_and_the_oldest_first() -> None:
    bench = workbench(linger=0)
    bench.append(b"1" * 900, b"2" * 900, b"3" * 900)
    assert bench.ready() == [TP]
    assert firsts([bench.take(), bench.take(), bench.take()]) == b"123"
    assert bench.ready() == []


def test_ra5_a_drain_keeps_to_its_limit_and_skips_what_does_not_fit() -> None:
    bench = workbench(linger=0)
    bench.append(FULL)
    bench.append(FULL, tp=OTHER)
    bench.append(b"small", tp=THIRD)
    bench.check()
    taken = bench.drainer.drain(NODE, 1200, bench.clock.now)
    assert [batch.topic_partition for batch in taken] == [TP, THIRD]
    assert bench.ready() == [OTHER], "what did not fit is first the next time"


def test_ra29_a_node_without_partitions_gives_nothing() -> None:
    bench = workbench(linger=0)
    bench.append(FULL)
    assert bench.check().nodes == [NODE]
    assert bench.drainer.drain(99, 1 << 20, bench.clock.now) == []
    assert bench.ready() == [TP]


def test_ra11_a_flush_makes_everything_ready_and_ends_with_the_last_acknowledgement() -> None:
    bench = workbench(linger=1000)
    bench.append(b"a")
    bench.append(b"b", tp=OTHER)
    assert bench.ready() == []
    flush = Runner(bench.accumulator.flush)
    wait_until(lambda: bench.ready() == [TP, OTHER], "the flush makes both ready")
    bench.complete(bench.take())
    assert not flush.done.is_set()
    bench.complete(bench.take(OTHER))
    flush.result()
    bench.append(b"c")
    assert bench.ready() == [], "after the flush batches linger again"


def test_ra12_a_flush_waits_for_what_was_there_at_its_call_only() -> None:
    bench = workbench(linger=0)
    bench.append(b"before")
    early = bench.take()
    flush = Runner(bench.accumulator.flush)
    wait_until(lambda: bench.incomplete.flushing == 1, "the flush has begun")
    bench.append(b"during", tp=OTHER)
    bench.complete(early)
    flush.result()
    assert not bench.incomplete.idle


def test_ra12_a_flush_waits_for_a_batch_that_is_sent_again() -> None:
    bench = workbench(linger=0)
    bench.append(b"again")
    batch = bench.take()
    flush = Runner(bench.accumulator.flush)
    bench.put_back(batch)
    bench.clock.advance(0.1)
    assert bench.ready() == [TP]
    assert not flush.done.is_set()
    bench.complete(bench.take())
    flush.result()


def test_flush_of_nothing_returns_at_once() -> None:
    bench = workbench()
    Runner(bench.accumulator.flush).result()
    assert bench.incomplete.idle


def test_drain_makes_everything_ready_for_good() -> None:
    bench = workbench(linger=1000)
    bench.incomplete.begin_close()
    for value in (b"a", b"b"):
        bench.append(value)
        assert bench.ready() == [TP]
        bench.complete(bench.take())


def test_a_flush_that_comes_while_rows_come_in_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The I/O thread must be woken by the end of an append that kept it from sending."""
    bench = workbench(linger=1000)
    bench.append(b"a")
    with encoding_stopped(monkeypatch) as (reached, go_on):
        appending = Runner(lambda: bench.append(b"b"))
        assert reached.wait(20)
        flush = Runner(bench.accumulator.flush)
        wait_until(lambda: len(bench.wakeups) == 2, "the flush wakes the I/O thread")
        assert bench.try_take() is None, "the batch is being written to"
        go_on.set()
        appending.result()
    assert bench.ready() == [TP]
    bench.complete(bench.take())
    flush.result()


def test_a_linger_that_ends_while_rows_come_in_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = workbench(linger=0.010)
    bench.append(b"a")
    bench.clock.advance(0.010)
    assert bench.ready() == [TP]
    with encoding_stopped(monkeypatch) as (reached, go_on):
        appending = Runner(lambda: bench.append(b"b"))
        assert reached.wait(20)
        assert bench.try_take() is None, "it was ready, but rows come in again"
        bench.incomplete.sleeps(None)
        wakeups = len(bench.wakeups)
        go_on.set()
        appending.result()
    assert len(bench.wakeups) == wakeups + 1
    assert values_of(bench.take()) == [b"a", b"b"]


def test_an_append_without_a_waiting_drain_wakes_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = workbench(linger=0.010)
    bench.append(b"a")
    with encoding_stopped(monkeypatch) as (reached, go_on):
        appending = Runner(lambda: bench.append(b"b"))
        assert reached.wait(20)
        assert bench.next_time() == bench.clock.now + 0.010
        go_on.set()
        appending.result()
    assert len(bench.wakeups) == 1


def test_ra8_a_batch_sent_again_waits_for_its_backoff_whatever_hurries() -> None:
    bench = workbench(linger=0)
    (batch,) = taken(bench, b"1")
    bench.put_back(batch, backoff=0.1)
    bench.incomplete.begin_close()
    assert (bench.ready(), bench.next_time()) == ([], bench.clock.now + 0.1)
    bench.clock.advance(0.1)
    assert bench.ready() == [TP]


def test_put_back_keeps_the_order_of_creation() -> None:
    bench = workbench(linger=0)
    batches = taken(bench, b"1", b"2", b"3", b"4")
    bench.append(b"5" * 900)
    for index in (2, 0, 3, 1):
        bench.put_back(batches[index], backoff=0)
    again = b""
    while bench.ready():
        batch = bench.take()
        again += firsts([batch])
        bench.complete(batch)
    assert again == b"12345"


def test_sn15_batches_sent_again_go_one_at_a_time() -> None:
    """Also when the first one is in flight again while later ones still wait for their (failing) answers."""
    bench = workbench(linger=0)
    first, second, third = taken(bench, b"1", b"2", b"3")
    bench.put_back(first, backoff=0)
    assert bench.ready() == [TP]
    assert bench.take() is first
    bench.put_back(second, backoff=0)
    assert bench.ready() == [], "the first is in flight again: its failure must not let the second overtake it"
    bench.put_back(third, backoff=0)
    assert bench.ready() == []
    bench.complete(first)
    assert bench.ready() == [TP]
    assert bench.take() is second


def test_sn18_a_batch_sent_again_waits_for_an_earlier_one_that_was_never_sent_again() -> None:
    bench = workbench(linger=0)
    first, second = taken(bench, b"1", b"2")
    bench.put_back(second, backoff=0)
    assert bench.ready() == []
    bench.complete(first)
    assert bench.ready() == [TP]


def test_a_full_pool_makes_every_batch_worth_sending_and_wakes_the_io_thread() -> None:
    bench = workbench(memory=2048, batch_size=1024, linger=1000, max_block=1e6)
    bench.append(b"a")
    bench.append(b"b", tp=OTHER)
    assert bench.ready() == []
    wakeups = len(bench.wakeups)
    appending = Runner(lambda: bench.append(b"c", tp=TopicPartition("orders", 2)))
    wait_until(lambda: bench.pool.waiting > 0, "append waits for memory")
    assert len(bench.wakeups) == wakeups + 1
    assert bench.ready() == [TP, OTHER]
    bench.complete(bench.take())
    appending.result()


def test_a_new_batch_waits_for_one_that_is_sent_again() -> None:
    """Or five new ones would make the broker forget it, if it was written and only its answer was lost."""
    bench = workbench(linger=0)
    (first,) = taken(bench, b"1")
    bench.put_back(first, backoff=0)
    bench.append(b"2" * 900)
    assert bench.take() is first
    assert bench.ready() == []
    bench.complete(first)
    assert bench.ready() == [TP]


def test_ra17_sn36_with_one_in_flight_a_partition_is_mute_until_its_answer() -> None:
    bench = workbench(linger=0, keep_order=True)
    bench.append(b"1" * 900, b"2" * 900)
    bench.append(b"o", tp=OTHER)
    first = bench.take()
    assert bench.ready() == [OTHER]
    bench.put_back(first, backoff=0)
    assert bench.take() is first
    assert bench.ready() == [OTHER]
    bench.complete(first)
    assert bench.ready() == [OTHER, TP]


def test_sn17_sn18_has_earlier_looks_at_queue_and_flight() -> None:
    bench = workbench(linger=0)
    first, second = taken(bench, b"1", b"2")
    queue = bench.queue()
    assert (queue.has_earlier(first), queue.has_earlier(second)) == (False, True)
    bench.put_back(first)
    assert queue.has_earlier(second)
    bench.clock.advance(1)
    bench.complete(bench.take())
    assert not queue.has_earlier(second)


def test_ra16_an_open_batch_expires_while_it_lingers_and_later_rows_open_another() -> None:
    bench = workbench(linger=1000, delivery_timeout=120)
    bench.append(b"a")
    bench.clock.advance(120)
    (expired,) = bench.expire()
    assert expired.state is BatchState.FAILED
    assert bench.incomplete.idle
    assert bench.pool.available == bench.pool.total
    bench.append(b"b")
    bench.incomplete.begin_close()
    assert values_of(bench.take()) == [b"b"]


def test_ra15_pb7_pb8_expiry_counts_from_creation_through_every_retry() -> None:
    bench = workbench(linger=0, delivery_timeout=120)
    created = bench.clock.now
    (batch,) = taken(bench, b"1")
    assert bench.incomplete.next_expiry() == created + 120
    bench.clock.advance(100)
    bench.put_back(batch)
    batch.last_error = "NOT_ENOUGH_REPLICAS (19)"
    assert bench.incomplete.next_expiry() == created + 120
    assert bench.completion.take_expired(created + 119.999) == []
    assert bench.completion.take_expired(created + 120) == [batch]
    error = bench.completion.expiry_error(batch, created + 120)
    assert isinstance(error, DeliveryTimeout)
    assert (error.topic, error.partition) == ("orders", 0)  # type: ignore[attr-defined]
    for part in ("1 records", "topic 'orders', partition 0", "120.0 s", "kafka.delivery.timeout.ms", "after 1 failed"):
        assert part in str(error)
    assert "The last response: NOT_ENOUGH_REPLICAS (19)." in str(error)


def test_ra15_timeouts_beyond_any_clock_do_not_overflow() -> None:
    bench = workbench(linger=2.0**63, delivery_timeout=2.0**63)
    bench.append(b"a")
    assert bench.ready() == []
    bench.clock.advance(1e9)
    assert bench.expire() == []
    bench.incomplete.begin_close()
    assert bench.ready() == [TP]


def test_ra16_ra23_sn39_the_oldest_of_all_batches_expires_first_wherever_it_is() -> None:
    bench = workbench(linger=1000, delivery_timeout=120)
    assert (bench.incomplete.next_expiry(), bench.completion.take_expired(1e9)) == (None, [])
    start = bench.clock.now
    bench.append(b"lingers")
    bench.clock.advance(1)
    bench.append(b"y", tp=OTHER)
    assert bench.incomplete.next_expiry() == start + 120
    bench.incomplete.begin_close()
    lingered, other = bench.take(), bench.take(OTHER)
    bench.complete(lingered)
    assert bench.incomplete.next_expiry() == start + 121
    bench.put_back(other, backoff=500)
    assert bench.completion.take_expired(start + 121) == [other]


def test_the_first_batch_expires_though_it_flew_again_after_later_ones() -> None:
    bench = workbench(linger=0, delivery_timeout=120)
    start = bench.clock.now
    (first,) = taken(bench, b"1")
    bench.clock.advance(50)
    taken(bench, b"2")
    bench.put_back(first, backoff=0)
    assert bench.take() is first
    assert bench.completion.take_expired(start + 120) == [first]


def test_sn38_an_acknowledged_batch_never_expires() -> None:
    bench = workbench(linger=0)
    (batch,) = taken(bench, b"1")
    bench.complete(batch)
    assert (bench.incomplete.next_expiry(), bench.completion.take_expired(1e12)) == (None, [])


def test_the_first_reason_of_a_failure_stays() -> None:
    bench = workbench()
    reason = DeliveryTimeout("the reason")
    bench.completion.abort(reason)
    bench.completion.abort(ProducerClosed("later"))
    bench.accumulator.close(ProducerClosed("later still"))
    with pytest.raises(DeliveryTimeout, match="the reason"):
        bench.incomplete.check()
