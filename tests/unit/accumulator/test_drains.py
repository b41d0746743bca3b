"""Long scripts of drains, pauses and ends over several nodes. Ids: RA1, RA3, RA7, RA13, RA14, RA30, FU2, IN3, KP16."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from spark_producer.accumulator import RecordMetadata
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import DeliveryTimeout, ProducerClosed, RecordsRefused
from spark_producer.record.codecs import Codec
from tests.fakes.accumulator_fakes import OTHER, TP, AccumulatorFakes, OneLeader, Runner, accumulator_fakes, values_of
from tests.support.waiting import wait_until

FULL = b"x" * 900
TWO_BATCHES = 2048


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def drained(fakes: AccumulatorFakes, node: int, max_bytes: int = TWO_BATCHES) -> list[int]:
    fakes.check()
    return [batch.topic_partition.partition for batch in fakes.drainer.drain(node, max_bytes, fakes.clock.now)]


def answer(fakes: AccumulatorFakes, *partitions: int) -> None:
    for partition in partitions:
        fakes.complete(fakes.queue(tp(partition)).in_flight[0])


@pytest.mark.covers("RA1")
def test_a_long_script_of_drains_of_two_nodes_one_in_flight() -> None:
    """Node 1 leads 0, 1, 2, 3, node 2 leads 4, 5; with one batch in flight a partition is muted until its answer."""
    fakes = accumulator_fakes(linger=0, keep_order=True)
    fakes.leaders = OneLeader({tp(4): (2, 0), tp(5): (2, 0)})
    for partition in range(6):
        fakes.append(*[FULL] * 3, tp=tp(partition))
    assert drained(fakes, 1) == [0, 1], "one batch of each, as far as a request takes them"
    assert drained(fakes, 1) == [2, 3], "where the last drain ended"
    assert drained(fakes, 1) == [], "all of them are muted"
    assert drained(fakes, 2) == [4, 5], "each node has a turn of its own"
    answer(fakes, 3, 0)
    assert drained(fakes, 1) == [3, 0], "1 and 2 are muted"
    answer(fakes, 2, 4)
    assert drained(fakes, 1) == [2]
    answer(fakes, 1, 0, 2)
    assert drained(fakes, 1, 100) == [1], "a batch that is larger than a request may be goes alone"
    assert drained(fakes, 1, 100) == [0]
    assert drained(fakes, 1, 1 << 30) == [2]
    assert drained(fakes, 2) == [4]
    answer(fakes, *range(6))
    assert (drained(fakes, 2), drained(fakes, 1)) == ([4, 5], [1, 3])
    answer(fakes, 1, 3, 4, 5)
    assert (drained(fakes, 2), drained(fakes, 1)) == ([5], [])
    answer(fakes, 5)
    assert fakes.incomplete.idle


@pytest.mark.covers("RA7")
def test_the_next_time_is_the_earliest_over_all_nodes_that_are_not_ready() -> None:
    fakes = accumulator_fakes(linger=0.010)
    fakes.leaders = OneLeader({OTHER: (2, 0), tp(2): (2, 0)})
    start = fakes.clock.now
    fakes.append(b"a", tp=OTHER)
    fakes.clock.advance(0.003)
    fakes.append(b"b", tp=tp(2))
    fakes.clock.advance(0.002)
    fakes.append(FULL, FULL)
    check = fakes.check()
    assert check.nodes == [1]
    assert check.next_time == pytest.approx(start + 0.010)
    fakes.clock.now = start + 0.011
    check = fakes.check()
    assert sorted(check.nodes) == [1, 2]
    assert check.next_time == pytest.approx(start + 0.013), "though its node is ready: another batch, another time"


@pytest.mark.covers("RA8")
def test_a_partition_that_backs_off_holds_up_no_other() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(FULL)
    fakes.append(FULL, FULL, tp=OTHER)
    start = fakes.clock.now
    fakes.put_back(fakes.take(), backoff=0.1)
    for moment in (0.0, 0.05):
        fakes.clock.now = start + moment
        assert drained(fakes, 1) == [1]
        assert TP not in fakes.ready()
    fakes.clock.now = start + 0.1
    assert drained(fakes, 1) == [0]


@pytest.mark.covers("RA3")
@pytest.mark.parametrize("codec", Codec)
def test_an_oversize_row_is_alone_in_its_batch_with_every_codec(codec: Codec) -> None:
    fakes = accumulator_fakes(batch_size=1024, linger=1000, codec=codec)
    large = bytes(range(256)) * 40
    fakes.append(b"before", large, b"more than the few bytes of slack")
    fakes.incomplete.begin_close()
    batches = [fakes.take() for _ in range(3)]
    assert [values_of(batch) for batch in batches] == [[b"before"], [large], [b"more than the few bytes of slack"]]
    assert (batches[1].size < len(large)) is (codec is not Codec.NONE)
    for batch in batches:
        fakes.complete(batch)
    assert fakes.pool.available == fakes.pool.total


# --- those who wait -------------------------------------------------------------------------------------------------


class Waiting:
    """Single records with callbacks, and the results that these got."""

    def __init__(self, fakes: AccumulatorFakes) -> None:
        self.fakes = fakes
        self.outcomes: list[tuple[int, RecordMetadata, Exception | None]] = []
        self.futures: list[Future[RecordMetadata]] = []

    def append(self, value: bytes, where: TopicPartition = TP) -> None:
        number = len(self.futures)
        note = lambda found, error: self.outcomes.append((number, found, error))  # noqa: E731
        self.futures.append(self.fakes.append_one(value, callback=note, tp=where))


@pytest.mark.covers("RA13")
def test_an_abort_runs_each_callback_once_and_frees_the_pool() -> None:
    """Batches that wait, fly, were sent again, were split; late responses run no callback."""
    fakes = accumulator_fakes(linger=0)
    waiting = Waiting(fakes)
    for _ in range(8):
        waiting.append(b"x" * 400)
    waiting.append(b"open", OTHER)
    fakes.split(fakes.take())
    flying = [fakes.take()]
    fakes.append(FULL, FULL, tp=tp(2))
    fakes.put_back(fakes.take(tp(2)))
    waiting.append(b"y", tp(3))
    flying.append(fakes.take(tp(3)))
    reason = ProducerClosed("closed")
    fakes.completion.abort(reason)
    assert sorted(number for number, _, _ in waiting.outcomes) == list(range(10))
    assert all(error is reason for _, _, error in waiting.outcomes)
    assert all(future.exception(0) is reason for future in waiting.futures)
    for batch in flying:
        fakes.completion.remove_in_flight(batch)
        assert batch.complete(0, -1) is False
    assert len(waiting.outcomes) == 10
    assert (fakes.incomplete.idle, fakes.pool.available) == (True, fakes.pool.total)


@pytest.mark.covers("RA14")
def test_an_abort_leaves_the_bytes_in_flight_to_the_network() -> None:
    fakes = accumulator_fakes(linger=0, memory=4096)
    fakes.append(FULL)
    flying = fakes.take()
    flying.write_header()
    before = bytes(flying.data)
    fakes.append(FULL, tp=OTHER)
    fakes.completion.abort(ProducerClosed("closed"))
    assert fakes.pool.available == 4096 - 1024, "what waited is back"
    assert bytes(flying.data) == before
    fakes.completion.remove_in_flight(flying)
    assert fakes.pool.available == 4096


@pytest.mark.covers("RA14")
def test_once_the_network_is_closed_the_bytes_in_flight_go_back_too() -> None:
    """The end of a producer: it would keep batches that flew when it was dropped, and a frozen producer is never collected."""
    fakes = accumulator_fakes(linger=0, memory=4096)
    fakes.append(FULL)
    fakes.append(FULL, tp=OTHER)
    fakes.take(), fakes.take(OTHER)
    fakes.completion.abort(ProducerClosed("closed"))
    assert fakes.pool.available == 4096 - 2 * 1024
    fakes.completion.network_closed()
    assert fakes.pool.available == 4096


@pytest.mark.covers("RA30")
@pytest.mark.parametrize("max_block", [(2**63 - 1) / 1000, float(2**63 - 1)])
def test_an_append_with_the_longest_max_block_waits_and_goes_on(max_block: float) -> None:
    fakes = accumulator_fakes(memory=1024, batch_size=1024, linger=0, max_block=max_block)
    fakes.append(FULL)
    appending = Runner(lambda: fakes.append(FULL, tp=OTHER))
    wait_until(lambda: fakes.pool.waiting > 0, "append waits for memory")
    fakes.complete(fakes.take())
    appending.result()
    assert drained(fakes, 1) == [1]


@pytest.mark.covers("FU2")
def test_a_future_times_out_blocks_until_its_batch_ends_and_raises_its_error() -> None:
    fakes = accumulator_fakes(linger=0)
    waiting = Waiting(fakes)
    waiting.append(b"written")
    (future,) = waiting.futures
    with pytest.raises(TimeoutError):
        future.result(0.001)
    blocked = Runner(future.result)
    fakes.complete(fakes.take(), 5)
    assert blocked.result() == future.result(0) == RecordMetadata("orders", 0, 5, 0)
    waiting.append(b"refused")
    blocked = Runner(waiting.futures[1].result)
    refused = RecordsRefused("refused", code=87, records={}, rows={})
    fakes.fail(fakes.take(), refused)
    with pytest.raises(RecordsRefused, match="refused"):
        blocked.result()


@pytest.mark.covers("IN3", "KP16")
def test_a_callback_always_learns_the_partition_also_of_what_failed() -> None:
    fakes = accumulator_fakes(linger=0, delivery_timeout=10)
    waiting = Waiting(fakes)
    waiting.append(b"expires", OTHER)
    fakes.clock.advance(10)
    fakes.expire()
    waiting.append(b"refused", tp(2))
    fakes.fail(fakes.take(tp(2)), ValueError("refused"))
    waiting.append(b"aborted")
    fakes.completion.abort(ProducerClosed("closed"))
    assert [found for _, found, _ in waiting.outcomes] == [RecordMetadata("orders", at, -1, -1) for at in (1, 2, 0)]
    assert [type(error) for _, _, error in waiting.outcomes] == [DeliveryTimeout, ValueError, ProducerClosed]
