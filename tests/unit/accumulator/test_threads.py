"""Several threads at one accumulator: no row is lost, no thread sleeps for ever, an end completes everything."""

from __future__ import annotations

import random
import threading

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import DeliveryTimeout, ProducerClosed
from tests.fakes.accumulator_fakes import DEADLINE, NODE, TP, AccumulatorFakes, Runner, accumulator_fakes, values_of
from tests.support.waiting import wait_until


class Drain(threading.Thread):
    """An I/O thread of the test: takes what is ready, loses some of it once, acknowledges the rest."""

    def __init__(self, fakes: AccumulatorFakes, seed: int) -> None:
        super().__init__(daemon=True)
        self.fakes, self.random, self.stop = fakes, random.Random(seed), threading.Event()
        self.received: dict[TopicPartition, list[bytes | None]] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set() or not self.fakes.incomplete.idle:
                self.turn()
        except BaseException as error:
            self.error = error

    def turn(self) -> None:
        self.fakes.check()
        for batch in self.fakes.drainer.drain(NODE, 1 << 40, self.fakes.clock.now):
            tp = batch.topic_partition
            if self.random.random() < 0.3:
                self.fakes.put_back(batch, backoff=0)
                continue
            self.received.setdefault(tp, []).extend(values_of(batch))
            self.fakes.complete(batch)


@pytest.mark.covers("RA6")
@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("seed", range(3))
def test_many_threads_many_partitions_every_row_once_and_in_the_order_of_its_thread(seed: int) -> None:
    fakes = accumulator_fakes(memory=8192, batch_size=1024, linger=0, max_block=1e6)
    drain = Drain(fakes, seed)
    drain.start()

    def work(name: int) -> None:
        choose = random.Random(seed * 100 + name)
        for number in range(120):
            row = b"%d %d " % (name, number) + b"." * choose.randrange(400)
            fakes.append(row, row, tp=TopicPartition("t", choose.randrange(3)))

    writers = [Runner(lambda name=name: work(name)) for name in range(4)]  # type: ignore[misc]
    for writer in writers:
        writer.result()
    Runner(fakes.accumulator.flush).result()
    drain.stop.set()
    drain.join(DEADLINE)
    assert drain.error is None
    rows = [row for received in drain.received.values() for row in received]
    assert len(rows) == 4 * 120 * 2
    for received in drain.received.values():
        for name in range(4):
            numbers = [int(row.split()[1]) for row in received if row is not None and row.startswith(b"%d " % name)]
            assert numbers == sorted(numbers)
    assert fakes.pool.available == fakes.pool.total


@pytest.mark.covers("RA13")
def test_a_failure_wakes_flush_and_append_and_fails_every_future() -> None:
    fakes = accumulator_fakes(memory=2048, batch_size=1024, linger=1000, max_block=1e6)
    futures = [fakes.append_one(letter * 900) for letter in (b"x", b"y")]
    fakes.take()
    flush = Runner(fakes.accumulator.flush)
    append = Runner(lambda: fakes.append(b"z" * 900))
    wait_until(lambda: fakes.pool.waiting > 0, "append waits for memory")
    reason = DeliveryTimeout("too late")
    fakes.completion.abort(reason)
    for call in (flush, append):
        with pytest.raises(DeliveryTimeout, match="too late"):
            call.result()
    assert [future.exception(0) for future in futures] == [reason, reason]
    assert fakes.incomplete.idle
    assert fakes.ready() == []
    with pytest.raises(DeliveryTimeout):
        fakes.append(b"a")
    with pytest.raises(DeliveryTimeout):
        fakes.accumulator.flush()


def test_futures_have_failed_before_the_flush_raises() -> None:
    fakes = accumulator_fakes(linger=1000)
    future = fakes.append_one(b"x")
    flush = Runner(fakes.accumulator.flush)
    wait_until(lambda: fakes.incomplete.flushing == 1, "the flush has begun")
    seen = []
    future.add_done_callback(lambda _: seen.append(flush.done.is_set()))
    fakes.completion.abort(ProducerClosed("closed"))
    assert seen == [False]
    with pytest.raises(ProducerClosed):
        flush.result()


@pytest.mark.covers("SN6")
def test_a_callback_may_append() -> None:
    fakes = accumulator_fakes(linger=0)
    future = fakes.append_one(b"first")
    future.add_done_callback(lambda _: fakes.append(b"second"))
    fakes.complete(fakes.take())
    assert values_of(fakes.take(TP)) == [b"second"]
