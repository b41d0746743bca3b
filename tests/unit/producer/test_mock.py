"""The mock producer: the test decides how each record completes. Id (tests/ids.md): MP1."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import MockProducer, RecordMetadata
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import (
    DeliveryTimeout,
    IllegalState,
    ProducerClosed,
    ProducerFenced,
    PyProducerError,
    RecordError,
    SchemaError,
    TransactionAbortable,
    TransactionAborted,
    TransactionTimeout,
)


@pytest.mark.covers("MP1")
def test_auto_complete_acknowledges_at_once_with_offsets_by_partition() -> None:
    mock = MockProducer(partitions={"t": 3})
    futures = [mock.send("t", "v", partition=n % 2, timestamp_ms=5) for n in range(4)]
    assert [future.result(0) for future in futures] == [RecordMetadata("t", n % 2, n // 2, 5) for n in range(4)]
    assert [(record.partition, record.value) for record in mock.history] == [(n % 2, b"v") for n in range(4)]


@pytest.mark.covers("MP1")
def test_records_wait_for_complete_next_and_error_next_in_their_order() -> None:
    mock = MockProducer(auto_complete=False)
    seen: list[tuple[int, Exception | None]] = []
    futures = [
        mock.send("t", "v", on_delivery=lambda found, error: seen.append((found.offset, error))) for _ in range(3)
    ]
    refused = DeliveryTimeout("refused")
    assert not any(future.done() for future in futures)
    assert (mock.complete_next(), mock.error_next(refused), mock.complete_next()) == (True, True, True)
    assert (mock.complete_next(), mock.error_next(refused)) == (False, False)
    assert seen == [(0, None), (-1, refused), (1, None)]
    assert futures[1].exception(0) is refused
    with pytest.raises(DeliveryTimeout):
        mock.flush()
    mock.flush()


@pytest.mark.covers("MP1")
def test_flush_completes_what_is_pending() -> None:
    mock = MockProducer(auto_complete=False)
    future = mock.send("t", "v")
    assert not mock.flushed
    mock.flush()
    assert future.result(0).offset == 0
    assert mock.flushed


@pytest.mark.covers("MP1")
def test_tables_and_batches_are_recorded_and_checked_like_the_producers() -> None:
    mock = MockProducer(partitions={"t": 12})
    table = pa.table({"key": ["kafka", "test"], "value": ["a", None]})
    assert mock.send_table(table, topic="t").result(0).records == 2
    assert [record.partition for record in mock.history] == [4, 11]
    assert [record.value for record in mock.history] == [b"a", None]
    mock.send_batch(pa.record_batch({"value": ["c"], "headers": [[{"key": "h", "value": b"x"}]]}), topic="t")
    assert mock.history[-1].headers == (("h", b"x"),)
    with pytest.raises(SchemaError):
        mock.send_batch(pa.record_batch({"nonsense": ["c"]}), topic="t")
    with pytest.raises(RecordError, match="partition 12 does not exist"):
        mock.send("t", "v", partition=12)
    assert len(mock.history) == 3


@pytest.mark.covers("MP1")
def test_every_call_obeys_close_and_injected_errors() -> None:
    mock = MockProducer()
    trouble = KeyError("injected")
    mock.send_error = mock.flush_error = mock.close_error = trouble
    for call in (lambda: mock.send("t", "v"), mock.flush, mock.close):
        with pytest.raises(KeyError):
            call()
    mock.send_error = mock.flush_error = mock.close_error = None
    mock.auto_complete = False
    future = mock.send("t", "v")
    mock.close(timeout=0)
    mock.close()
    assert isinstance(future.exception(0), ProducerClosed)
    for call in (lambda: mock.send("t", "v"), mock.flush):
        with pytest.raises(ProducerClosed):
            call()


@pytest.mark.covers("MP1")
def test_clear_forgets_and_a_with_statement_flushes() -> None:
    with MockProducer(auto_complete=False) as mock:
        mock.send("t", "forgotten")
        mock.clear()
        assert (mock.history, mock.flushed) == ([], True)
        future = mock.send("t", "v")
    assert future.result(0).offset == 0
    assert mock.closed


@pytest.mark.covers("MP1")
def test_what_is_undecided_on_the_way_out_of_an_error_is_refused_as_by_the_producer() -> None:
    futures = []

    def fail() -> None:
        with MockProducer(auto_complete=False) as mock:
            futures.append(mock.send("t", "v"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert isinstance(futures[0].exception(0), ProducerClosed)


@pytest.mark.covers("MP1")
@pytest.mark.parametrize(
    "bad", [{"value": 5}, {"value": b"v", "timestamp_ms": "noon"}, {"value": b"v", "partition": 1 << 40}]
)
def test_a_record_that_is_none_is_the_same_error_as_of_the_producer(bad: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="topic 'orders' cannot be written"):
        MockProducer().send("orders", **bad)


@pytest.mark.covers("MP1")
def test_an_error_is_raised_in_its_thread_and_once_by_a_flush_for_others() -> None:
    mock = MockProducer(auto_complete=False)
    refused = DeliveryTimeout("refused")
    rows = pa.record_batch({"value": ["c"]})
    with ThreadPoolExecutor(1) as worker:
        worker.submit(mock.send_batch, rows, topic="t").result(20)
        mock.error_next(refused)
        mock.send_batch(rows, topic="t")
        mock.flush()  # the records of this thread have no failure
        assert worker.submit(mock.send_batch, rows, topic="t").exception(20) is refused
        with pytest.raises(DeliveryTimeout):
            mock.flush()  # it has sent nothing more: it flushes for all
        mock.flush()
        assert worker.submit(mock.send_batch, rows, topic="t").exception(20) is None
        assert worker.submit(mock.flush).exception(20) is refused
        assert worker.submit(mock.flush).exception(20) is None


@pytest.mark.covers("MP1")
def test_the_end_of_a_with_statement_raises_what_no_flush_has_raised() -> None:
    def use(worker: ThreadPoolExecutor) -> None:
        with MockProducer(auto_complete=False) as mock:
            worker.submit(mock.send_batch, pa.record_batch({"value": ["c"]}), topic="t").result(20)
            mock.error_next(DeliveryTimeout("refused"))
            mock.send("t", "mine")

    with ThreadPoolExecutor(1) as worker, pytest.raises(DeliveryTimeout):
        use(worker)


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([("a", b"1"), ("", None)]),
        lambda: [("a", bytearray(b"1")), ("", None)],
        lambda: [["a", "1"], [b"", None]],
        lambda: (("a", memoryview(b"1")), ("", None)),
    ],
    ids=["once", "bytearray", "text", "view"],
)
def test_headers_are_kept_as_a_consumer_reads_them(make: Callable[[], Any]) -> None:
    mock = MockProducer()
    mock.send("t", b"v", headers=make())
    (sent,) = mock.history
    assert sent.headers == (("a", b"1"), ("", None))
    assert [type(content) for _, content in sent.headers] == [bytes, type(None)]


# --- transactions -----------------------------------------------------------------------------------------------------


def initialized(**options: Any) -> MockProducer:
    mock = MockProducer(**options)
    mock.init_transactions()
    return mock


@pytest.mark.covers("MP1")
def test_records_and_offsets_of_a_transaction_are_history_once_it_is_committed() -> None:
    mock = initialized()
    mock.begin_transaction()
    mock.send("t", b"a")
    mock.send_batch(pa.record_batch({"value": ["b"]}), topic="t")
    mock.send_offsets_to_transaction({("in", 0): 5}, "readers")
    assert (mock.history, len(mock.transactions.uncommitted), mock.transactions.offsets) == ([], 2, {})
    mock.commit_transaction()
    assert [record.value for record in mock.history] == [b"a", b"b"]
    assert mock.transactions.offsets["readers"][TopicPartition("in", 0)].offset == 5
    with mock.transaction():
        mock.send("t", b"c")
    assert [record.value for record in mock.history] == [b"a", b"b", b"c"]
    assert mock.transactions.commits == 2


@pytest.mark.covers("MP1")
def test_an_abort_drops_the_records_and_fails_those_that_are_undecided() -> None:
    mock = initialized(auto_complete=False)
    mock.begin_transaction()
    waits = mock.send("t", b"a")
    mock.send_offsets_to_transaction({("in", 0): 5}, "readers")
    mock.abort_transaction()
    assert isinstance(waits.exception(), TransactionAborted)
    assert (mock.history, mock.transactions.uncommitted, mock.transactions.offsets) == ([], [], {})
    mock.flush()  # no failure is left to report


@pytest.mark.covers("MP1")
def test_a_transaction_that_lacks_a_record_cannot_be_committed() -> None:
    for mark_abortable in ("refused by the broker", "refused by the call"):
        mock = initialized(auto_complete=False)
        mock.begin_transaction()
        if mark_abortable == "refused by the broker":
            mock.send("t", b"a")
            mock.error_next(PyProducerError("no memory"))
        else:
            with pytest.raises(RecordError):
                mock.send("t", b"a", partition=9)
        with pytest.raises(TransactionAbortable):
            mock.commit_transaction()
        mock.abort_transaction()
        with mock.transaction():
            mock.send("t", b"b")
        assert [record.value for record in mock.history] == [b"b"]


CALLS: dict[str, Callable[[MockProducer], object]] = {
    "init": lambda mock: mock.init_transactions(),
    "begin": lambda mock: mock.begin_transaction(),
    "offsets": lambda mock: mock.send_offsets_to_transaction({("in", 0): 5}, "readers"),
    "commit": lambda mock: mock.commit_transaction(),
    "abort": lambda mock: mock.abort_transaction(),
}


def in_state(state: str) -> MockProducer:
    mock = MockProducer() if state == "new" else initialized()
    if state == "in a transaction":
        mock.begin_transaction()
    return mock


@pytest.mark.covers("MP1")
@pytest.mark.parametrize(
    ("state", "allowed"),
    [("new", {"init"}), ("initialized", {"begin"}), ("in a transaction", {"offsets", "commit", "abort"})],
)
def test_every_call_of_a_transaction_obeys_init_close_fencing_and_injected_errors(
    state: str, allowed: set[str]
) -> None:
    for name, call in CALLS.items():
        mock = in_state(state)
        if name in allowed:
            setattr(mock.transactions, f"{name}_error", KeyError(name))
            with pytest.raises(KeyError, match=name):
                call(mock)
            setattr(mock.transactions, f"{name}_error", None)
            call(mock)
        else:
            with pytest.raises(IllegalState):
                call(mock)
        fenced = in_state(state)
        fenced.transactions.fence()
        with pytest.raises(ProducerFenced):
            call(fenced)
        closed = in_state(state)
        closed.close()
        with pytest.raises(ProducerClosed):
            call(closed)
    assert not in_state(state).history


@pytest.mark.covers("MP1")
def test_outside_of_a_transaction_records_are_refused() -> None:
    with pytest.raises(IllegalState, match="begin_transaction"):
        initialized().send("t", b"a")


@pytest.mark.covers("MP1", "TM16")
def test_a_context_aborts_after_a_timeout_of_its_body_and_not_after_one_of_its_commit() -> None:
    def write(mock: MockProducer) -> None:
        with mock.transaction():
            mock.send("t", b"a")
            mock.send_offsets_to_transaction({("in", 0): 5}, "readers")

    for name, open_after in (("offsets_error", False), ("commit_error", True)):
        mock = initialized()
        setattr(mock.transactions, name, TransactionTimeout("not answered"))
        with pytest.raises(TransactionTimeout):
            write(mock)
        assert mock.transactions.in_flight == open_after
        setattr(mock.transactions, name, None)
        if open_after:
            mock.commit_transaction()
        write(mock)
        assert [record.value for record in mock.history] == [b"a"] * (1 + open_after)
