"""The driver's work around the tasks of an exactly-once write, and its messages; the protocol itself is a fake."""

from __future__ import annotations

import dataclasses
import json
import logging
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from spark_producer.common.cluster import ProducerIdAndEpoch, Span, TransactionVersion
from spark_producer.config import SinkOptions, producer_config
from spark_producer.datasource.write.driver import transaction_timeout
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.driver.exactly_once_write import abort_write
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter
from spark_producer.errors import BrokersUnreachable, CommitError, ConfigError, ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status, TaskTransaction
from spark_producer.exactly_once.protocol.outcomes import AlreadyDone, NothingToAbort, WriteAborted, WriteCommitted
from spark_producer.exactly_once.protocol.task_messages import (
    EncodedBatch,
    ForeachBatchOrigin,
    InlineRows,
    PreparedTask,
    Skipped,
    TaskOutcome,
    WriteHandle,
)
from spark_producer.metrics import OffsetRange, WriteReport

TICKET = WriteHandle("orders", "cd" * 16, ProducerIdAndEpoch(1, 5), TransactionVersion.IMPLICIT, None)
NOTHING = WriteReport({})
INLINE = TaskReport(NOTHING, outcome=InlineRows(TICKET, "q1", 4, (EncodedBatch("t", 0, 3, b"x" * 90),), 3))
SPAN = Span("t", 1, 20, 29, 10)
PREPARED = TaskReport(
    WriteReport({("t", 1): OffsetRange(20, 29, 10)}, 10, 1000, 1, 1),
    outcome=PreparedTask(
        TICKET, "q1", 4, TaskTransaction("pyproducer.orders.x.0", 7, 0, TransactionVersion.IMPLICIT, (SPAN,)), 1, 10
    ),
)
SKIPPED = TaskReport(NOTHING, outcome=Skipped(TICKET, "q1", 4, 13))


class Steps:
    """The double of the driver's steps: what was asked of it, and what it answers or raises."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.raises: Exception | None = None
        self.committed: WriteCommitted | AlreadyDone = WriteCommitted(4)
        self.aborted: WriteAborted | WriteCommitted | NothingToAbort = WriteAborted(("pyproducer.orders.x.0",))

    def begin(self, sink: driver.SinkSettings) -> WriteHandle:
        self.calls.append(("begin", sink))
        if self.raises is not None:
            raise self.raises
        return TICKET

    def commit(
        self, sink: driver.SinkSettings, messages: Sequence[TaskOutcome], batch: int
    ) -> WriteCommitted | AlreadyDone:
        self.calls.append(("commit", sink.name, tuple(messages), batch))
        return self.committed

    def inline_spans(self, sink: driver.SinkSettings) -> tuple[Span, ...]:
        assert self.calls[-1][:2] == ("commit", sink.name), "they are known after the commit"
        return (Span("t", 0, 100, 102, 3),)

    def abort(
        self, sink: driver.SinkSettings, messages: Sequence[TaskOutcome], batch: int
    ) -> WriteAborted | WriteCommitted | NothingToAbort:
        self.calls.append(("abort", sink.name, tuple(messages), batch))
        return self.aborted


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    for name in ("begin", "commit", "inline_spans", "abort"):
        monkeypatch.setattr(driver, name, getattr(made, name))
    monkeypatch.setattr(transaction_timeout, "_known", {"localhost:1": 600_000})
    return made


def settings(**options: Any) -> TaskSettings:
    config = producer_config({"bootstrap.servers": "localhost:1", "max.block.ms": 7000})
    sink = SinkOptions(topic="t", exactly_once_id="orders", exactly_once_control_topic="commits")
    return TaskSettings(config, sink, transaction_timeout_unset=True, streaming=True)._replace(**options)


def test_a_writer_begins_when_it_is_pickled_first_and_only_then(steps: Steps) -> None:
    """Spark makes a writer for each commit too, and pickles that of the tasks twice."""
    writer = StreamWriter(settings())
    assert steps.calls == []
    spark = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    copies = [pickle.loads(spark.dumps(writer)) for _ in range(2)]  # type: ignore[no-untyped-call]
    [(name, sink)] = steps.calls
    assert name == "begin"
    assert (sink.name, sink.control_topic, sink.timeout, sink.topics) == ("orders", "commits", 7.0, ("t",))
    assert [copy.settings.handle for copy in copies] == [TICKET, TICKET]
    pickle.dumps(copies[0])
    assert len(steps.calls) == 1, "what is pickled has begun"


def test_the_time_of_a_transaction_is_the_brokers_unless_it_was_set(steps: Steps) -> None:
    for own, milliseconds in ((True, 600_000), (False, 60_000)):
        writer = BatchWriter(settings(transaction_timeout_unset=own))
        pickle.dumps(writer)
        assert writer.settings.config.transaction_timeout_ms == milliseconds


def test_a_time_that_brokers_do_not_allow_is_refused_before_any_task(steps: Steps) -> None:
    config = producer_config({"bootstrap.servers": "localhost:1", "transaction.timeout.ms": 600_001})
    with pytest.raises(ConfigError, match=r"600001, and the brokers allow at most 600000 \(transaction\.max"):
        CloudPickleSerializer().dumps(BatchWriter(settings(config=config, transaction_timeout_unset=False)))  # type: ignore[no-untyped-call]
    assert steps.calls == []


def test_without_an_id_nothing_begins(steps: Steps) -> None:
    for kind in (BatchWriter, StreamWriter):
        copy = pickle.loads(pickle.dumps(kind(settings(sink=SinkOptions(topic="t")))))
        assert copy.settings.handle is None
    assert steps.calls == []


def test_an_error_of_pickling_is_raised_as_itself(steps: Steps) -> None:
    """PySpark wraps all other errors of pickling, and prints both tracebacks."""
    steps.raises = ExactlyOnceError("a person must look", kind="PARTIAL", names=("a",))
    with pytest.raises(ExactlyOnceError, match=r"^a person must look$") as raised:
        CloudPickleSerializer().dumps(StreamWriter(settings()))  # type: ignore[no-untyped-call]
    assert isinstance(raised.value, pickle.PickleError)
    assert (type(raised.value).__module__, type(raised.value).__qualname__) == (
        "spark_producer.errors",
        "ExactlyOnceError",
    )
    assert (raised.value.kind, raised.value.names) == ("PARTIAL", ("a",))
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_a_defect_while_pickling_keeps_its_traceback(steps: Steps) -> None:
    steps.raises = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        pickle.dumps(StreamWriter(settings()))


def test_a_commit_makes_the_rows_visible_and_reports_them(steps: Steps, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    StreamWriter(settings()).commit([INLINE, PREPARED], 4)
    assert steps.calls == [("commit", "orders", (INLINE.outcome, PREPARED.outcome), 4)]
    people, programs = caplog.records
    expected = people.getMessage()
    assert "micro-batch 4 of exactlyOnceId orders: committed exactly once" in expected
    assert "1 tasks by the driver, 1 with a transaction of their own" in expected
    assert "13 records, 1,090 bytes" in expected
    assert "t-0: offsets 100 to 102, 3 records" in expected, "the driver has sent them itself"
    assert "t-1: offsets 20 to 29, 10 records" in expected
    page = json.loads(programs.getMessage())
    assert (page["write"], page["records"]) == ("micro-batch 4", 13)
    assert page["exactly_once"].pop("commit_ms") >= 0
    assert page["exactly_once"] == {"id": "orders", "batch": 4, "inline": 1, "transactions": 1, "skipped": 0}


def numbered(
    last_done: int, batch: int, query: str = "", kind: type[Skipped] | type[InlineRows] = Skipped
) -> TaskReport:
    """The report of a task of a write whose sink has come to `last_done`."""
    assert INLINE.outcome is not None
    last = ControlRecord("orders", query, Status.DONE, last_done, last_done, "t")
    handle = INLINE.outcome.handle._replace(last=last)
    outcome = Skipped(handle, query, batch, None) if kind is Skipped else InlineRows(handle, query, batch, (), 0)
    return TaskReport(NOTHING, outcome=outcome)


def repeated(last_done: int, run: str) -> TaskReport:
    """The same in `foreachBatch`, of version 4."""
    report = numbered(last_done, 4)
    assert report.outcome is not None
    return dataclasses.replace(report, outcome=report.outcome._replace(origin=ForeachBatchOrigin("q", run, 2)))


@pytest.mark.parametrize(
    ("report", "level", "expected"),
    [
        (repeated(5, "r"), "INFO", "txnVersion 4 was committed before the query was started again"),
        (repeated(4, "r"), "INFO", "txnVersion 4 was committed before the query was started again"),
        (repeated(5, ""), "WARNING", "txnVersion 4 is not written, since 5 was written before and numbers must rise"),
        (numbered(4, 4, "q"), "INFO", "batch write of exactlyOnceId orders was committed before the query was started"),
        (numbered(4, 4), "WARNING", "txnVersion 4 was written before, so nothing is written now"),
        (numbered(5, 4), "WARNING", "txnVersion 4 is not written, since 5 was written before and numbers must rise"),
    ],
)
def test_a_skipped_write_is_logged(
    steps: Steps, caplog: pytest.LogCaptureFixture, report: TaskReport, level: str, expected: str
) -> None:
    caplog.set_level(logging.INFO)
    steps.committed = AlreadyDone(4)
    BatchWriter(settings()).commit([report, report])
    people, programs = caplog.records
    assert people.levelname == level
    assert expected in people.getMessage()
    assert json.loads(programs.getMessage())["exactly_once"]["skipped"] == 2


def test_a_number_that_was_forgotten_is_warned_of(steps: Steps, caplog: pytest.LogCaptureFixture) -> None:
    BatchWriter(settings()).commit([numbered(7, NO_BATCH, kind=InlineRows)])
    assert "has no txnVersion, and earlier ones had, up to 7" in caplog.text
    caplog.clear()
    caplog.set_level(logging.WARNING)
    BatchWriter(settings()).commit([numbered(NO_BATCH, NO_BATCH, kind=InlineRows)])
    StreamWriter(settings()).commit([numbered(7, 8, "q", kind=InlineRows)], 8)
    assert caplog.text == ""


def test_a_commit_without_reports_commits_nothing(steps: Steps) -> None:
    with pytest.raises(CommitError, match="trigger\\(continuous"):
        StreamWriter(settings()).commit([INLINE, None], 4)
    assert steps.calls == []


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (WriteAborted(("a", "b")), "nothing of it is visible; 2 transactions were aborted"),
        (WriteCommitted(4), "but all its rows are committed, and a restart does not write them again"),
        (NothingToAbort("no task has reported a transaction"), "no task has reported a transaction"),
    ],
)
def test_an_abort_logs_the_outcome_of_the_write(
    steps: Steps,
    caplog: pytest.LogCaptureFixture,
    outcome: WriteAborted | WriteCommitted | NothingToAbort,
    expected: str,
) -> None:
    steps.aborted = outcome
    StreamWriter(settings()).abort([None, PREPARED, None], 4)
    assert steps.calls == [("abort", "orders", (PREPARED.outcome,), 4)]
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "WARNING",
        f"micro-batch 4 of exactlyOnceId orders failed: {expected}",
    )


def test_an_abort_without_reports_leaves_all_to_the_next_begin(steps: Steps) -> None:
    BatchWriter(settings()).abort([None, None])
    assert steps.calls == []


def test_brokers_are_asked_once_how_long_a_transaction_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(config: object) -> int:
        asked.append("asked")
        return [600_000, 3_600_000][len(asked) - 1]

    monkeypatch.setattr(transaction_timeout, "_known", {})
    monkeypatch.setattr(transaction_timeout, "_request_max_timeout_ms", answer)
    short, long = (producer_config({"bootstrap.servers": name}) for name in ("short:1", "long:1"))
    assert [transaction_timeout.max_transaction_timeout_ms(config) for config in (short, long, short, long)] == [
        600_000,
        900_000,
    ] * 2
    assert len(asked) == 2


def test_brokers_that_do_not_say_it_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(config: object) -> int:
        raise BrokersUnreachable("no broker")

    monkeypatch.setattr(transaction_timeout, "_known", {})
    monkeypatch.setattr(transaction_timeout, "_request_max_timeout_ms", silent)
    assert transaction_timeout.max_transaction_timeout_ms(producer_config({"bootstrap.servers": "silent:1"})) == 900_000
    assert transaction_timeout._known == {}


@pytest.mark.covers("COM15")
@pytest.mark.parametrize(
    ("ended", "status", "records"),
    [
        (WriteAborted(("a",)), "aborted", 0),
        (WriteCommitted(4), "committed", 10),
        (NothingToAbort("a newer driver"), "unknown", 0),
    ],
    ids=["aborted", "committed", "left alone"],
)
def test_reports_say_what_is_visible_of_a_failed_write(
    steps: Steps, ended: WriteAborted | WriteCommitted | NothingToAbort, status: str, records: int
) -> None:
    steps.aborted = ended
    reported = abort_write(settings(), [PREPARED, None], "micro-batch 4")
    assert (reported.status, reported.report.records) == (status, records)
    assert reported.exactly_once is not None
    assert reported.exactly_once["id"] == "orders"
    assert abort_write(settings(), [None], "micro-batch 4").status == "aborted"
