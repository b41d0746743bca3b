"""The results of callers: futures, callbacks, the future of a table, errors of a flush. Ids (tests/ids.md): FU, IN, KP, SN."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.accumulator import RecordMetadata
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BrokerError, BufferExhausted, MetadataTimeout, PyProducerError, RecordsRefused
from spark_producer.metrics import OffsetRange
from spark_producer.producer import parts_of
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.support.waiting import wait_until
from tests.unit.producer.rows import table

PLACE = TopicPartition("t", 0)
Start = Callable[..., Producer]


@pytest.mark.covers("KP9")
def test_a_flush_raises_the_first_failure_since_the_last_one_and_only_once(
    cluster: ScriptedCluster, start_small: Start
) -> None:
    codes = iter([29, 17, 0])
    cluster.produce_code = lambda _: next(codes)
    producer = start_small()
    futures = []
    for value in ("x", "y"):
        futures.append(producer.send("t", value))
        assert futures[-1].exception(20) is not None
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED") as raised:
        producer.flush()
    assert raised.value is futures[0].exception(0)
    producer.flush()
    assert producer.send("t", "z").result(20).offset == 0


@pytest.mark.covers("IN2", "KP16")
def test_callbacks_come_in_order_before_their_futures_are_done(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    producer = start_small(batch_size=4096, linger_ms=60_000, delivery_timeout_ms=120_000)
    seen: list[tuple[int, bool, Exception | None]] = []
    futures: list[Any] = []

    def note(found: RecordMetadata, error: Exception | None) -> None:
        seen.append((found.offset, any(future.done() for future in futures), error))
        raise ZeroDivisionError("a callback's own trouble")

    futures += [producer.send("t", f"v{number}", on_delivery=note) for number in range(3)]
    cluster.release()
    producer.flush()
    assert seen == [(0, False, None), (1, False, None), (2, False, None)]
    assert [future.result(0).offset for future in futures] == [0, 1, 2]
    cluster.produce_code = lambda _: 29
    futures[:] = [producer.send("t", "refused", on_delivery=note)]
    with pytest.raises(BrokerError):
        producer.flush()
    assert seen[3][:2] == (-1, False)
    assert seen[3][2] is futures[0].exception(0)


@pytest.mark.covers("FU2")
def test_the_future_of_a_table_gives_the_ranges_of_its_partitions(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.topics = {"t": 3}
    producer = start_small()
    columns = {
        "value": [f"v{number}".ljust(50) for number in range(90)],
        "partition": pa.array([0, 1, 1] * 30, pa.int32()),
    }
    future = producer.send_table(pa.table(columns), topic="t")
    producer.flush()
    found = future.result(0)
    assert found.records == 90
    assert found.ranges == {("t", 0): (OffsetRange(0, 29, 30),), ("t", 1): (OffsetRange(0, 59, 60),)}
    again = producer.send_table(pa.table(columns).slice(0, 1), topic="t")
    producer.flush()
    assert again.result(0).ranges == {("t", 0): (OffsetRange(30, 30, 1),)}
    assert producer.send_table(pa.table(columns).slice(0, 0), topic="t").result(0).records == 0


@pytest.mark.covers("SN35")
def test_a_refused_row_of_a_table_is_named_by_its_number(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.topics = {"t": 2}
    cluster.produce_code = lambda tp: 87 if tp.partition == 1 else 0
    cluster.complaints = {0: "bad", 2: "worse"}
    producer = start_small(linger_ms=60_000, delivery_timeout_ms=120_000)
    columns = {"value": ["v"] * 8, "partition": pa.array([0, 0, 1, 0, 1, 0, 1, 1], pa.int32())}
    future = producer.send_table(pa.table(columns), topic="t")
    with pytest.raises(RecordsRefused):
        producer.flush()
    error = future.exception(0)
    assert isinstance(error, RecordsRefused)
    assert error.rows == {2: "bad", 6: "worse"}
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.covers("SN35")
def test_refused_rows_are_named_wherever_the_pieces_of_the_table_meet_in_a_batch(
    cluster: ScriptedCluster, start_small: Start
) -> None:
    cluster.topics = {"t": 1}
    cluster.produce_code = lambda _: 87
    cluster.complaints = {0: "bad", 5: "worse"}
    producer = start_small(linger_ms=60_000, delivery_timeout_ms=120_000)
    pieces = [pa.table({"value": ["v"] * 2}), pa.table({"value": ["v"] * 6})]
    future = producer.send_table(pa.concat_tables(pieces), topic="t")
    with pytest.raises(RecordsRefused):
        producer.flush()
    error = future.exception(0)
    assert isinstance(error, RecordsRefused)
    assert error.rows == {0: "bad", 5: "worse"}
    assert str(error).endswith("Rows of the table: {0: 'bad', 5: 'worse'}.")


@pytest.mark.covers("SN35")
def test_the_text_of_an_error_names_a_few_rows_and_counts_the_others(
    cluster: ScriptedCluster, start_small: Start
) -> None:
    cluster.produce_code = lambda _: 87
    cluster.complaints = dict.fromkeys(range(50), "bad")
    producer = start_small(linger_ms=60_000, delivery_timeout_ms=120_000)
    future = producer.send_table(pa.table({"value": ["v"] * 50}), topic="t")
    with pytest.raises(RecordsRefused):
        producer.flush()
    error = future.exception(0)
    assert isinstance(error, RecordsRefused)
    assert list(error.rows) == list(range(50))
    assert str(error).endswith("9: 'bad'} and 40 more.")


@pytest.mark.covers("KP9")
def test_a_callback_can_neither_flush_nor_hang_a_close(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    producer = start_small()
    future = producer.send("t", "x")
    raised: list[BaseException] = []

    def callback(_: object) -> None:
        try:
            producer.flush()
        except PyProducerError as error:
            raised.append(error)
        producer.close()

    future.add_done_callback(callback)
    cluster.release()
    parts_of(producer).io_thread.join(20)
    assert not parts_of(producer).io_thread.is_alive
    assert "callback" in str(raised[0])
    assert future.result(0).offset == 0


@pytest.mark.covers("SN6")
def test_a_callback_may_send(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    producer = start_small()
    first = producer.send("t", "first")
    seconds: list[Any] = []
    first.add_done_callback(lambda _: seconds.append(producer.send("t", "second")))
    cluster.release()
    wait_until(lambda: bool(seconds), "the callback runs")
    assert seconds[0].result(20).offset == 1


@pytest.mark.covers("SN6")
def test_a_callback_that_would_have_to_wait_gets_an_error_at_once(cluster: ScriptedCluster, start_small: Start) -> None:
    """The callback runs on the thread that frees memory and receives metadata: it would wait for itself, and stop everything."""
    cluster.topics = {"t": 1, "elsewhere": 1}
    cluster.holding = True
    producer = start_small(buffer_memory=65536, batch_size=16384, max_request_size=65536)
    raised: list[Exception] = []

    def send_more(*_: object) -> None:
        for call in (
            lambda: producer.send("t", b"large" * 8000),
            lambda: producer.send_batch(table(b"large" * 8000), topic="t"),
            lambda: producer.send("elsewhere", "unknown"),
        ):
            try:
                call()
            except PyProducerError as error:
                raised.append(error)

    futures = [producer.send("t", b"x" * 30_000, on_delivery=send_more), producer.send("t", b"y" * 30_000)]
    cluster.wait_for_held(1)  # the other one waits until the brokers know the producer
    cluster.release(1)
    assert futures[0].result(20).offset == 0
    assert [type(error) for error in raised] == [BufferExhausted, BufferExhausted, MetadataTimeout]
    assert all("callback" in str(error) for error in raised)
    cluster.release()
    assert futures[1].result(20).offset == 1
    producer.flush()


@pytest.mark.covers("KP9")
def test_a_flush_raises_its_failures_whichever_other_thread_flushes_meanwhile(
    cluster: ScriptedCluster, start_small: Start
) -> None:
    cluster.holding = True
    cluster.produce_code = lambda _: 29
    producer = start_small()
    producer.send_batch(table("refused"), topic="t")
    cluster.wait_for_held(1)
    flushes = [Runner(producer.flush) for _ in range(3)]
    wait_until(lambda: parts_of(producer).accumulator.incomplete.flushing == 3, "all flushes are under way")
    cluster.release()
    for flush in flushes:
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            flush.result()
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        producer.flush()  # the rows are this thread's
    producer.flush()


@pytest.mark.covers("FU1")
def test_a_future_cannot_be_cancelled(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    future = start_small().send("t", "x")
    assert not future.cancel()
    cluster.release()
    assert future.result(20).offset == 0


def test_a_failing_callback_does_not_affect_others(
    cluster: ScriptedCluster, start_small: Start, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.holding = True
    producer = start_small()
    future = producer.send("t", "x")
    future.add_done_callback(lambda _: 1 // 0)
    cluster.release()
    producer.flush()
    assert producer.send("t", "y").result(20).offset == 1
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.covers("IN2")
def test_a_callback_that_ends_its_thread_ends_only_itself(
    cluster: ScriptedCluster, start_small: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """sys.exit() or pytest.fail() in a callback is no Exception; the callbacks of the batch's other records run all the same."""
    cluster.holding = True
    producer = start_small(batch_size=4096, linger_ms=60_000, delivery_timeout_ms=120_000)

    def leave(*_: object) -> None:
        raise SystemExit(3)

    futures = [producer.send("t", "x", on_delivery=leave), producer.send("t", "y"), producer.send("t", "z")]
    futures[1].add_done_callback(leave)
    table_future = producer.send_table(pa.table({"value": ["w"]}), topic="t")
    table_future.add_done_callback(leave)
    cluster.release()
    producer.flush()
    assert [future.result(0).offset for future in futures] == [0, 1, 2]
    assert table_future.result(0).records == 1
    assert producer.send("t", "later", on_delivery=leave) is not None
    cluster.produce_code = lambda _: 29
    with pytest.raises(BrokerError):
        producer.flush()
    assert not parts_of(producer).failed
    assert caplog.text.count("SystemExit: 3") == 4


@pytest.mark.covers("SN44")
def test_rows_that_follow_a_refused_batch_are_refused_with_its_reason_before_any_flush(
    cluster: ScriptedCluster, start_small: Start
) -> None:
    """A write of hours stops at the first batch that failed for good, and not at its flush."""
    codes = iter([29, 0])
    cluster.produce_code = lambda _: next(codes)
    producer = start_small()
    rows = pa.record_batch({"value": pa.array([b"x"], pa.binary())})
    future = producer.send("t", "refused")
    reason = future.exception(20)
    for _ in range(2):
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED") as raised:
            producer.send_batch(rows, topic="t")
        assert raised.value is reason
    assert producer.send("t", "has a future of its own").result(20).offset == 0
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        producer.flush()
    cluster.produce_code = lambda _: 0
    producer.send_batch(rows, topic="t")
    producer.flush()
    assert cluster.log[PLACE] == [b"has a future of its own", b"x"]
