"""A task's decision by the sink's control record: write, write nothing, or refuse."""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import ProducerIdAndEpoch, TransactionVersion
from spark_producer.config import SinkOptions
from spark_producer.datasource.write.worker.batch_assignment import BatchAssignment, SparkTaskInfo, check_admission
from spark_producer.errors import ConfigError, ExactlyOnceError
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status
from spark_producer.exactly_once.protocol.task_messages import WriteHandle


def handle(query: str | None = None, last_done: int = NO_BATCH, status: Status = Status.DONE) -> WriteHandle:
    last = ControlRecord("orders", query, status, max(last_done, 0), last_done, "ab" * 16)
    return WriteHandle("orders", "cd" * 16, ProducerIdAndEpoch(1, 5), TransactionVersion.IMPLICIT, last)


NEW = handle()._replace(last=None)
STREAM = SinkOptions(exactly_once_id="orders")
BATCH_3 = SinkOptions(exactly_once_id="orders", txn_version=3)


def micro_batch(number: int | None, query: str | None = "q1") -> SparkTaskInfo:
    return SparkTaskInfo(query, number, True)


@pytest.mark.parametrize(
    ("given", "number", "wanted"),
    [
        (NEW, 0, BatchAssignment("q1", 0)),
        (NEW, 7, BatchAssignment("q1", 7)),  # the option was added to a query that has run before
        (
            handle(None, NO_BATCH, Status.INTENT),
            0,
            BatchAssignment("q1", 0),
        ),  # a driver died before anything was written
        (handle("q1", 3), 4, BatchAssignment("q1", 4)),
        (handle("q1", 3, Status.VOID), 4, BatchAssignment("q1", 4)),
        (
            handle("q1", 3),
            3,
            BatchAssignment("q1", 3, done=True),
        ),  # Spark's commit log was lost, or the driver died before it
        (handle("q1", 3), 9, BatchAssignment("q1", 9)),  # in between the option was not set
    ],
)
def test_a_micro_batch_is_written_unless_it_is_the_last_one(
    given: WriteHandle, number: int, wanted: BatchAssignment
) -> None:
    assert check_admission(given, STREAM, micro_batch(number)) == wanted


def test_a_rewound_checkpoint_is_refused() -> None:
    wanted = (
        r"has batch 3 of this query, and now batch 2 .*checkpoint was rewound.* new exactlyOnceId .*Nothing was written"
    )
    with pytest.raises(ExactlyOnceError, match=wanted):
        check_admission(handle("q1", 3), STREAM, micro_batch(2))


@pytest.mark.parametrize(
    ("query", "named"), [("q0", "the streaming query q0: this is query q1"), ("", "batch writes: ")]
)
def test_an_id_is_one_querys(query: str, named: str) -> None:
    with pytest.raises(ExactlyOnceError, match=f"'orders' belongs to {named}.* own exactlyOnceId"):
        check_admission(handle(query, 3), STREAM, micro_batch(4))


@pytest.mark.parametrize("where", [micro_batch(3, None), micro_batch(3, ""), micro_batch(None)])
def test_a_spark_that_does_not_say_the_batch_is_refused(where: SparkTaskInfo) -> None:
    with pytest.raises(ExactlyOnceError, match="does not give tasks the query and the number"):
        check_admission(NEW, STREAM, where)


BATCH = SparkTaskInfo(None, None, False)
IN_FOREACH_BATCH = SparkTaskInfo("q1", 5, False)


@pytest.mark.parametrize("where", [BATCH, IN_FOREACH_BATCH])
@pytest.mark.parametrize(
    ("given", "done"), [(NEW, False), (handle("", 2), False), (handle("", 3), True), (handle("", 9), True)]
)
def test_a_version_is_written_once(where: SparkTaskInfo, given: WriteHandle, done: bool) -> None:
    assert check_admission(given, BATCH_3, where) == BatchAssignment("", 3, done)


@pytest.mark.parametrize("given", [NEW, handle("", NO_BATCH), handle("", 6)])
def test_a_batch_write_without_a_version_is_written_whenever_it_is_run(given: WriteHandle) -> None:
    assert check_admission(given, STREAM, BATCH) == BatchAssignment("", NO_BATCH)


def test_a_write_in_foreach_batch_needs_a_number() -> None:
    with pytest.raises(ConfigError, match=r"in foreachBatch needs txnVersion, .* batch_id\)"):
        check_admission(NEW, STREAM, IN_FOREACH_BATCH)


@pytest.mark.parametrize("sink", [BATCH_3, STREAM])
def test_batch_writes_do_not_share_an_id_with_a_query(sink: SinkOptions) -> None:
    """A number that one kind has counted up to would make writes of the other one look done."""
    with pytest.raises(
        ExactlyOnceError, match=r"belongs to the streaming query q0: give .* each their own exactlyOnceId"
    ):
        check_admission(handle("q0", 1), sink, BATCH)
