"""The exactly-once write of a task: which way its rows take, and what is left when it fails; no Spark session, no broker."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import cast

import pyarrow as pa
import pytest
from pyspark import TaskContext

from spark_producer.common.cluster import ProducerIdAndEpoch, TransactionVersion
from spark_producer.config import ProducerConfig, SinkOptions, producer_config
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_assignment import SparkTaskInfo
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.exactly_once_task import write_exactly_once
from spark_producer.datasource.write.worker.spool import Spool
from spark_producer.datasource.write.worker.transaction_writer import inline_limit
from spark_producer.datasource.write.worker.transactional_ids import TransactionalIdPool
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status, TaskTransaction
from spark_producer.exactly_once.protocol.task_messages import (
    EncodedBatch,
    InlineRows,
    PreparedTask,
    Skipped,
    WriteHandle,
)
from spark_producer.metrics import WriteReport
from spark_producer.producer import Producer
from tests.fakes.held_producer import ROW_BYTES, HeldProducer

FENCING = ProducerIdAndEpoch(1, 5)
NEXT = ProducerIdAndEpoch(1, 7)
CONFIG = producer_config({"bootstrap.servers": "localhost:1", "transaction.timeout.ms": 60_000, "batch.size": 0})
"""With batches of one record nothing is gathered: every Arrow batch goes on as it comes."""


class Worker:
    """One Python worker with fakes of producers, and a clock that only a test moves."""

    def __init__(self, **of_producers: int) -> None:
        self.now = 1000.0
        self.ids = TransactionalIdPool()
        self.made: list[HeldProducer] = []
        self.of_producers = of_producers
        self.producers = ProducerCache(self._make, lambda: self.now)

    def _make(self, config: ProducerConfig) -> Producer:
        self.made.append(HeldProducer(config, **self.of_producers))
        return cast(Producer, self.made[-1])

    def write(
        self,
        batches: Iterator[pa.RecordBatch],
        fencing: ProducerIdAndEpoch = FENCING,
        *,
        last: ControlRecord | None = None,
        partition: int = 0,
        attempt: int = 0,
        servers: str = CONFIG.bootstrap_servers,
        **options: int | str,
    ) -> TaskReport:
        """Run one task of micro-batch 4; `options` are those of the sink."""
        sink = SinkOptions(topic="t", exactly_once_id="orders", **options)  # type: ignore[arg-type]
        handle = WriteHandle("orders", "cd" * 16, fencing, TransactionVersion.IMPLICIT, last)
        config = dataclasses.replace(CONFIG, bootstrap_servers=servers)
        settings = TaskSettings(config, sink, streaming=True, handle=handle)
        task = SparkTaskInfo("q1", 4, True, partition, attempt)
        return write_exactly_once(
            settings, config, handle, batches, self.producers, task=task, ids=self.ids, clock=lambda: self.now
        )


def batch(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"x" * 60] * rows, pa.binary())})


def rows(*counts: int, before_each: Callable[[], object] = lambda: None) -> Iterator[pa.RecordBatch]:
    """Yield an Arrow batch of each of these numbers of rows."""
    for count in counts:
        before_each()
        yield batch(count)


LIMIT = 5000 * ROW_BYTES


def test_few_rows_travel_to_the_driver() -> None:
    worker = Worker()
    report = worker.write(rows(5000), exactly_once_max_inline_bytes=LIMIT)
    assert isinstance(report.outcome, InlineRows)
    assert report.outcome.batches == (EncodedBatch("t", 0, 5000, bytes(LIMIT)),)
    assert report.outcome.rows == 5000
    assert (report.outcome.query, report.outcome.batch, report.outcome.handle.fencing) == ("q1", 4, FENCING)
    assert report.report == WriteReport({}), "where they will lie is known to the driver alone"
    assert worker.made[0].transactions.calls == ["begin_deferred", "take_deferred"]
    again = worker.write(rows(1), exactly_once_max_inline_bytes=LIMIT)
    assert isinstance(again.outcome, InlineRows)
    assert len(worker.made) == 1, "no transaction was begun, so the id is free"


def test_many_rows_get_a_transaction() -> None:
    worker = Worker()
    report = worker.write(rows(3000, 2001, 4000), exactly_once_max_inline_bytes=LIMIT)
    assert isinstance(report.outcome, PreparedTask)
    made = worker.made[0]
    assert report.outcome.transaction == TaskTransaction(
        made.transactions.transactional_id, 4000, 0, TransactionVersion.IMPLICIT, report.outcome.transaction.spans
    )
    assert report.outcome.transaction.spans[0].records == report.report.records == report.outcome.rows == 9001
    assert made.transactions.calls == ["begin_deferred", "release", "prepare"]
    assert made.first_rows == [0, 3000, 5001]
    assert not made.closed, "the connections are for the next micro-batch"


@pytest.mark.parametrize("count", [0, 1])
def test_without_inline_bytes_every_row_gets_a_transaction(count: int) -> None:
    report = Worker().write(rows(count), exactly_once_max_inline_bytes=0)
    if count:
        assert isinstance(report.outcome, PreparedTask)
    else:
        assert isinstance(report.outcome, InlineRows), "an empty transaction cannot be ended"
        assert report.outcome.batches == ()
    assert report.outcome.rows == count


def test_a_hold_that_ends_for_want_of_memory_is_a_transaction() -> None:
    report = (worker := Worker(memory=2000 * ROW_BYTES)).write(rows(3000), exactly_once_max_inline_bytes=LIMIT)
    assert isinstance(report.outcome, PreparedTask)
    assert worker.made[0].transactions.calls == ["begin_deferred", "prepare"]


def test_a_task_takes_the_id_of_a_decided_batch_and_no_other() -> None:
    worker = Worker()
    ids = []
    for fencing in (FENCING, FENCING, NEXT, FENCING, ProducerIdAndEpoch(2, 0)):
        report = worker.write(rows(10), fencing, exactly_once_max_inline_bytes=0)
        assert isinstance(report.outcome, PreparedTask)
        ids.append(report.outcome.transaction.transactional_id.rpartition(".")[2])
    assert ids == ["0", "1", "1", "2", "3"]


def test_a_micro_batch_that_is_done_is_read_to_the_end_and_not_written() -> None:
    """Spark's stateful operators write their state when their last row is read."""
    last = ControlRecord("orders", "q1", Status.DONE, 4, 4, "ab" * 16)
    worker, left = Worker(), rows(3000, 3000)
    report = worker.write(left, last=last)
    assert isinstance(report.outcome, Skipped)
    assert report.outcome.rows == 6000
    assert worker.made == []
    assert list(left) == []


@pytest.mark.parametrize(("micro_batch", "unread"), [(None, 2), (7, 0)], ids=["a job", "in foreachBatch"])
def test_a_job_that_is_done_reads_its_rows_only_in_foreach_batch(micro_batch: int | None, unread: int) -> None:
    """A function of foreachBatch writes rows that may come out of stateful operators too."""
    last = ControlRecord("orders", "", Status.DONE, 7, 7, "ab" * 16)
    handle = WriteHandle("orders", "cd" * 16, FENCING, TransactionVersion.IMPLICIT, last)
    settings = TaskSettings(CONFIG, SinkOptions(topic="t", exactly_once_id="orders", txn_version=7), handle=handle)
    worker, left = Worker(), rows(3000, 3000)
    task = SparkTaskInfo(None if micro_batch is None else "q1", micro_batch, streaming=False)
    report = write_exactly_once(settings, CONFIG, handle, left, worker.producers, task=task, ids=worker.ids)
    assert isinstance(report.outcome, Skipped)
    assert report.outcome.rows == (None if unread else 6000)
    assert len(list(left)) == unread


def test_a_failed_task_gives_its_transaction_up_and_raises_the_first_error() -> None:
    worker = Worker(fails_at=6000)
    worker.of_producers = {"fails_at": 6000}
    with pytest.raises(ValueError, match="row 6000"):
        worker.write(rows(5500, 1000), exactly_once_max_inline_bytes=LIMIT)
    made = worker.made[0]
    assert made.transactions.calls == ["begin_deferred", "release", "try_abort"]
    assert made.closed
    assert not len(worker.producers)
    worker.of_producers = {}
    again = worker.write(rows(10), NEXT, exactly_once_max_inline_bytes=0)
    assert isinstance(again.outcome, PreparedTask)
    assert again.outcome.transaction.transactional_id.endswith(".1"), "what is left in slot 0 is not known"


def test_a_task_that_fails_before_its_transaction_has_nothing_to_give_up() -> None:
    worker = Worker(fails_at=0)
    with pytest.raises(ValueError, match="row 0"):
        worker.write(rows(10))
    assert worker.made[0].transactions.calls == ["begin_deferred"]
    assert worker.made[0].closed


def test_a_task_that_is_killed_gives_its_transaction_up_too() -> None:
    """Spark ends tasks by an exception that is no `Exception`."""

    def killed() -> Iterator[pa.RecordBatch]:
        yield batch(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        (worker := Worker()).write(killed(), exactly_once_max_inline_bytes=0)
    assert worker.made[0].transactions.calls == ["begin_deferred", "release", "try_abort"]
    assert worker.made[0].closed


def test_a_transaction_that_is_open_for_too_long_ends_the_task() -> None:
    """The driver would refuse it anyway, after all other tasks."""
    worker = Worker()

    def advance() -> None:
        worker.now += 15.0

    expected = (
        r"open for 45 s, more than two thirds of kafka.transaction.timeout.ms \(60 s\).*exactlyOnceSpoolToDisk to true"
    )
    with pytest.raises(ExactlyOnceError, match=expected):
        worker.write(
            rows(10, 10, 10, 10, 10, before_each=advance),
            exactly_once_max_inline_bytes=0,
            exactly_once_spool_to_disk="false",
        )
    assert worker.made[0].transactions.calls == ["begin_deferred", "release", "try_abort"]
    assert worker.made[0].first_rows == [0, 10, 20, 30]


def test_the_time_of_the_last_acknowledgements_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()

    def late() -> Iterator[pa.RecordBatch]:
        yield batch(10)
        prepare = worker.made[0].transactions.prepare

        def slow() -> object:
            worker.now += 41
            return prepare()

        monkeypatch.setattr(worker.made[0].transactions, "prepare", slow)

    with pytest.raises(ExactlyOnceError, match="open for 41 s"):
        worker.write(late(), exactly_once_max_inline_bytes=0)


@pytest.mark.parametrize(
    ("spool", "attempt", "seconds", "spools"),
    [
        ("auto", 0, 0.0, False),
        ("auto", 0, 6.0, True),  # the rows come slowly: the input sets the pace, and not the brokers
        ("auto", 1, 0.0, True),  # the first attempt may have been too slow
        ("true", 0, 0.0, True),
        ("false", 1, 6.0, False),
    ],
)
def test_rows_are_spooled_so_that_the_transaction_is_open_only_to_send_them(
    monkeypatch: pytest.MonkeyPatch, spool: str, attempt: int, seconds: float, spools: bool
) -> None:
    worker, spooled = Worker(), []
    add = Spool.add

    def adding(self: Spool, one: pa.RecordBatch) -> None:
        spooled.append(one.num_rows)
        add(self, one)

    monkeypatch.setattr(Spool, "add", adding)

    def given() -> Iterator[pa.RecordBatch]:
        worker.now += seconds
        yield batch(6000)
        assert worker.made[0].transactions.open == (not spools)
        yield batch(10)
        yield batch(20)

    report = worker.write(
        given(), exactly_once_max_inline_bytes=LIMIT, exactly_once_spool_to_disk=spool, attempt=attempt
    )
    assert isinstance(report.outcome, PreparedTask)
    assert report.outcome.rows == report.report.records == 6030
    assert spooled == ([10, 20] if spools else [])
    assert worker.made[0].first_rows == [0, 6000, 6010]
    assert worker.made[0].transactions.calls == ["begin_deferred", "release", "prepare"]


def test_a_spooled_task_may_take_as_long_as_it_likes() -> None:
    worker = Worker()

    def advance() -> None:
        worker.now += 3600.0

    report = worker.write(rows(10, 10, 10, before_each=advance), exactly_once_max_inline_bytes=0)
    assert report.report.records == 30


def test_the_same_id_on_another_cluster_does_not_free_what_waits_on_this_one() -> None:
    worker = Worker()
    ids = []
    for fencing, servers in ((FENCING, "here:1"), (NEXT, "there:1"), (NEXT, "here:1")):
        outcome = worker.write(rows(1), fencing, exactly_once_max_inline_bytes=0, servers=servers).outcome
        assert isinstance(outcome, PreparedTask)
        ids.append(outcome.transaction.transactional_id)
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize(("spool", "seconds"), [("true", 0.0), ("auto", 6.0)])
def test_a_task_that_spools_does_so_before_memory_ends_however_much_the_driver_would_take(
    spool: str, seconds: float
) -> None:
    worker = Worker(memory=1000 * ROW_BYTES)

    def advance() -> None:
        worker.now += seconds
        if worker.made:
            assert not worker.made[0].transactions.open, "no transaction is open while rows are computed"

    given = rows(*[200] * 10, before_each=advance)
    report = worker.write(given, exactly_once_max_inline_bytes=LIMIT, exactly_once_spool_to_disk=spool)
    assert report.report.records == 2000
    assert worker.made[0].transactions.calls == ["begin_deferred", "release", "prepare"]


def test_a_task_that_could_not_spool_is_not_advised_to() -> None:
    worker = Worker(memory=1000 * ROW_BYTES)

    def advance() -> None:
        worker.now += 30.0

    given = rows(2000, 10, 10, before_each=advance)
    with pytest.raises(ExactlyOnceError, match=r"open for 60 s.*raise kafka\.buffer\.memory") as reported:
        worker.write(given, exactly_once_max_inline_bytes=LIMIT, exactly_once_spool_to_disk="true")
    assert "exactlyOnceSpoolToDisk" not in str(reported.value)


def test_the_limit_of_all_tasks_together_is_bounded() -> None:
    sink = SinkOptions(exactly_once_id="orders")
    limits = [inline_limit(sink, partition) for partition in range(2000)]
    assert limits[:9] == [256 << 10] * 8 + [128 << 10]
    assert min(limits) == 16 << 10
    assert sum(limits[:200]) < 8 << 20
    assert sum(limits) < 36 << 20
    small = SinkOptions(exactly_once_id="orders", exactly_once_max_inline_bytes=100)
    assert {inline_limit(small, partition) for partition in range(2000)} == {100}
    assert inline_limit(SinkOptions(exactly_once_id="orders", exactly_once_max_inline_bytes=0), 3) == 0


def test_workers_that_live_for_one_task_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    for reuse, partition, limit, warned in (("", 0, 0, 1), ("1", 0, 0, 0), ("", 1, 0, 0), ("", 0, LIMIT, 0)):
        monkeypatch.setenv("SPARK_REUSE_WORKER", reuse)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "pyproducer"):
            Worker().write(rows(10), partition=partition, exactly_once_max_inline_bytes=limit)
        assert sum("spark.python.worker.reuse is false" in record.message for record in caplog.records) == warned
