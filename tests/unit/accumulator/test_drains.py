"""Long scripts of drains, pauses and ends over several nodes. Ids: RA1, RA3, RA7, RA13, RA14, RA30, FU2, IN3, KP16."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from spark_producer.accumulator import RecordMetadata
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import DeliveryTimeout, ProducerClosed, RecordsRefused
from spark_producer.record.codecs import Codec
from tests.fakes.accumulator_fakes import OTHER, TP, Bench, OneLeader, Runner, values_of, workbench
from tests.support.waiting import wait_until

FULL = b"x" * 900
TWO_BATCHES = 2048


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def drained(bench: Bench, node: int, max_bytes: int = TWO_BATCHES) -> list[int]:
    bench.check()
    return [batch.topic_partition.partition for batch in bench.drainer.drain(node, max_bytes, bench.clock.now)]


def answer(bench: Bench, *partitions: int) -> None:
    for partition in partitions:
        bench.complete(bench.queue(tp(partition)).in_flight[0])


def test_ra1_a_long_script_of_drains_of_two_nodes_one_in_flight() -> None:
    """Node 1 leads 0, 1, 2, 3, node 2 leads 4, 5; with one batch in flight a partition is muted until its answer."""
    bench = workbench(linger=0, keep_order=True)
    bench.leaders = OneLeader({tp(4): (2, 0), tp(5): (2, 0)})
    for partition in range(6):
        bench.append(*[FULL] * 3, tp=tp(partition))
    assert drained(bench, 1) == [0, 1], "one batch of each, as far as a request takes them"
    assert drained(bench, 1) == [2, 3], "where the last drain ended"
    assert drained(bench, 1) == [], "all of them are muted"
    assert drained(bench, 2) == [4, 5], "each node has a turn of its own"
    answer(bench, 3, 0)
    assert drained(bench, 1) == [3, 0], "1 and 2 are muted"
    answer(bench, 2, 4)
    assert drained(bench, 1) == [2]
    answer(bench, 1, 0, 2)
    assert drained(bench, 1, 100) == [1], "a batch that is larger than a request may be goes alone"
    assert drained(bench, 1, 100) == [0]
    assert drained(bench, 1, 1 << 30) == [2]
    assert drained(bench, 2) == [4]
    answer(bench, *range(6))
    assert (drained(bench, 2), drained(bench, 1)) == ([4, 5], [1, 3])
    answer(bench, 1, 3, 4, 5)
    assert (drained(bench, 2), drained(bench, 1)) == ([5], [])
    answer(bench, 5)
    assert bench.incomplete.idle


def test_ra7_the_next_time_is_the_earliest_over_all_nodes_that_are_not_ready() -> None:
    bench = workbench(linger=0.010)
    bench.leaders = OneLeader({OTHER: (2, 0), tp(2): (2, 0)})
    start = bench.clock.now
    bench.append(b"a", tp=OTHER)
    bench.clock.advance(0.003)
    bench.append(b"b", tp=tp(2))
    bench.clock.advance(0.002)
    bench.append(FULL, FULL)
    check = bench.check()
    assert check.nodes == [1]
    assert check.next_time == pytest.approx(start + 0.010)
    bench.clock.now = start + 0.011
    check = bench.check()
    assert sorted(check.nodes) == [1, 2]
    assert check.next_time == pytest.approx(start + 0.013), "though its node is ready: another batch, another time"


def test_ra8_a_partition_that_backs_off_holds_up_no_other() -> None:
    bench = workbench(linger=0)
    bench.append(FULL)
    bench.append(FULL, FULL, tp=OTHER)
    start = bench.clock.now
    bench.put_back(bench.take(), backoff=0.1)
    for moment in (0.0, 0.05):
        bench.clock.now = start + moment
        assert drained(bench, 1) == [1]
        assert TP not in bench.ready()
    bench.clock.now = start + 0.1
    assert drained(bench, 1) == [0]


@pytest.mark.parametrize("codec", Codec)
def test_ra3_an_oversize_row_is_alone_in_its_batch_with_every_codec(codec: Codec) -> None:
    bench = workbench(batch_size=1024, linger=1000, codec=codec)
    large = bytes(range(256)) * 40
    bench.append(b"before", large, b"more than the few bytes of slack")
    bench.incomplete.begin_close()
    batches = [bench.take() for _ in range(3)]
    assert [values_of(batch) for batch in batches] == [[b"before"], [large], [b"more than the few bytes of slack"]]
    assert (batches[1].size < len(large)) is (codec is not Codec.NONE)
    for batch in batches:
        bench.complete(batch)
    assert bench.pool.available == bench.pool.total


# --- those who wait -------------------------------------------------------------------------------------------------


class Waiting:
    """Single records with callbacks, and what these were told."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.outcomes: list[tuple[int, RecordMetadata, Exception | None]] = []
        self.futures: list[Future[RecordMetadata]] = []

    def append(self, value: bytes, where: TopicPartition = TP) -> None:
        number = len(self.futures)
        note = lambda found, error: self.outcomes.append((number, found, error))  # noqa: E731
        self.futures.append(self.bench.append_one(value, callback=note, tp=where))


def test_ra13_an_abort_runs_each_callback_once_and_frees_the_pool() -> None:
    """Batches that wait, fly, were sent again, were cut in two; and late answers tell nobody anything."""
    bench = workbench(linger=0)
    waiting = Waiting(bench)
    for _ in range(8):
        waiting.append(b"x" * 400)
    waiting.append(b"open", OTHER)
    bench.split(bench.take())
    flying = [bench.take()]
    bench.append(FULL, FULL, tp=tp(2))
    bench.put_back(bench.take(tp(2)))
    waiting.append(b"y", tp(3))
    flying.append(bench.take(tp(3)))
    reason = ProducerClosed("closed")
    bench.completion.abort(reason)
    assert sorted(number for number, _, _ in waiting.outcomes) == list(range(10))
    assert all(error is reason for _, _, error in waiting.outcomes)
    assert all(future.exception(0) is reason for future in waiting.futures)
    for batch in flying:
        bench.completion.remove_in_flight(batch)
        assert batch.complete(0, -1) is False
    assert len(waiting.outcomes) == 10
    assert (bench.incomplete.idle, bench.pool.available) == (True, bench.pool.total)


def test_ra14_an_abort_leaves_the_bytes_in_flight_to_the_network() -> None:
    bench = workbench(linger=0, memory=4096)
    bench.append(FULL)
    flying = bench.take()
    flying.write_header()
    before = bytes(flying.data)
    bench.append(FULL, tp=OTHER)
    bench.completion.abort(ProducerClosed("closed"))
    assert bench.pool.available == 4096 - 1024, "what waited is back"
    assert bytes(flying.data) == before
    bench.completion.remove_in_flight(flying)
    assert bench.pool.available == 4096


def test_ra14_once_the_network_is_closed_the_bytes_in_flight_go_back_too() -> None:
    """As `Producer` ends: what flew when it was dropped would stay with it, and a frozen producer is never collected."""
    bench = workbench(linger=0, memory=4096)
    bench.append(FULL)
    bench.append(FULL, tp=OTHER)
    bench.take(), bench.take(OTHER)
    bench.completion.abort(ProducerClosed("closed"))
    assert bench.pool.available == 4096 - 2 * 1024
    bench.completion.network_closed()
    assert bench.pool.available == 4096


@pytest.mark.parametrize("max_block", [(2**63 - 1) / 1000, float(2**63 - 1)])
def test_ra30_an_append_with_the_longest_max_block_waits_and_goes_on(max_block: float) -> None:
    bench = workbench(memory=1024, batch_size=1024, linger=0, max_block=max_block)
    bench.append(FULL)
    appending = Runner(lambda: bench.append(FULL, tp=OTHER))
    wait_until(lambda: bench.pool.waiting > 0, "append waits for memory")
    bench.complete(bench.take())
    appending.result()
    assert drained(bench, 1) == [1]


def test_fu2_a_future_times_out_blocks_until_its_batch_ends_and_raises_its_error() -> None:
    bench = workbench(linger=0)
    waiting = Waiting(bench)
    waiting.append(b"written")
    (future,) = waiting.futures
    with pytest.raises(TimeoutError):
        future.result(0.001)
    blocked = Runner(future.result)
    bench.complete(bench.take(), 5)
    assert blocked.result() == future.result(0) == RecordMetadata("orders", 0, 5, 0)
    waiting.append(b"refused")
    blocked = Runner(waiting.futures[1].result)
    refused = RecordsRefused("refused", code=87, records={}, rows={})
    bench.fail(bench.take(), refused)
    with pytest.raises(RecordsRefused, match="refused"):
        blocked.result()


def test_in3_kp16_a_callback_always_learns_the_partition_also_of_what_failed() -> None:
    bench = workbench(linger=0, delivery_timeout=10)
    waiting = Waiting(bench)
    waiting.append(b"expires", OTHER)
    bench.clock.advance(10)
    bench.expire()
    waiting.append(b"refused", tp(2))
    bench.fail(bench.take(tp(2)), ValueError("refused"))
    waiting.append(b"aborted")
    bench.completion.abort(ProducerClosed("closed"))
    assert [found for _, found, _ in waiting.outcomes] == [RecordMetadata("orders", at, -1, -1) for at in (1, 2, 0)]
    assert [type(error) for _, _, error in waiting.outcomes] == [DeliveryTimeout, ValueError, ProducerClosed]
