"""Rows into batches: what fits, what opens a new batch, what an encoder's failure leaves. Ids (tests/ids.md): RA and PB."""

from __future__ import annotations

import random
import threading
from functools import partial

import numpy as np
import pytest

from spark_producer.accumulator import BufferPool
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted, ProducerClosed, RecordTooLarge
from spark_producer.kernel import ArrangedRows
from spark_producer.record.batch_v2 import HEADER_SIZE, read_header
from tests.fakes.accumulator_fakes import (
    DEADLINE,
    OTHER,
    TP,
    AccumulatorFakes,
    Runner,
    accumulator_fakes,
    encoding_stopped,
    rows_of,
    values_of,
)
from tests.support.waiting import wait_until


def drained(fakes: AccumulatorFakes) -> list[tuple[int, list[bytes | None]]]:
    """Bytes and values of every batch of PLACE that is ready, in order, acknowledged."""
    batches = []
    while TP in fakes.ready():
        batch = fakes.take()
        batches.append((batch.size, values_of(batch)))
        fakes.complete(batch)
    return batches


@pytest.mark.covers("RA2")
def test_rows_fill_the_open_batch_and_it_is_ready_when_the_next_one_opens() -> None:
    fakes = accumulator_fakes(batch_size=1024)
    appended = 0
    while not fakes.ready():
        fakes.append(b"v" * 100)
        appended += 1
        assert appended < 20
    batch = fakes.take()
    assert batch.records_count == appended - 1
    assert batch.position <= 1024 < batch.position + 107
    assert values_of(batch) == [b"v" * 100] * (appended - 1)


@pytest.mark.covers("RA2")
def test_a_run_is_split_over_batches_exactly() -> None:
    random_sizes = random.Random(7)
    values: list[bytes | None] = [random_sizes.randbytes(random_sizes.randrange(300)) for _ in range(500)]
    values[3] = values[250] = None
    fakes = accumulator_fakes(batch_size=1024, linger=0)
    fakes.append(*values[:200])
    fakes.append(*values[200:])
    batches = drained(fakes)
    assert len(batches) > 50
    assert [value for _, found in batches for value in found] == values
    assert all(size <= 1024 for size, _ in batches)
    assert all(size > 1024 - 310 for size, _ in batches[:-1]), "closed while another row would have fitted"
    assert fakes.pool.available == fakes.pool.total


def test_a_run_continues_in_the_open_batch_from_any_row_of_the_columns() -> None:
    fakes = accumulator_fakes(linger=0)
    rows = rows_of([b"a", b"b", b"c", b"d", b"e"])
    fakes.accumulator.append(TP, rows, 1, 3)
    fakes.accumulator.append(OTHER, rows, 0, 1)
    fakes.accumulator.append(TP, rows, 4, 5)
    batch = fakes.take()
    assert values_of(batch) == [b"b", b"c", b"e"]
    header = read_header(batch.data)
    assert (header.records_count, header.last_offset_delta) == (3, 2)
    assert values_of(fakes.take(OTHER)) == [b"a"]


def test_an_empty_run_opens_nothing() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.accumulator.append(TP, rows_of([b"a"]), 1, 1)
    assert fakes.incomplete.idle
    assert fakes.pool.available == fakes.pool.total


@pytest.mark.covers("RA3")
def test_an_oversize_row_gets_a_batch_of_its_own_size_and_its_own() -> None:
    fakes = accumulator_fakes(batch_size=1024, linger=0)
    large = b"L" * 5000
    after = b"more than the few bytes of slack"
    fakes.append(b"before", large, after)
    first, oversize, last = (fakes.take() for _ in range(3))
    assert [values_of(batch) for batch in (first, oversize, last)] == [[b"before"], [large], [after]]
    assert len(oversize.buffer) < 5000 + HEADER_SIZE + 40
    assert fakes.pool.available == fakes.pool.total - 2 * 1024 - len(oversize.buffer)
    for batch in (first, oversize, last):
        fakes.complete(batch)
    assert fakes.pool.available == fakes.pool.total


@pytest.mark.covers("RA20")
def test_the_first_oversize_row_is_taken_and_the_second_opens_another_batch() -> None:
    fakes = accumulator_fakes(batch_size=1024, linger=0)
    fakes.append(b"1" * 2000)
    fakes.append(b"2" * 2000)
    assert [values for _, values in drained(fakes)] == [[b"1" * 2000], [b"2" * 2000]]


def test_a_row_beyond_the_whole_pool_is_refused_and_leaves_nothing() -> None:
    fakes = accumulator_fakes(memory=4096, batch_size=1024)
    with pytest.raises(RecordTooLarge, match=r"buffer\.memory"):
        fakes.append(b"x" * 5000)
    assert fakes.incomplete.idle
    fakes.append(b"small")
    assert not fakes.incomplete.idle


def test_timestamps_base_is_the_first_rows_and_maximum_that_of_all() -> None:
    fakes = accumulator_fakes(linger=0)
    rows = rows_of([b"a", b"b", b"c"], [5000, 9000, 4000])
    fakes.accumulator.append(TP, rows, 0, 3)
    batch = fakes.take()
    batch.write_header()
    header = read_header(batch.data)
    assert (header.base_timestamp, header.max_timestamp) == (5000, 9000)


@pytest.mark.covers("PB9")
def test_a_taken_batch_takes_no_more_rows() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(b"a")
    batch = fakes.take()
    fakes.append(b"b")
    assert values_of(batch) == [b"a"]
    assert values_of(fakes.take()) == [b"b"]


@pytest.mark.covers("MD1")
def test_futures_of_single_records_know_offset_and_timestamp() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(b"row of a run")
    futures = [fakes.append_one(b"single", 7000 + number) for number in range(3)]
    batch = fakes.take()
    assert not any(future.done() for future in futures)
    fakes.complete(batch, 40)
    assert [future.result(0) for future in futures] == [("orders", 0, 41 + n, 7000 + n) for n in range(3)]


@pytest.mark.covers("MD1")
@pytest.mark.parametrize(("base", "append_time", "expected"), [(-1, -1, (-1, 7000)), (9, 123, (9, 123))])
def test_unknown_offset_and_log_append_time(base: int, append_time: int, expected: tuple[int, int]) -> None:
    fakes = accumulator_fakes(linger=0)
    future = fakes.append_one(b"single", 7000)
    fakes.complete(fakes.take(), base, append_time)
    assert future.result(0)[2:] == expected


def test_a_single_record_that_does_not_fit_moves_to_the_next_batch_with_its_future() -> None:
    fakes = accumulator_fakes(batch_size=1024, linger=0)
    fakes.append(b"x" * 900)
    future = fakes.append_one(b"y" * 500)
    first, second = fakes.take(), fakes.take()
    fakes.complete(first, 10)
    assert not future.done()
    fakes.complete(second, 70)
    assert future.result(0).offset == 70


@pytest.mark.covers("KP9")
def test_futures_are_done_and_memory_is_free_before_a_flush_can_see_the_end() -> None:
    fakes = accumulator_fakes(linger=0)
    future = fakes.append_one(b"single")
    seen = []
    future.add_done_callback(lambda _: seen.append((fakes.incomplete.idle, fakes.pool.available)))
    fakes.complete(fakes.take())
    assert seen == [(False, fakes.pool.total)]
    assert fakes.incomplete.idle


def test_a_new_batch_wakes_no_thread_that_wakes_in_time_anyway() -> None:
    fakes = accumulator_fakes(linger=0.010)
    fakes.incomplete.sleeps(fakes.clock.now + 0.010)
    fakes.append(b"a")
    assert fakes.wakeups == []
    fakes.incomplete.sleeps(fakes.clock.now + 0.011)
    fakes.append(b"b", tp=OTHER)
    assert len(fakes.wakeups) == 1
    assert not fakes.incomplete.sleeps(None), "there is news: it must not sleep"
    fakes.ready()
    assert fakes.incomplete.sleeps(None)


def test_the_io_thread_is_woken_for_a_new_and_for_a_closed_batch_only() -> None:
    fakes = accumulator_fakes(batch_size=1024)
    fakes.append(b"x" * 400)
    assert len(fakes.wakeups) == 1, "a new batch: linger must be looked at"
    fakes.append(b"x" * 300)
    assert len(fakes.wakeups) == 1
    fakes.incomplete.sleeps(None)
    fakes.append(b"x" * 400)
    assert len(fakes.wakeups) == 2, "closed; that there is a new one is seen with it"
    fakes.append(b"x" * 900)
    assert len(fakes.wakeups) == 2, "it is awake"


def test_a_caller_that_flushes_soon_defers_the_wake_up_for_linger() -> None:
    fakes = accumulator_fakes(batch_size=1024)
    fakes.incomplete.defer_linger(True)
    fakes.append(b"x" * 400)
    fakes.append(b"x", tp=OTHER)
    assert fakes.wakeups == []
    fakes.append(b"x" * 900)
    assert len(fakes.wakeups) == 1, "a batch is full"
    fakes.ready()
    fakes.incomplete.sleeps(None)
    fakes.append(b"y", tp=TopicPartition("t", 7))
    fakes.incomplete.defer_linger(False)
    assert len(fakes.wakeups) == 2, "the new batch lingers from now on"
    fakes.incomplete.defer_linger(True)
    fakes.incomplete.defer_linger(False)
    assert len(fakes.wakeups) == 2, "it is awake"
    fakes.ready()
    fakes.incomplete.sleeps(None)
    fakes.incomplete.defer_linger(False)
    assert len(fakes.wakeups) == 2, "there is nothing new"


def test_a_batch_whose_first_row_cannot_be_encoded_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = accumulator_fakes(linger=0)
    with encoding_stopped(monkeypatch, OverflowError("offsets")) as (_, go_on):
        go_on.set()
        with pytest.raises(OverflowError):
            fakes.append(b"a")
    assert fakes.incomplete.idle, "an empty batch would never be sent and hold up every flush"
    assert fakes.pool.available == fakes.pool.total
    fakes.append(b"b")
    assert values_of(fakes.take()) == [b"b"]


class Announcing:
    """A lock that sets an event when a thread begins to wait for it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock, self.awaited = lock, threading.Event()

    def __enter__(self) -> None:
        self.awaited.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("end", ["abort", "expiry"])
def test_a_batch_that_is_dropped_while_it_is_given_up_is_no_failure(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """An abort or an expiry that ran into it would end the I/O thread."""
    fakes = accumulator_fakes(linger=0)
    with encoding_stopped(monkeypatch, KeyboardInterrupt()) as (reached, go_on):
        writing = Runner(lambda: fakes.append(b"a"))
        assert reached.wait(DEADLINE)
        lock = Announcing(fakes.queue().lock)
        fakes.queue().lock = lock  # type: ignore[assignment]  # what the I/O thread finds
        fakes.clock.advance(fakes.incomplete.delivery_timeout)
        dropping = partial(fakes.completion.abort_undrained, ValueError("aborted"), fakes.clock.now)
        giving_up = Runner(dropping if end == "abort" else fakes.expire)
        assert lock.awaited.wait(DEADLINE)
        go_on.set()
        with pytest.raises(KeyboardInterrupt):
            writing.result()
    assert giving_up.result() == []
    assert (fakes.incomplete.idle, fakes.incomplete.failure) == (True, None)
    assert fakes.pool.available == fakes.pool.total


def test_a_failing_encoder_closes_the_open_batch_and_keeps_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = accumulator_fakes(linger=10)
    fakes.append(b"a")
    with encoding_stopped(monkeypatch, KeyboardInterrupt()) as (_, go_on):
        go_on.set()
        with pytest.raises(KeyboardInterrupt):
            fakes.append(b"b")
    assert fakes.ready() == [TP]
    assert values_of(fakes.take()) == [b"a"]


def test_an_exhausted_pool_blocks_append_and_names_the_option() -> None:
    fakes = accumulator_fakes(memory=2048, batch_size=1024, max_block=0)
    fakes.append(b"a" * 900, b"b" * 900)
    with pytest.raises(BufferExhausted, match=r"kafka\.max\.block\.ms.*kafka\.buffer\.memory is 2048"):
        fakes.append(b"c" * 900)
    batch = fakes.take()
    assert values_of(batch) == [b"a" * 900]
    fakes.complete(batch)
    fakes.append(b"c" * 900)
    assert [values for _, values in drained(fakes)] == [[b"b" * 900]]


def test_append_waits_for_an_acknowledgement_when_the_pool_is_empty() -> None:
    fakes = accumulator_fakes(memory=2048, batch_size=1024, max_block=1e6)
    fakes.append(b"a" * 900, b"b" * 900)
    appending = Runner(lambda: fakes.append(b"c" * 900))
    wait_until(lambda: fakes.pool.waiting > 0, "append waits for memory")
    assert fakes.ready() == [TP], "a full pool makes every batch worth sending"
    fakes.complete(fakes.take())
    appending.result()
    fakes.incomplete.begin_close()
    assert [values_of(batch)[0] for batch in (fakes.take(), fakes.take())] == [b"b" * 900, b"c" * 900]


def test_memory_that_comes_after_the_end_goes_back() -> None:
    class LatePool(BufferPool):
        def try_allocate(self, size: int) -> memoryview | None:
            buffer = super().try_allocate(size)
            fakes.accumulator.close(ProducerClosed("closed"))
            return buffer

    fakes = accumulator_fakes(new_pool=LatePool)
    with pytest.raises(ProducerClosed):
        fakes.append(b"a")
    assert fakes.pool.available == fakes.pool.total


def test_batches_stay_to_fill_while_memory_is_on_its_way_back() -> None:
    fakes = accumulator_fakes(memory=4096, batch_size=1024, linger=1000, max_block=1e6)
    fakes.append(b"1" * 900, b"2" * 900)
    flying = fakes.take()
    fakes.append(b"3", tp=OTHER)
    fakes.append(b"4", tp=TopicPartition("orders", 2))
    assert fakes.pool.available == 0
    appending = Runner(lambda: fakes.append(b"5", tp=TopicPartition("orders", 3)))
    wait_until(lambda: fakes.pool.waiting > 0, "append waits for memory")
    assert fakes.ready() == [], "a quarter of the pool flies"
    fakes.complete(flying)
    appending.result()
    appending = Runner(lambda: fakes.append(b"6", tp=TopicPartition("orders", 4)))
    wait_until(lambda: fakes.pool.waiting > 0, "append waits for memory")
    ready = fakes.ready()
    assert len(ready) == 4, "nothing flies any more"
    for tp in ready:
        fakes.complete(fakes.take(tp))
    appending.result()


def test_rows_whose_queue_is_given_up_meanwhile_go_into_the_next_queue_of_their_partition() -> None:
    fakes = accumulator_fakes()
    given_up = fakes.incomplete.queue_of(TP)
    asked: list[int] = []

    class LateRows(ArrangedRows):
        """Rows whose topic is given up after their queue was found, and before its lock is taken."""

        def size_at(self, position: int) -> int:
            asked.append(position)
            assert len(asked) <= 2, "the rows have tried the same queue again"
            if not given_up.retired:
                fakes.drainer.forget({TP.topic})
            return super().size_at(position)

    fakes.accumulator.append(TP, LateRows(rows_of([b"late"]).columns, np.arange(1)), 0, 1)
    assert given_up.retired
    assert not given_up.batches
    (batch,) = fakes.queue().batches
    assert values_of(batch) == [b"late"]
