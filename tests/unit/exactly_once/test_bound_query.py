"""To whom an id is bound that is written in `foreachBatch`, and what a second write of one number is."""

from __future__ import annotations

import json
import re

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster.record_json import decode, encode
from spark_producer.exactly_once.protocol.batch_admission import Admission, Admit, Refuse, Skip, admit
from spark_producer.exactly_once.protocol.commands import (
    ControlWritten,
    EndRefused,
    FencedOff,
    Indeterminate,
    LogOutcomes,
    MarkersLost,
    OlderTransactionHangs,
    Opened,
    Result,
    TasksEnded,
    TransactionOutcome,
    Voted,
    WriteResult,
)  # fmt: skip
from spark_producer.exactly_once.protocol.commit import commit
from spark_producer.exactly_once.protocol.control_record import MAX_EARLIER, NO_BATCH, ControlRecord, Earlier, Status
from spark_producer.exactly_once.protocol.final_status import with_final_status
from spark_producer.exactly_once.protocol.outcomes import AlreadyDone, Failed, FailureKind
from spark_producer.exactly_once.protocol.task_messages import ForeachBatchOrigin, InlineRows, Skipped, TaskOutcome
from tests.unit.exactly_once.functions import in_foreach_batch, life
from tests.unit.exactly_once.lossy_world import SINK, World
from tests.unit.exactly_once.script import HELD, NEWER, ended, handle, prepared, task

FIRST, AGAIN, OTHER = ForeachBatchOrigin("q1", "r1"), ForeachBatchOrigin("q1", "r2"), ForeachBatchOrigin("q2", "r3")
UNBOUND = ControlRecord(SINK, "", Status.DONE, 5, 5, "old", rows=9, done_rows=9)
BOUND = UNBOUND._replace(origin="q1", run="r1")
JOB = ForeachBatchOrigin()


@pytest.mark.parametrize(
    ("last", "number", "origin", "admission"),
    [
        (None, 0, FIRST, Admit),
        (BOUND, 6, FIRST, Admit),
        (BOUND, 6, AGAIN, Admit),
        (BOUND, 5, AGAIN, Skip),  # Spark repeats the last batch in the next run
        (BOUND, 5, FIRST, Refuse),  # the function writes twice
        (BOUND, 4, AGAIN, Refuse),  # the checkpoint was rewound
        (BOUND, 0, OTHER, Refuse),  # a new checkpoint
        (BOUND, 6, OTHER, Refuse),
        (UNBOUND, 6, OTHER, Admit),  # an older version's record is adopted
        (UNBOUND, 5, OTHER, Skip),
        (UNBOUND, 0, OTHER, Refuse),
        (BOUND, 6, JOB, Admit),  # a job beside, as before
        (BOUND, 5, JOB, Skip),
        (BOUND, 4, JOB, Skip),
        (BOUND, NO_BATCH, JOB, Admit),
        (UNBOUND, 5, ForeachBatchOrigin("q1", ""), Skip),  # the run is unknown
        (BOUND, 5, ForeachBatchOrigin("q1", ""), Skip),
    ],
)
def test_who_may_write_which_number(
    last: ControlRecord | None, number: int, origin: ForeachBatchOrigin, admission: type[Admission]
) -> None:
    assert isinstance(admit(last, SINK, "", number, origin), admission)


def test_a_refusal_names_the_remedy() -> None:
    twice, other = admit(BOUND, SINK, "", 5, FIRST), admit(BOUND, SINK, "", 0, OTHER)
    assert isinstance(twice, Refuse)
    assert isinstance(other, Refuse)
    assert "txnVersion 5 was written before in this run of the query" in twice.reason
    assert "Give each write of the function its own id" in twice.reason
    assert "belongs to the streaming query q1, in foreachBatch: this is query q2" in other.reason
    assert "pyproducer txn resolve orders --rebind" in other.reason


AT_7, AT_7_AGAIN, AT_6, AT_8 = (
    ForeachBatchOrigin("q1", run, at) for run, at in (("r1", 7), ("r2", 7), ("r2", 6), ("r2", 8))
)
TWO_NUMBERS = ControlRecord(SINK, "", Status.DONE, 15, 15, "old", rows=9, done_rows=9, origin="q1", run="r1")
TWO_NUMBERS = TWO_NUMBERS._replace(micro_batch=7, done_micro_batch=7, earlier=(Earlier(14, 3, 33),))
"""The function writes 14 and 15 in micro-batch 7."""
JOBS_NUMBER = TWO_NUMBERS._replace(micro_batch=None, done_micro_batch=None, run="", earlier=())
"""A job beside has written, or an older version."""
USUAL = BOUND._replace(micro_batch=5, done_micro_batch=5)
"""The number is that of the micro-batch."""


@pytest.mark.parametrize(
    ("last", "number", "origin", "admission", "expected"),
    [
        (TWO_NUMBERS, 14, AT_7_AGAIN, Skip, ""),  # Spark repeats micro-batch 7
        (TWO_NUMBERS, 15, AT_7_AGAIN, Skip, ""),
        (TWO_NUMBERS, 16, AT_7_AGAIN, Admit, ""),  # a third write, before which it was killed
        (TWO_NUMBERS, 16, AT_8, Admit, ""),
        (TWO_NUMBERS, 14, AT_7, Refuse, "txnVersion 14 comes after 15 in this run of the query"),
        (TWO_NUMBERS, 15, AT_7, Refuse, "txnVersion 15 was written before in this run"),
        (TWO_NUMBERS, 13, AT_7_AGAIN, Refuse, "13 was not written before 15 in micro-batch 7, which Spark repeats"),
        (TWO_NUMBERS, 13, ForeachBatchOrigin("q1", "", 7), Refuse, "txnVersion 13 was not written before 15"),
        (
            TWO_NUMBERS,
            14,
            AT_8,
            Refuse,
            "txnVersion 14 of micro-batch 8 is not higher than 15, which .* in micro-batch 7",
        ),
        (TWO_NUMBERS, 15, AT_8, Refuse, "txnVersion 15 of micro-batch 8 is not higher than 15"),  # a number for all
        (TWO_NUMBERS, 15, AT_8._replace(run="r1"), Refuse, "is not higher than 15"),
        (TWO_NUMBERS, 12, AT_6, Refuse, "has micro-batch 7 .* now micro-batch 6 .* checkpoint was rewound"),
        (TWO_NUMBERS, 15, AT_6, Refuse, "has micro-batch 7 .* now micro-batch 6 .* checkpoint was rewound"),
        (TWO_NUMBERS, 99, AT_6, Refuse, "has micro-batch 7 .* now micro-batch 6 .* checkpoint was rewound"),
        (TWO_NUMBERS, 14, ForeachBatchOrigin("q1", "", 7), Skip, ""),  # the run is unknown: the driver warns
        (TWO_NUMBERS, 14, ForeachBatchOrigin("q1", "", 8), Refuse, "is not higher than 15"),
        (TWO_NUMBERS, 14, ForeachBatchOrigin("q1", "r2"), Refuse, "has batch 15 of this query, and now batch 14"),
        (
            JOBS_NUMBER,
            14,
            AT_7,
            Refuse,
            "does not say in which micro-batch .* leave out the writes below 15 in micro-batch 7",
        ),
        (JOBS_NUMBER, 15, AT_7, Skip, ""),
        (JOBS_NUMBER, 16, AT_7, Admit, ""),
        (UNBOUND, 4, AT_6, Refuse, "txnVersion 4 of micro-batch 6 is lower than 5"),
        (UNBOUND, 4, ForeachBatchOrigin("q1", "", 6), Skip, ""),
        (USUAL, 5, ForeachBatchOrigin("q1", "r1", 5), Refuse, "txnVersion 5 was written before in this run"),
        (USUAL, 5, ForeachBatchOrigin("q1", "r2", 5), Skip, ""),
        (USUAL, 6, ForeachBatchOrigin("q1", "r2", 6), Admit, ""),
        (
            USUAL,
            4,
            ForeachBatchOrigin("q1", "r2", 4),
            Refuse,
            "has micro-batch 5 .* now micro-batch 4 .* checkpoint was rewound",
        ),
        (BOUND, 4, ForeachBatchOrigin("q1", "r2", 4), Refuse, "has batch 5 .* now batch 4 .* checkpoint was rewound"),
        (USUAL, 4, JOB, Skip, ""),
    ],
)
def test_numbers_of_a_function_rise_and_come_again_with_the_last_micro_batch_alone(
    last: ControlRecord, number: int, origin: ForeachBatchOrigin, admission: type[Admission], expected: str
) -> None:
    found = admit(last, SINK, "", number, origin)
    assert isinstance(found, admission)
    assert not expected or re.search(expected, found.reason)  # type: ignore[union-attr]


def test_the_record_has_the_micro_batch_of_the_last_number_alone() -> None:
    """Records that were written before the release of version 3 do not, and are read."""
    for origin, at in ((AT_8, 8), (JOB, None)):
        asked, _ = ended(commit([message(16, origin, TWO_NUMBERS)], 16), [Opened(()), ControlWritten(HELD)])
        record = asked[-1].record  # type: ignore[union-attr]
        assert (record.micro_batch, record.done_micro_batch) == (at, at)
        assert record.earlier == ()
    [(key, value)] = encode(TWO_NUMBERS, writer=(7, 1))
    assert decode(SINK, value, {key: value}) == TWO_NUMBERS
    fields = json.loads(value)
    later = {"micro_batch", "done_micro_batch", "earlier"}
    value = json.dumps({name: fields[name] for name in fields.keys() - later}).encode()
    assert decode(SINK, value, {key: value}) == JOBS_NUMBER._replace(run="r1")


def test_a_write_that_is_decided_and_void_leaves_the_micro_batch_of_the_last_number() -> None:
    reported = prepared(task(1), 16, handle(TWO_NUMBERS))._replace(query="", origin=AT_8)
    void: list[Result] = [
        TasksEnded((EndRefused(90),)),
        LogOutcomes((TransactionOutcome.ABORTED,)),
        ControlWritten(HELD),
    ]
    asked, _ = ended(commit([reported], 16), [Opened(()), Voted(), ControlWritten(HELD), *void])
    record = asked[-1].record  # type: ignore[union-attr]
    assert (record.status, record.micro_batch, record.done_micro_batch) == (Status.VOID, 8, 7)
    assert record.earlier == TWO_NUMBERS.earlier
    assert isinstance(admit(record, SINK, "", 14, ForeachBatchOrigin("q1", "r3", 7)), Skip)


def test_a_lower_number_of_a_repeated_micro_batch_is_not_noted() -> None:
    """The last one is: were the lower one, the last one would count as a second write of this run."""
    assert commit([Skipped(handle(TWO_NUMBERS), "", 14, 3, AT_7_AGAIN, 33)], 14) == AlreadyDone(14)
    asked, _ = ended(commit([message(15, AT_7_AGAIN, TWO_NUMBERS)], 15), [ControlWritten(HELD)])
    assert asked[-1].record == TWO_NUMBERS._replace(run="r2")  # type: ignore[union-attr]
    asked, _ = ended(commit([message(15, AT_7, JOBS_NUMBER)], 15), [ControlWritten(HELD)])
    assert asked[-1].record == JOBS_NUMBER._replace(run="r1", done_micro_batch=7)  # type: ignore[union-attr]


def test_numbers_of_one_micro_batch_are_kept_with_their_rows() -> None:
    """A function may write very many: then the last of them are, and lower ones are taken for written."""
    last = TWO_NUMBERS._replace(done_content=44)
    for number in range(16, 16 + MAX_EARLIER):
        asked, _ = ended(commit([message(number, AT_7, last, 55)], number), [Opened(()), ControlWritten(HELD)])
        last = asked[-1].record  # type: ignore[union-attr]
        if number == 16:
            assert last.earlier == (Earlier(14, 3, 33), Earlier(15, 9, 44))
    assert last.earlier == (Earlier(15, 9, 44), *(Earlier(16 + at, 9, 55) for at in range(MAX_EARLIER - 1)))
    assert isinstance(admit(last, SINK, "", 15, AT_7_AGAIN), Skip)
    assert isinstance(admit(last, SINK, "", 14, AT_7_AGAIN), Skip)
    assert commit([Skipped(handle(last), "", 14, 99, AT_7_AGAIN, 1)], 14) == AlreadyDone(14)
    written = dict(encode(last, writer=(7, 1)))
    assert decode(SINK, written[SINK.encode()], written) == last
    asked, _ = ended(commit([message(99, AT_8, last)], 99), [Opened(()), ControlWritten(HELD)])
    assert asked[-1].record.earlier == ()  # type: ignore[union-attr]


@pytest.mark.parametrize("times", [1, 2])
def test_a_decided_write_that_is_carried_out_keeps_the_numbers_before_it(times: int) -> None:
    """`done` may be said again of a write that hung."""
    record = TWO_NUMBERS._replace(batch=16, status=Status.COMMITTING, rows=2, content=7)
    for _ in range(times):
        record = with_final_status(record, Status.DONE)
    assert (record.last_done, record.earlier) == (16, (Earlier(14, 3, 33), Earlier(15, 9, None)))


@pytest.mark.parametrize(
    ("rows", "content", "expected"),
    [(2, 33, "was committed with 3 rows, and now has 2"), (3, 34, "with 3 rows, and now has as many, but others")],
)
def test_other_rows_under_a_lower_number_are_refused(rows: int, content: int, expected: str) -> None:
    """A checkpoint that lacks one micro-batch may bring a late file whose rows all go into the first write."""
    outcome = commit([Skipped(handle(TWO_NUMBERS), "", 14, rows, AT_7_AGAIN, content)], 14)
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.REFUSED
    assert "txnVersion 14 was" in outcome.text
    assert expected in outcome.text


def message(
    number: int, origin: ForeachBatchOrigin, last: ControlRecord | None, content: int | None = None
) -> TaskOutcome:
    of = handle(last)
    if last is not None and last.last_done == number:
        return Skipped(of, "", number, 9, origin, content)
    return InlineRows(of, "", number, (), 9, origin, content)


def test_a_write_binds_the_sink_to_its_query_and_run() -> None:
    for last in (None, UNBOUND, BOUND):
        asked, _ = ended(commit([message(6, AGAIN, last, 77)], 6), [Opened(()), ControlWritten(HELD)])
        record = asked[-1].record  # type: ignore[union-attr]
        assert (record.origin, record.run, record.done_content) == ("q1", "r2", 77)
        [(key, value)] = encode(record, writer=(7, 1))
        assert decode(SINK, value, {key: value}) == record


def test_a_job_leaves_the_sink_bound() -> None:
    asked, _ = ended(commit([message(6, JOB, BOUND)], 6), [Opened(()), ControlWritten(HELD)])
    record = asked[-1].record  # type: ignore[union-attr]
    assert (record.origin, record.run) == ("q1", "")


ENDS: list[tuple[WriteResult, type | FailureKind]] = [
    (ControlWritten(NEWER), AlreadyDone),
    (MarkersLost((TopicPartition("c", 0),)), FailureKind.HUNG),
    (FencedOff(), FailureKind.FENCED),
    (Indeterminate(), FailureKind.NOT_WRITTEN),
    (OlderTransactionHangs((TopicPartition("c", 0),)), FailureKind.NOT_WRITTEN),
]


@pytest.mark.parametrize(("answer", "end"), ENDS)
def test_a_run_that_finds_a_number_done_is_noted_so_its_second_write_is_not_taken_for_that(
    answer: WriteResult, end: type | FailureKind
) -> None:
    asked, outcome = ended(commit([message(5, AGAIN, BOUND)], 5), [answer])
    noted = asked[-1].record  # type: ignore[union-attr]
    assert noted == BOUND._replace(run="r2")
    assert isinstance(admit(noted, SINK, "", 5, AGAIN), Refuse)
    assert outcome.kind is end if isinstance(outcome, Failed) else isinstance(outcome, end)  # type: ignore[arg-type]


def test_rows_of_another_content_are_refused_though_they_are_as_many() -> None:
    last = BOUND._replace(done_content=100)
    one, two = (message(5, AGAIN, last, content)._replace(rows=rows) for content, rows in ((40, 4), (60, 5)))
    assert ended(commit([two, one], 5), [ControlWritten(HELD)])[1] == AlreadyDone(5), "tasks may share them otherwise"
    other = two._replace(content=61)
    outcome = commit([one, other], 5)
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.REFUSED
    assert "was committed with 9 rows, and now has as many, but others" in outcome.text
    for unknown in (two._replace(content=None), None):
        reported = [one, unknown] if unknown else [one._replace(content=None, rows=9)]
        assert ended(commit(reported, 5), [ControlWritten(HELD)])[1] == AlreadyDone(5)


def test_two_writes_of_a_function_with_one_id_are_never_silent(world: World) -> None:
    in_foreach_batch(world, 0, FIRST, "a")
    with pytest.raises(ValueError, match="written before in this run"):
        in_foreach_batch(world, 0, FIRST, "b")
    in_foreach_batch(world, 0, AGAIN, "a")  # the query is started again
    with pytest.raises(ValueError, match="written before in this run"):
        in_foreach_batch(world, 0, AGAIN, "b")
    in_foreach_batch(world, 1, AGAIN, "c")
    assert world.rows() == ["a", "c"]


def test_a_person_gives_the_id_to_another_query(world: World) -> None:
    in_foreach_batch(world, 0, FIRST, "a")
    in_foreach_batch(world, 1, FIRST, "b")
    with pytest.raises(ValueError, match="--rebind"):
        in_foreach_batch(world, 0, OTHER, "c")
    driver.close_all()
    assert world.txn("resolve", SINK, "--rebind", "--yes") == 0
    in_foreach_batch(world, 0, OTHER, "c")
    with pytest.raises(ValueError, match="belongs to the streaming query q2"):
        in_foreach_batch(world, 1, AGAIN, "d")
    assert world.rows() == ["a", "b", "c"]


@pytest.mark.parametrize("killed_after", range(4))
def test_a_function_with_three_numbers_is_killed_after_any_of_them_and_started_again_twice(
    world: World, killed_after: int
) -> None:
    life(world, "r1", 0, 0, 1, 2)
    life(world, "r1", 1, *(3, 4, 5)[:killed_after])
    life(world, "r2", 1, *(3, 4, 5)[:killed_after])
    life(world, "r3", 1, 3, 4, 5)
    life(world, "r4", 1, 3, 4, 5)  # killed before Spark has noted it
    life(world, "r4", 2, 6, 7)
    assert world.rows() == ["0.0", "0.1", "0.2", "1.3", "1.4", "1.5", "2.6", "2.7"]
    with pytest.raises(ValueError, match="has micro-batch 2 of this query, and now micro-batch 1"):
        life(world, "r5", 1, 3)


@pytest.mark.parametrize(
    ("numbers", "expected"), [((1, 0), "txnVersion 0 comes after 1"), ((0, 0), "txnVersion 0 was written before")]
)
def test_numbers_that_do_not_rise_are_refused_in_every_run(
    world: World, numbers: tuple[int, ...], expected: str
) -> None:
    for run in ("r1", "r2", "r3"):
        with pytest.raises(ValueError, match=f"{expected}.* in this run of the query"):
            life(world, run, 0, *numbers)
    assert world.rows() == [f"0.{numbers[0]}"]


def test_a_number_that_stays_the_same_is_refused_in_the_next_micro_batch(world: World) -> None:
    life(world, "r1", 0, 5)
    for run in ("r1", "r2"):
        with pytest.raises(ValueError, match="txnVersion 5 of micro-batch 1 is not higher than 5"):
            life(world, run, 1, 5)
