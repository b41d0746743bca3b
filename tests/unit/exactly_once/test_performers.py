"""Execution of commands: requests that are sent again and those that never are, their order, and the meaning of responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_producer.common.cluster import ProducerIdAndEpoch, Span, TopicPartition, TransactionVersion
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, KafkaTimeout, PyProducerError, UnsupportedVersion
from spark_producer.exactly_once.cluster import end_transactions, fencing, precommit_check
from spark_producer.exactly_once.cluster.control_write import ControlWrite
from spark_producer.exactly_once.protocol.commands import (
    ControlIdHolder,
    ControlWritten,
    Ended,
    EndRefused,
    FencedOff,
    Indeterminate,
    OlderTransactionHangs,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status, TaskTransaction
from spark_producer.exactly_once.protocol.task_messages import EncodedBatch
from spark_producer.protocol import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    PRODUCE,
    messages,
)
from spark_producer.record.batch_v2 import read_header
from spark_producer.record.small_batch import encode_few
from tests.fakes.scripted_client import LOST, NOW_MS, TIMEOUT_S, ScriptedClient, brokers_of

ROWS = TopicPartition("rows", 0)
CONTROL = TopicPartition("commits", 0)
OURS = ProducerIdAndEpoch(7, 3)
TASK = TaskTransaction("pyproducer.orders.00.0", 8, 1, TransactionVersion.EXPLICIT, (Span("rows", 0, 5, 6, 2),))
RECORD = ControlRecord("orders", "q", Status.DONE, 0, 0, "t", (), ())


@pytest.fixture
def client() -> ScriptedClient:
    made = ScriptedClient()
    made.leaders = {ROWS: 2, CONTROL: 1}
    made.scripts[DESCRIBE_PRODUCERS.name] = producing({})
    made.scripts[DESCRIBE_TRANSACTIONS.name] = described()
    made.answers(LIST_TRANSACTIONS, UnsupportedVersion("before Kafka 3.8"))
    return made


def ended(code: int = 0, producer_id: int = -1, epoch: int = -1) -> messages.EndTxnResponse:
    return messages.EndTxnResponse(0, code, producer_id, epoch)


def described(state: str = "Empty", **more: Any) -> Callable[[Any], Any]:
    """Every id has this transaction."""

    def answer(body: messages.DescribeTransactionsRequest) -> messages.DescribeTransactionsResponse:
        row = messages.DescribedTransaction(transaction_state=state, **more)
        return messages.DescribeTransactionsResponse(
            0, tuple(row._replace(transactional_id=each) for each in body.transactional_ids)
        )

    return answer


def producing(
    starts: dict[TopicPartition, int], producer_id: int = OURS.producer_id, **more: int
) -> Callable[[Any], Any]:
    """Our producer has open transactions that begin there."""

    def answer(body: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
        topics = tuple(
            messages.DescribeProducersTopicResult(
                topic.name,
                tuple(
                    messages.DescribeProducersPartition(
                        each,
                        active_producers=(
                            messages.ActiveProducer(
                                producer_id,
                                OURS.epoch,
                                current_txn_start_offset=starts.get(TopicPartition(topic.name, each), -1),
                                **more,
                            ),
                        ),
                    )
                    for each in topic.partition_indexes
                ),
            )
            for topic in body.topics
        )
        return messages.DescribeProducersResponse(0, topics)

    return answer


class Log:
    """Takes batches of every partition from offset 100 on; `codes` are what it answers at first instead."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.taken: list[tuple[str, int, int]] = []
        self.refused: list[tuple[str, int, int]] = []
        self.starts: dict[TopicPartition, int] = {}
        """where the transaction begins in each partition"""
        self._end = 100

    def __call__(self, body: messages.ProduceRequest) -> messages.ProduceResponse:
        topics = []
        for topic in body.topic_data:
            rows = []
            for part in topic.partition_data:
                assert part.records is not None
                header = read_header(bytes(part.records))  # type: ignore[arg-type]
                assert header.is_transactional
                assert (header.producer_id, header.producer_epoch) == OURS
                code = self.codes.pop(0) if self.codes else 0
                (self.refused if code else self.taken).append((topic.name, part.index, header.base_sequence))
                rows.append(messages.ProducePartitionResponse(part.index, code, -1 if code else self._end))
                if not code:
                    self.starts.setdefault(TopicPartition(topic.name, part.index), self._end)
                self._end += 0 if code else header.records_count
            topics.append(messages.ProduceTopicResponse(topic.name, partition_responses=tuple(rows)))
        return messages.ProduceResponse(tuple(topics))


def batches(tp: TopicPartition, count: int) -> list[EncodedBatch]:
    """Batches of two records."""
    return [EncodedBatch(*tp, 2, bytes(encode_few([(b"k", b"v")] * 2, 1))) for _ in range(count)]


def added(**codes: int) -> messages.AddPartitionsToTxnResponse:
    """Return the coordinator's error for partition 0 of each topic."""
    topics = tuple(
        messages.AddPartitionsToTxnTopicResult(topic, (messages.AddPartitionsToTxnPartitionResult(0, code),))
        for topic, code in codes.items()
    )
    return messages.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def write(client: ScriptedClient, level: int = 1, *, reported: bool = False, **more: int) -> Any:
    """Leaders say that the transaction is open as the log has it, unless a script says otherwise."""
    client.scripts.setdefault(ADD_PARTITIONS_TO_TXN.name, lambda _: added(rows=0, commits=0))
    log = client.scripts.get(PRODUCE.name)
    if isinstance(log, Log) and not reported:
        before = len(client.bodies(END_TXN))

        def producers(body: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
            is_ended = len(client.bodies(END_TXN)) > before
            answer: messages.DescribeProducersResponse = producing({} if is_ended else log.starts, **more)(body)
            return answer

        client.scripts[DESCRIBE_PRODUCERS.name] = producers
    command = WriteControl(OURS, RECORD._replace(inline=(ROWS,)), inline=True)
    written = ControlWrite(brokers_of(client), CONTROL[0], TransactionVersion(level), command, client.deadline())
    return written.run({ROWS: batches(ROWS, 1)}, 4096)


@pytest.mark.parametrize(
    "code", [Code.CONCURRENT_TRANSACTIONS, Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_coordinator_that_is_not_ready_is_asked_again(client: ScriptedClient, code: Code) -> None:
    client.answers(END_TXN, ended(code), ended(code), ended())
    assert end_transactions.end_tasks(brokers_of(client), [TASK], True, client.deadline()) == (Ended(),)
    assert client.bodies(END_TXN) == [messages.EndTxnRequest(*TASK[:3], True)] * 3
    looked = len(client.bodies(FIND_COORDINATOR))
    assert looked == (1 if code is Code.CONCURRENT_TRANSACTIONS else 3)


def test_the_end_of_a_tasks_transaction_is_sent_again_if_no_answer_came(client: ScriptedClient) -> None:
    client.answers(END_TXN, LOST, LOST, ended())
    assert end_transactions.end_tasks(brokers_of(client), [TASK], True, client.deadline()) == (Ended(),)
    assert len(client.bodies(END_TXN)) == 3
    client.answers(END_TXN, LOST)
    with pytest.raises(KafkaTimeout, match=TASK.transactional_id):
        end_transactions.end_tasks(brokers_of(client), [TASK], True, client.deadline())


@pytest.mark.parametrize(
    "code",
    [
        Code.INVALID_PRODUCER_EPOCH,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.PRODUCER_FENCED,
        Code.INVALID_TXN_STATE,
    ],
)
def test_the_codes_that_say_that_a_transaction_is_over_are_refusals(client: ScriptedClient, code: Code) -> None:
    client.answers(END_TXN, ended(code))
    assert end_transactions.end_tasks(brokers_of(client), [TASK], True, client.deadline()) == (EndRefused(code),)


def test_a_transaction_that_stays_in_between_names_what_holds_it_up(client: ScriptedClient) -> None:
    client.answers(END_TXN, ended(Code.CONCURRENT_TRANSACTIONS))
    topics = (messages.DescribedTransactionTopic("rows", (0,)),)
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("PrepareCommit", topics=topics)
    with pytest.raises(KafkaTimeout, match=r"PrepareCommit, and still has to write markers to rows-0"):
        end_transactions.end_tasks(brokers_of(client), [TASK], True, client.deadline())


def test_nothing_is_ended_or_fenced_while_a_partition_has_no_leader(client: ScriptedClient) -> None:
    client.leaders[ROWS] = -1
    with pytest.raises(KafkaTimeout, match=r"live leader of rows-0"):
        end_transactions.end_tasks(brokers_of(client), [TASK], True, client.deadline())
    topics = (messages.DescribedTransactionTopic("rows", (0,)),)
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing", topics=topics)
    with pytest.raises(KafkaTimeout, match=r"live leader of rows-0"):
        fencing.fence(brokers_of(client), CONTROL[0], client.deadline())
    assert client.bodies(END_TXN) == client.bodies(INIT_PRODUCER_ID) == []


def test_the_fence_is_asked_for_again_and_an_unfinished_transaction_is_named(client: ScriptedClient) -> None:
    init = messages.InitProducerIdResponse
    client.answers(INIT_PRODUCER_ID, LOST, init(0, Code.CONCURRENT_TRANSACTIONS), init(0, 0, 9, 4))
    assert fencing.fence(brokers_of(client), CONTROL[0], client.deadline()).fencing == ProducerIdAndEpoch(9, 4)
    client.answers(INIT_PRODUCER_ID, init(0, Code.CONCURRENT_TRANSACTIONS))
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("PrepareAbort")
    with pytest.raises(KafkaTimeout, match=r"earlier driver is still being ended; it is in state PrepareAbort"):
        fencing.fence(brokers_of(client), CONTROL[0], client.deadline())
    client.answers(INIT_PRODUCER_ID, init(0, Code.INVALID_TRANSACTION_TIMEOUT))
    with pytest.raises(BrokerError, match=r"transaction\.max\.timeout\.ms"):
        fencing.fence(brokers_of(client), CONTROL[0], client.deadline())


def test_the_holder_is_returned_once_no_transaction_is_being_completed(client: ScriptedClient) -> None:
    states = iter(["PrepareCommit", "PrepareAbort", "CompleteAbort"])
    client.scripts[DESCRIBE_TRANSACTIONS.name] = lambda body: described(next(states), producer_id=4, producer_epoch=2)(
        body
    )
    assert fencing.holder(brokers_of(client), CONTROL[0], client.deadline()) == ControlIdHolder(
        ProducerIdAndEpoch(4, 2)
    )
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described(error_code=Code.TRANSACTIONAL_ID_NOT_FOUND)
    assert fencing.holder(brokers_of(client), CONTROL[0], client.deadline()) == ControlIdHolder(None)


def test_the_commit_point_is_never_sent_again_if_no_answer_came(client: ScriptedClient) -> None:
    client.scripts[PRODUCE.name] = Log()
    client.answers(END_TXN, LOST, ended())
    assert write(client) == Indeterminate(str(LOST))
    assert len(client.bodies(END_TXN)) == 1
    client.answers(END_TXN, ended(Code.CONCURRENT_TRANSACTIONS), ended())
    client.scripts[PRODUCE.name] = Log()
    assert write(client) == ControlWritten(OURS)
    client.answers(END_TXN, ended(Code.INVALID_TXN_STATE))
    client.scripts[PRODUCE.name] = Log()
    assert isinstance(write(client), Indeterminate)
    client.answers(END_TXN, ended(Code.PRODUCER_FENCED))
    client.scripts[PRODUCE.name] = Log()
    assert write(client) == FencedOff()


@pytest.mark.parametrize("later", [Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR, Code.CONCURRENT_TRANSACTIONS])
def test_a_newer_holder_after_a_postponed_commit_proves_nothing(client: ScriptedClient, later: Code) -> None:
    """The coordinator may have had it in its log when it said so."""
    client.scripts[PRODUCE.name] = Log()
    client.answers(END_TXN, ended(later), ended(Code.PRODUCER_FENCED))
    assert isinstance(write(client), Indeterminate)


def test_version_2_takes_its_next_epoch_from_the_response_and_adds_no_partitions(client: ScriptedClient) -> None:
    client.scripts[PRODUCE.name] = Log()
    client.answers(END_TXN, ended(0, 7, 4))
    assert write(client, level=2) == ControlWritten(ProducerIdAndEpoch(7, 4))
    assert client.bodies(ADD_PARTITIONS_TO_TXN) == []


def test_an_older_transaction_before_ours_aborts_it(client: ScriptedClient) -> None:
    client.scripts[PRODUCE.name] = Log()
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({ROWS: 99, CONTROL: 102})
    client.answers(END_TXN, ended())
    assert write(client, reported=True) == OlderTransactionHangs((ROWS,))
    assert [body.committed for body in client.bodies(END_TXN)] == [False]


@pytest.mark.parametrize(
    "starts", [{}, {ROWS: 100}, {CONTROL: 102}, {ROWS: 103, CONTROL: 102}, {ROWS: 100, CONTROL: 0x7FFF}]
)
def test_a_write_whose_rows_are_gone_is_aborted(client: ScriptedClient, starts: dict[TopicPartition, int]) -> None:
    """A topic was deleted and created again, or a leader came back without its data: the commit would find nothing there."""
    client.scripts[PRODUCE.name] = Log()
    client.scripts[DESCRIBE_PRODUCERS.name] = producing(starts)
    client.answers(END_TXN, ended())
    answer = write(client, reported=True)
    assert isinstance(answer, Indeterminate)
    assert "acknowledged rows are no longer in" in answer.reason
    assert [body.committed for body in client.bodies(END_TXN)] == [False]


def test_explicitly_the_sequence_of_the_control_partition_goes_on_within_an_epoch(client: ScriptedClient) -> None:
    """A batch that repeated a sequence would be acknowledged and not written."""
    client.scripts[PRODUCE.name] = log = Log()
    client.answers(END_TXN, ended())
    assert write(client, last_sequence=4) == ControlWritten(OURS)
    assert sorted(log.taken) == [("commits", 0, 5), ("rows", 0, 0)]


def test_a_topic_that_the_coordinator_does_not_know_yet_is_added_in_a_while(client: ScriptedClient) -> None:
    client.scripts[PRODUCE.name] = Log()
    client.answers(END_TXN, ended())
    unknown = added(rows=Code.OPERATION_NOT_ATTEMPTED, commits=Code.UNKNOWN_TOPIC_OR_PARTITION)
    client.answers(ADD_PARTITIONS_TO_TXN, unknown, unknown, added(rows=0, commits=0))
    assert write(client) == ControlWritten(OURS)
    assert len(client.bodies(ADD_PARTITIONS_TO_TXN)) == 3


def test_a_topic_that_stays_unknown_or_is_forbidden_is_an_error(client: ScriptedClient) -> None:
    client.answers(END_TXN, ended())
    client.answers(ADD_PARTITIONS_TO_TXN, added(rows=Code.UNKNOWN_TOPIC_OR_PARTITION, commits=0))
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        write(client)
    assert 0 < client.clock() < TIMEOUT_S, "as long as a leader is looked for, and no longer"
    client.sent.clear()
    forbidden = added(rows=Code.UNKNOWN_TOPIC_OR_PARTITION, commits=Code.TOPIC_AUTHORIZATION_FAILED)
    client.answers(ADD_PARTITIONS_TO_TXN, forbidden)
    with pytest.raises(PyProducerError, match="--topic commits"):
        write(client)
    assert len(client.bodies(ADD_PARTITIONS_TO_TXN)) == 1


def test_rows_that_are_refused_for_good_abort_the_transaction(client: ScriptedClient) -> None:
    client.scripts[PRODUCE.name] = Log(Code.MESSAGE_TOO_LARGE + 8, Code.INVALID_RECORD)
    client.answers(END_TXN, ended())
    with pytest.raises(BrokerError):
        write(client)
    assert [body.committed for body in client.bodies(END_TXN)] == [False]


def moved_away(client: ScriptedClient) -> messages.EndTxnResponse:
    """The coordinator has moved when the transaction is to be ended, and its new coordinator is unknown."""
    row = messages.FoundCoordinator("pyproducer.orders.ctl", 1, error_code=Code.CLUSTER_AUTHORIZATION_FAILED)
    client.answers(FIND_COORDINATOR, messages.FindCoordinatorResponse(coordinators=(row,)))
    return ended(Code.NOT_COORDINATOR)


def test_an_abort_that_fails_does_not_hide_why_it_was_called_for(client: ScriptedClient) -> None:
    client.scripts[PRODUCE.name] = Log(Code.INVALID_RECORD)
    client.scripts[END_TXN.name] = lambda _: moved_away(client)
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        write(client)


def test_an_abort_that_fails_does_not_hide_that_an_older_transaction_hangs(client: ScriptedClient) -> None:
    client.scripts[PRODUCE.name] = Log()
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({ROWS: 99, CONTROL: 102})
    client.scripts[END_TXN.name] = lambda _: moved_away(client)
    assert write(client, reported=True) == OlderTransactionHangs((ROWS,))


@pytest.mark.parametrize("error", [ValueError("a defect"), KeyboardInterrupt()])
def test_whatever_stops_a_write_before_its_end_aborts_it(client: ScriptedClient, error: BaseException) -> None:
    def fail(_: Any) -> Any:
        raise error

    client.scripts[PRODUCE.name] = fail
    client.answers(END_TXN, ended())
    with pytest.raises(type(error)):
        write(client)
    assert [body.committed for body in client.bodies(END_TXN)] == [False]


@pytest.mark.parametrize(
    ("row", "reported"),
    [
        ({"error_code": Code.TRANSACTIONAL_ID_NOT_FOUND}, "does not know it"),
        ({"producer_epoch": 2}, "timed out, or another producer"),
        ({"producer_id": 9}, "timed out, or another producer"),
        ({"state": "CompleteAbort"}, "in state CompleteAbort"),
        ({"transaction_start_time_ms": NOW_MS - 20_001}, "less than a third is left"),
        ({"transaction_start_time_ms": NOW_MS - 40_000}, "less than a third is left"),
        ({"transaction_start_time_ms": NOW_MS - 20_000}, ""),
        ({"transaction_start_time_ms": NOW_MS + 5_000}, ""),
    ],
)
def test_the_vote_names_the_transaction_and_the_reason(
    client: ScriptedClient, row: dict[str, Any], reported: str
) -> None:
    fit = {
        "state": "Ongoing",
        "producer_id": 8,
        "producer_epoch": 1,
        "transaction_timeout_ms": 30_000,
        "transaction_start_time_ms": NOW_MS,
    }
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described(**{**fit, **row})
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({ROWS: 5}, producer_id=TASK.producer_id)
    objections = precommit_check.objections(brokers_of(client), [TASK], client.deadline())
    assert len(objections) == (1 if reported else 0)
    assert reported in "".join(objections)


def fit(
    client: ScriptedClient, starts: dict[TopicPartition, int], transaction: TaskTransaction = TASK
) -> tuple[str, ...]:
    """Return the objections of the vote if leaders report that our producer's transactions begin at these offsets."""
    row = {"producer_id": OURS.producer_id, "producer_epoch": 1, "transaction_timeout_ms": 30_000}
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing", transaction_start_time_ms=NOW_MS, **row)
    client.scripts[DESCRIBE_PRODUCERS.name] = producing(starts)
    own = transaction._replace(producer_id=OURS.producer_id)
    return precommit_check.objections(brokers_of(client), [own], client.deadline())


@pytest.mark.parametrize(
    ("start", "reported"),
    [
        (5, ""),
        (4, "hangs in rows-0"),
        (0, "hangs in rows-0"),
        (-1, "are no longer in rows-0"),
        (6, "are no longer in rows-0"),
    ],
)
def test_the_vote_looks_whether_the_transaction_is_open_from_its_first_row_on(
    client: ScriptedClient, start: int, reported: str
) -> None:
    objections = fit(client, {ROWS: start})
    assert len(objections) == (1 if reported else 0)
    assert reported in "".join(objections)


def test_the_vote_objects_if_leaders_do_not_know_the_producer(client: ScriptedClient) -> None:
    client.leaders = {ROWS: 1}
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({})
    row = {"producer_id": 8, "producer_epoch": 1, "transaction_timeout_ms": 30_000}
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing", transaction_start_time_ms=NOW_MS, **row)
    [objection] = precommit_check.objections(brokers_of(client), [TASK], client.deadline())
    assert "are no longer in rows-0" in objection


def test_rows_that_one_leader_does_not_know_are_looked_for_at_the_next(client: ScriptedClient) -> None:
    starts = {ROWS: -1}
    request_all = client.request_all

    def moving(calls: Any, deadline: float) -> Any:
        answers = request_all(calls, deadline)
        if client.bodies(DESCRIBE_PRODUCERS):
            starts[ROWS] = 5
        return answers

    client.request_all = moving  # type: ignore[method-assign]
    assert fit(client, starts) == ()
    assert len(client.bodies(DESCRIBE_PRODUCERS)) == 2


@pytest.mark.parametrize(("stable", "reported"), [(5, ""), (6, "are no longer in rows-0")])
def test_without_read_the_last_stable_offset_decides(client: ScriptedClient, stable: int, reported: str) -> None:
    def no_right(body: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
        row = messages.DescribeProducersPartition(0, Code.TOPIC_AUTHORIZATION_FAILED)
        return messages.DescribeProducersResponse(0, (messages.DescribeProducersTopicResult("rows", (row,)),))

    row = {"producer_id": 8, "producer_epoch": 1, "transaction_timeout_ms": 30_000}
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing", transaction_start_time_ms=NOW_MS, **row)
    client.scripts[DESCRIBE_PRODUCERS.name] = no_right
    answer = messages.ListOffsetsPartitionResponse(0, offset=stable)
    client.answers(
        LIST_OFFSETS, messages.ListOffsetsResponse(0, (messages.ListOffsetsTopicResponse("rows", (answer,)),))
    )
    objections = precommit_check.objections(brokers_of(client), [TASK], client.deadline())
    assert len(objections) == (1 if reported else 0)
    assert reported in "".join(objections)


@pytest.mark.parametrize("age_ms", [-300_000, 0, 300_000])
@pytest.mark.parametrize("late", [True, False])
def test_the_time_that_is_left_is_by_the_clock_of_the_coordinator(
    client: ScriptedClient, age_ms: int, late: bool
) -> None:
    """With a driver's clock that is minutes late every transaction is young, and with one that is ahead all are too old."""
    row = {"producer_id": 8, "producer_epoch": 1, "transaction_timeout_ms": 30_000}
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing", transaction_start_time_ms=NOW_MS - age_ms, **row)
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({ROWS: 5}, producer_id=8)
    listed = messages.ListedTransaction(TASK.transactional_id if late else "another's", 8, "Ongoing")
    client.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse(transaction_states=(listed,)))
    objections = precommit_check.objections(brokers_of(client), [TASK], client.deadline())
    assert bool(objections) == late
    assert [body.duration_filter for body in client.bodies(LIST_TRANSACTIONS)] == [20_000]


@pytest.mark.parametrize(("timeout_ms", "warned"), [(119_000, True), (120_000, False)])
def test_a_timeout_that_leaves_too_little_for_slow_brokers_is_warned_of_once(
    client: ScriptedClient, timeout_ms: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"producer_id": 8, "producer_epoch": 1, "transaction_timeout_ms": timeout_ms}
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing", transaction_start_time_ms=NOW_MS, **row)
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({ROWS: 5}, producer_id=8)
    for _ in range(2):
        assert precommit_check.objections(brokers_of(client), [TASK], client.deadline()) == ()
    assert caplog.text.count("4 times kafka.max.block.ms: 40 s") == (1 if warned else 0)
    assert caplog.text.count("Raise the former above 120000") == (1 if warned else 0)
