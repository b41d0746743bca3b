"""To whom an id is bound that is written in `foreachBatch`, and what a second write of one number is."""

from __future__ import annotations

import pytest

from spark_producer.exactly_once import driver
from spark_producer.exactly_once.admission import Admission, Refuse, Run, Skip, admit
from spark_producer.exactly_once.asks import FencedOff, Glued, Hung, Opened, Unsure, WriteAnswer, Written
from spark_producer.exactly_once.commit import commit
from spark_producer.exactly_once.control_record import NO_BATCH, ControlRecord, Status
from spark_producer.exactly_once.messages import Inline, Origin, Skipped, TaskOutcome
from spark_producer.exactly_once.outcomes import AlreadyDone, Failed, Failure
from spark_producer.exactly_once.record_json import decode, encode
from tests.support.filled_tasks import batch
from tests.unit.exactly_once.lossy_world import SINK, ZERO, World
from tests.unit.exactly_once.script import HELD, NEWER, ended, ticket

FIRST, AGAIN, OTHER = Origin("q1", "r1"), Origin("q1", "r2"), Origin("q2", "r3")
UNBOUND = ControlRecord(SINK, "", Status.DONE, 5, 5, "old", rows=9, done_rows=9)
BOUND = UNBOUND._replace(origin="q1", run="r1")
JOB = Origin()


@pytest.mark.parametrize(
    ("last", "number", "origin", "admission"),
    [
        (None, 0, FIRST, Run),
        (BOUND, 6, FIRST, Run),
        (BOUND, 6, AGAIN, Run),
        (BOUND, 5, AGAIN, Skip),  # Spark repeats the last batch in the next run
        (BOUND, 5, FIRST, Refuse),  # the function writes twice
        (BOUND, 4, AGAIN, Refuse),  # the checkpoint was rewound
        (BOUND, 0, OTHER, Refuse),  # a new checkpoint
        (BOUND, 6, OTHER, Refuse),
        (UNBOUND, 6, OTHER, Run),  # an older version's record is adopted
        (UNBOUND, 5, OTHER, Skip),
        (UNBOUND, 0, OTHER, Refuse),
        (BOUND, 6, JOB, Run),  # a job beside, as before
        (BOUND, 5, JOB, Skip),
        (BOUND, 4, JOB, Skip),
        (BOUND, NO_BATCH, JOB, Run),
        (UNBOUND, 5, Origin("q1", ""), Skip),  # Spark does not tell the run
        (BOUND, 5, Origin("q1", ""), Skip),
    ],
)
def test_who_may_write_which_number(
    last: ControlRecord | None, number: int, origin: Origin, admission: type[Admission]
) -> None:
    assert isinstance(admit(last, SINK, "", number, origin), admission)


def test_a_refusal_names_the_remedy() -> None:
    twice, other = admit(BOUND, SINK, "", 5, FIRST), admit(BOUND, SINK, "", 0, OTHER)
    assert isinstance(twice, Refuse)
    assert isinstance(other, Refuse)
    assert "txnVersion 5 was written before in this run of the query" in twice.reason
    assert "Give each write of the function an id of its own" in twice.reason
    assert "belongs to the streaming query q1, in foreachBatch: this is query q2" in other.reason
    assert "pyproducer txn resolve orders --rebind" in other.reason


def message(number: int, origin: Origin, last: ControlRecord | None, content: int | None = None) -> TaskOutcome:
    of = ticket(last)
    if last is not None and last.last_done == number:
        return Skipped(of, "", number, 9, origin, content)
    return Inline(of, "", number, (), 9, origin, content)


def test_a_write_binds_the_sink_to_its_query_and_run() -> None:
    for last in (None, UNBOUND, BOUND):
        asked, _ = ended(commit([message(6, AGAIN, last, 77)], 6), [Opened(()), Written(HELD)])
        record = asked[-1].record  # type: ignore[union-attr]
        assert (record.origin, record.run, record.done_content) == ("q1", "r2", 77)
        [(key, value)] = encode(record, writer=(7, 1))
        assert decode(SINK, value, {key: value}) == record


def test_a_job_leaves_the_sink_bound() -> None:
    asked, _ = ended(commit([message(6, JOB, BOUND)], 6), [Opened(()), Written(HELD)])
    record = asked[-1].record  # type: ignore[union-attr]
    assert (record.origin, record.run) == ("q1", "")


ENDS: list[tuple[WriteAnswer, type | Failure]] = [
    (Written(NEWER), AlreadyDone),
    (Hung((("c", 0),)), Failure.HUNG),
    (FencedOff(), Failure.FENCED),
    (Unsure(), Failure.NOT_WRITTEN),
    (Glued((("c", 0),)), Failure.NOT_WRITTEN),
]


@pytest.mark.parametrize(("answer", "end"), ENDS)
def test_a_run_that_finds_a_number_done_is_noted_so_its_second_write_is_not_taken_for_that(
    answer: WriteAnswer, end: type | Failure
) -> None:
    asked, outcome = ended(commit([message(5, AGAIN, BOUND)], 5), [answer])
    noted = asked[-1].record  # type: ignore[union-attr]
    assert noted == BOUND._replace(run="r2")
    assert isinstance(admit(noted, SINK, "", 5, AGAIN), Refuse)
    assert outcome.kind is end if isinstance(outcome, Failed) else isinstance(outcome, end)  # type: ignore[arg-type]


def test_rows_of_another_content_are_refused_though_they_are_as_many() -> None:
    last = BOUND._replace(done_content=100)
    one, two = (message(5, AGAIN, last, content)._replace(rows=rows) for content, rows in ((40, 4), (60, 5)))
    assert ended(commit([two, one], 5), [Written(HELD)])[1] == AlreadyDone(5), "tasks may share them otherwise"
    other = two._replace(content=61)
    outcome = commit([one, other], 5)
    assert isinstance(outcome, Failed)
    assert outcome.kind is Failure.REFUSED
    assert "was committed with 9 rows, and now has as many, but others" in outcome.text
    for unknown in (two._replace(content=None), None):
        told = [one, unknown] if unknown else [one._replace(content=None, rows=9)]
        assert ended(commit(told, 5), [Written(HELD)])[1] == AlreadyDone(5)


def in_foreach_batch(world: World, number: int, origin: Origin, row: str) -> None:
    """A write in foreachBatch, as its tasks and the driver make it."""
    world.ticket = driver.begin(world.sink)
    admission = admit(world.ticket.last, SINK, "", number, origin)
    if isinstance(admission, Refuse):
        raise ValueError(admission.reason)
    encoded = batch(*ZERO, row)
    told: TaskOutcome = Inline(world.ticket, "", number, (encoded,), 1, origin)
    if isinstance(admission, Skip):
        told = Skipped(world.ticket, "", number, 1, origin)
    driver.commit(world.sink, [told], number)


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
