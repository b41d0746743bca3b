"""The futures of single records keep the contract of `concurrent.futures`, in any thread. Ids: FU, IN."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import _Waiter as Waiter

import pytest

from spark_producer.accumulator import BatchResult, RecordFuture, RecordMetadata
from spark_producer.accumulator.future import _Waiter
from tests.fakes.accumulator_fakes import DEADLINE, TP, Runner
from tests.support.waiting import wait_until

REFUSED = ValueError("refused")


def waiters(future: RecordFuture) -> Sequence[object]:
    """Return the waiters of a future, by the field that `concurrent.futures` reads."""
    return future._waiters


def pair() -> tuple[BatchResult, list[RecordFuture]]:
    """A batch of three records."""
    result = BatchResult(TP)
    return result, [result.add(index, 7000 + index, None) for index in range(3)]


@pytest.mark.covers("FU1")
def test_a_future_is_running_and_then_done_and_never_cancelled() -> None:
    result, (first, *_) = pair()
    assert (first.running(), first.done(), first.cancel(), first.cancelled()) == (True, False, False, False)
    assert "state=running" in repr(first)
    for wait in (first.result, first.exception):
        with pytest.raises(TimeoutError):
            wait(0)
    result.complete(40, -1)
    assert (first.running(), first.done(), first.cancel()) == (False, True, False)
    assert first.result() == first.result(0) == RecordMetadata("orders", 0, 40, 7000)
    assert first.exception() is None
    assert "returned RecordMetadata" in repr(first)
    assert isinstance(first, futures.Future)


@pytest.mark.covers("FU1")
def test_only_the_producer_completes_it() -> None:
    _, (first, *_) = pair()
    with pytest.raises(InvalidStateError, match="only its producer"):
        first.set_result(RecordMetadata("t", 0, 0, 0))
    with pytest.raises(InvalidStateError, match="only its producer"):
        first.set_exception(REFUSED)
    assert not first.done()


@pytest.mark.covers("FU1")
def test_an_error_is_raised_by_every_call() -> None:
    result, waits = pair()
    result.fail(REFUSED)
    for one in waits:
        assert one.exception(0) is REFUSED
        for _ in range(2):
            with pytest.raises(ValueError, match="refused"):
                one.result(0)
    assert "raised ValueError" in repr(waits[0])


@pytest.mark.covers("FU1")
@pytest.mark.parametrize("well", [True, False])
def test_who_waits_in_another_thread_is_woken(well: bool) -> None:
    result, waits = pair()
    waiting = [Runner(lambda one=one: [one.exception(DEADLINE)]) for one in waits for _ in range(2)]  # type: ignore[misc]
    wait_until(lambda: len(result.watched) == 3, "all wait")
    result.complete(0, -1) if well else result.fail(REFUSED)
    assert [runner.result() for runner in waiting] == [[None if well else REFUSED]] * 6


@pytest.mark.covers("FU1")
def test_wait_and_as_completed_know_them() -> None:
    early, one = pair()
    late, other = pair()
    early.complete(0, -1)
    found = futures.wait([*one, *other], timeout=0, return_when=futures.ALL_COMPLETED)
    assert (found.done, found.not_done) == (set(one), set(other))
    all_of_them = Runner(lambda: futures.wait([*one, *other], DEADLINE))
    both: list[Future[RecordMetadata]] = [*other, *one]
    in_turn = Runner(lambda: list(futures.as_completed(both, DEADLINE)))
    failed = Runner(lambda: futures.wait(other, DEADLINE, futures.FIRST_EXCEPTION))
    wait_until(lambda: all(len(waiters(future)) == 3 for future in other), "all wait")
    late.fail(REFUSED)
    assert all_of_them.result().done == {*one, *other}
    assert set(in_turn.result()) == {*one, *other}
    assert failed.result().done
    assert all(not waiters(future) for future in other)


@pytest.mark.covers("FU1")
def test_a_wait_that_begins_while_a_batch_ends_waits_for_the_others_too() -> None:
    """`wait` counts unfinished futures, and each notification that follows as one of them."""
    (result, (first, second, _)), (late, (other, *_)) = pair(), pair()
    began: list[Runner] = []

    class Opportune(list[_Waiter]):
        """The waiters of the first future: while they are notified, a wait for the second one begins."""

        def __iter__(self) -> Iterator[_Waiter]:
            began.append(Runner(lambda: futures.wait([second, other], DEADLINE)))
            wait_until(lambda: bool(waiters(other)), "it waits")
            return iter(())

    first._watched().waiters = Opportune()  # the step in between is inside of one call
    second.add_done_callback(lambda _: None)
    result.complete(0, -1)
    (waiter,) = waiters(other)
    assert isinstance(waiter, Waiter)
    assert not waiter.event.is_set(), "it goes on waiting"
    late.complete(0, -1)
    assert began[0].result().not_done == set()


class Ending(RecordFuture):
    """Its batch ends just before `concurrent.futures` checks whether it is finished, at the check after `looks` others."""

    __slots__ = ("looks", "result_of_all")

    def __init__(self, result: BatchResult, offset_delta: int, looks: Iterator[int]) -> None:
        super().__init__(result, offset_delta, 7000, None)
        self.result_of_all, self.looks = result, looks
        result.futures.append(self)

    @property
    def _state(self) -> str:  # type: ignore[override]  # as in RecordFuture: a field of the base
        if next(self.looks) == 0:
            Runner(lambda: self.result_of_all.complete(0, -1))
            wait_until(lambda: self.result_of_all.done, "the batch has ended")
        return super()._state


@pytest.mark.covers("FU1")
def test_a_batch_that_ends_while_a_thread_begins_to_wait_for_all_of_it() -> None:
    """`wait` counts those that are not done twice, and holds their conditions meanwhile so that none is done in between."""
    result = BatchResult(TP)
    looks = itertools.count(-3)  # it ends between the first look at all three and the second
    waits = [Ending(result, index, looks) for index in range(3)]
    assert Runner(lambda: futures.wait(waits)).result().done == set(waits)
    assert next(looks) > 0


@pytest.mark.covers("FU1")
def test_a_batch_that_ends_while_a_thread_begins_to_take_them_as_completed() -> None:
    """Each future is yielded once: those that were found done are not notified again."""
    early, (late, other) = BatchResult(TP), pair()
    one = [Ending(early, 0, itertools.count()), *(early.add(index, 7000, None) for index in (1, 2))]
    both: list[Future[RecordMetadata]] = [*one, *other]
    in_turn = Runner(lambda: list(futures.as_completed(both)))
    wait_until(lambda: all(waiters(future) for future in other), "it waits for the rest")
    late.complete(0, -1)
    found = in_turn.result()
    assert (len(found), set(found)) == (6, {*one, *other})


@pytest.mark.covers("IN2")
def test_a_callback_may_wait_for_the_other_futures_of_its_batch() -> None:
    result, waits = pair()
    found: list[object] = []
    for one in waits:
        one.add_done_callback(lambda _: found.append(futures.wait(waits, 0).not_done))
    result.complete(0, -1)
    assert found == [set(), set(), set()]


@pytest.mark.covers("RA19")
def test_a_wait_that_begins_during_a_split_ends() -> None:
    seen: list[RecordFuture] = []

    class WatchedAtOnce(RecordFuture):
        __slots__ = ()

        def move_to(self, batch: BatchResult, records: int) -> None:
            super().move_to(batch, records)
            self.add_done_callback(lambda _: seen.append(self))

    result = BatchResult(TP)
    waits = result.futures = [WatchedAtOnce(result, index, 7000, None) for index in range(3)]
    tail = result.split(1)
    tail.complete(0, -1)
    assert seen == waits[1:]


@pytest.mark.covers("IN2")
def test_callbacks_run_once_after_all_futures_of_the_batch_are_done_or_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result, (first, second, third) = pair()
    seen: list[tuple[object, bool]] = []
    first.add_done_callback(lambda _: 1 // 0)
    for future in (first, second, first):
        future.add_done_callback(lambda done: seen.append((done, third.done())))
    result.complete(0, -1)
    assert seen == [(first, True), (first, True), (second, True)]
    third.add_done_callback(lambda done: seen.append((done, True)))
    assert seen[3:] == [(third, True)]
    assert "ZeroDivisionError" in caplog.text


def test_a_coroutine_can_wait_for_one() -> None:
    result, (first, *_) = pair()

    async def wait() -> RecordMetadata:
        wrapped = asyncio.wrap_future(first)
        await asyncio.get_running_loop().run_in_executor(None, lambda: result.complete(3, -1))
        return await asyncio.wait_for(wrapped, DEADLINE)

    assert asyncio.run(wait()).offset == 3


@pytest.mark.covers("RA19")
def test_a_wait_for_a_record_of_the_second_half_ends_with_it() -> None:
    result, waits = pair()
    waiting = [Runner(lambda one=one: one.result(DEADLINE).offset) for one in waits]  # type: ignore[misc]
    wait_until(lambda: len(result.watched) == 3, "all wait")
    tail = result.split(1)
    late = Runner(lambda: futures.wait(waits[2:], DEADLINE))
    wait_until(lambda: bool(waiters(waits[2])), "it waits too")
    result.complete(10, -1)
    assert [waiting[0].result(), waits[1].done()] == [10, False]
    tail.complete(50, -1)
    assert [runner.result() for runner in waiting[1:]] == [50, 51]
    assert late.result().done == {waits[2]}


def test_futures_without_a_wait_cost_no_condition_and_are_let_go() -> None:
    result, waits = pair()
    result.complete(0, -1)
    assert [one.result(0).offset for one in waits] == [0, 1, 2]
    assert all(one._watch is None for one in waits)  # the saving is all that this shows
    assert result.futures == [], "or result and futures would hold each other"
