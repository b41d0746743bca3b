"""BEGIN, COMMIT and ABORT on Kafka 3.9 and 4: readers of committed records see each row once after crashes and takeovers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_producer.admin import BlockingClient
from spark_producer.common.cluster import ProducerIdAndEpoch, Span, TransactionVersion
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_write import ControlWrite
from spark_producer.exactly_once.cluster.coordinator_state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    describe,
    open_tasks,
)
from spark_producer.exactly_once.cluster.end_transactions import end_tasks
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.names import control_id, task_id
from spark_producer.exactly_once.protocol import commit as committing
from spark_producer.exactly_once.protocol import state_machine
from spark_producer.exactly_once.protocol.commands import (
    Command,
    ControlWritten,
    EndTasks,
    Fence,
    Found,
    Indeterminate,
    ReadControl,
    Result,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status, TaskTransaction
from spark_producer.exactly_once.protocol.outcomes import AlreadyDone, Failed, FailureKind, WriteAborted, WriteCommitted
from spark_producer.exactly_once.protocol.task_messages import InlineRows, Skipped, WriteHandle
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, END_TXN, INIT_PRODUCER_ID, PRODUCE
from spark_producer.protocol.messages import InitProducerIdRequest
from tests.conftest import ProxiedBroker
from tests.support.filled_tasks import (
    QUERY,
    SECONDS,
    Tasks,
    batch,
    committed,
    die_before,
    inline,
    prepared,
    take_over,
)
from tests.support.waiting import retry, wait_until

pytestmark = pytest.mark.parametrize(
    "proxied",
    [
        "embedded",
        pytest.param("kafka-3.9", marks=pytest.mark.kafka),
        pytest.param("kafka-4", marks=pytest.mark.kafka),
    ],
    indirect=True,
)


def one_each(
    tasks: Tasks, handle: WriteHandle, topic: str, slots: int, timeout_ms: int = 60_000
) -> list[TaskTransaction]:
    """Transactions of some tasks, with a row in each partition."""
    return [
        tasks.fill(slot, handle.transaction_version, {(topic, 0): [f"{slot}-0"], (topic, 1): [f"{slot}-1"]}, timeout_ms)
        for slot in range(slots)
    ]


def test_rows_of_driver_and_tasks_become_visible_together_and_a_done_batch_is_skipped(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    handle = driver.begin(sink)
    assert handle.last is None
    filled = one_each(tasks, handle, rows, 3)
    small = inline(handle, 0, batch(rows, 0, "a"), batch(rows, 0, "b", "c"))
    assert committed(proxied, rows) == []
    assert driver.commit(sink, [*(prepared(handle, 0, each) for each in filled), small], 0) == WriteCommitted(0)
    assert sorted(committed(proxied, rows)) == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1", "a", "b", "c"]
    again = driver.begin(sink)
    assert again.last is not None
    assert (again.last.status, again.last.last_done, again.last.transactions) == (Status.DONE, 0, ())
    assert driver.commit(sink, [inline(again, 1, batch(rows, 0, "d"))], 1) == WriteCommitted(1)
    assert [value for value in committed(proxied, rows) if len(value) == 1] == ["a", "b", "c", "d"]


def test_batches_that_are_too_large_for_their_topic_are_cut(
    proxied: ProxiedBroker, sink: SinkSettings, topic: str
) -> None:
    made = NewTopic(topic, 1, config={"max.message.bytes": "4000"})
    admin = AdminClient({"bootstrap.servers": proxied.bootstrap_servers})
    admin.create_topics([made])[topic].result(SECONDS)
    values = [f"{number:0500}" for number in range(40)]
    tasks = [values[:20], values[20:21], values[21:]]
    handle = driver.begin(sink)
    assert driver.commit(sink, [inline(handle, 0, batch(topic, 0, *each)) for each in tasks], 0) == WriteCommitted(0)
    assert committed(proxied, topic) == values


def test_the_older_of_two_drivers_commits_nothing(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    old = driver.begin(sink)
    new = driver.begin(sink)
    [transaction] = one_each(tasks, new, rows, 1)
    with pytest.raises(ExactlyOnceError, match="newer driver") as refused:
        driver.commit(sink, [inline(old, 0, batch(rows, 0, "old"))], 0)
    assert (refused.value.kind, refused.value.again) == (FailureKind.FENCED.name, True)
    assert driver.commit(sink, [prepared(new, 0, transaction)], 0) == WriteCommitted(0)
    assert sorted(committed(proxied, rows)) == ["0-0", "0-1"]


def test_the_next_begin_aborts_what_dead_tasks_left_open_and_nothing_else(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    other = Tasks(proxied.bootstrap_servers, f"{sink.name}.eu")
    try:
        first = driver.begin(sink)
        one_each(tasks, first, rows, 2)
        kept = other.fill(0, first.transaction_version, {(rows, 1): ["other"]})
        second = driver.begin(sink)
        assert second.last is not None
        assert (second.last.status, second.last.token) == (Status.INTENT, second.token)
        assert driver.commit(sink, [inline(second, 0, batch(rows, 0, "b"))], 0) == WriteCommitted(0)
        end_tasks(other.brokers, [kept], True, other.client.deadline())
        assert committed(proxied, rows) == ["b", "other"]
    finally:
        other.close()


PAGE = Path(__file__).resolve().parents[2] / "docs" / "exactly_once_explained.md"
TASKS = 3


def logged_costs(row: str) -> list[int]:
    """Return the requests of a step by the page's table, for both paths. There, `n` is the number of tasks."""
    [cells] = re.findall(rf"^\| {row}[^|]*\|([^|]*)\|([^|]*)\|$", PAGE.read_text(), flags=re.MULTILINE)
    return [sum(map(int, re.findall(r"\d+", cell))) + TASKS * ("*n*" in cell) for cell in cells]


def rounds_of(sink: SinkSettings) -> int:
    """Return how many times the driver has sent requests together and waited for them."""
    return sum(cluster.client.rounds for known, cluster in driver._open if known == sink)


def is_complete(tasks: Tasks, transactional_id: str) -> bool:
    """Return whether the last transaction of an id has its markers."""
    state = describe(tasks.brokers, [transactional_id], tasks.client.deadline())[transactional_id]
    return state is not None and state.transaction_state in (COMPLETE_ABORT, COMPLETE_COMMIT)


def test_the_requests_of_a_write_are_as_many_as_the_page_says(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    counted: dict[str, tuple[int, int, int]] = {}
    for number, path in enumerate("AAAABBBB"):
        if number:  # the marker of DONE, which no commit of path B waits for
            wait_until(lambda: is_complete(tasks, control_id(sink.name)), "the end of the last control record")
        before, rounds = Counter(proxied.proxy.requests), rounds_of(sink)
        handle = driver.begin(sink)
        begun = Counter(proxied.proxy.requests) - before
        filled = one_each(tasks, handle, rows, TASKS) if path == "B" else []
        messages = [prepared(handle, number, each) for each in filled]
        before = Counter(proxied.proxy.requests)
        driver.commit(sink, messages or [inline(handle, number, batch(rows, 0, "a"))], number)
        ended = Counter(proxied.proxy.requests) - before
        # While markers are on their way, coordinators and leaders are asked again and again, which the page does not count.
        sequences = 0 if handle.transaction_version is TransactionVersion.IMPLICIT else {"A": 1, "B": 2}[path]
        all_requests = ended.total()
        ended[DESCRIBE_TRANSACTIONS.key] = min(ended[DESCRIBE_TRANSACTIONS.key], {"A": 1, "B": 2}[path])
        ended[DESCRIBE_PRODUCERS.key] = min(ended[DESCRIBE_PRODUCERS.key], {"A": 2, "B": 4}[path] + sequences)
        rounds = rounds_of(sink) - rounds - (all_requests - ended.total())
        totals = begun.total(), ended.total() - ended[PRODUCE.key] * (path == "A"), rounds
        least = counted.get(path, totals)
        counted[path] = min(least[0], totals[0]), min(least[1], totals[1]), min(least[2], totals[2])
    # Each control write adds its partitions, and asks for the next sequence number, in one more flight.
    more = int(handle.transaction_version is not TransactionVersion.IMPLICIT)
    begins, commits = logged_costs("begin"), logged_costs("commit")
    [trips] = re.findall(r"(\d+) round trips on path A and (\d+) on path B", " ".join(PAGE.read_text().split()))
    assert counted == {
        "A": (begins[0], commits[0] + 2 * more, int(trips[0]) + more),
        "B": (begins[1], commits[1] + 4 * more, int(trips[1]) + 2 * more),
    }


@pytest.mark.parametrize("path", ["A", "B"])
def test_what_dead_tasks_of_the_same_write_left_open_is_aborted_by_its_commit(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks, path: str
) -> None:
    handle = driver.begin(sink)
    one_each(tasks, handle, rows, 2)
    other = Tasks(proxied.bootstrap_servers, f"{sink.name}.eu")
    survivors = Tasks(proxied.bootstrap_servers, sink.name, worker="1" * 32)
    try:
        kept = other.fill(0, handle.transaction_version, {(rows, 1): ["other"]})
        own = prepared(handle, 0, one_each(survivors, handle, rows, 1)[0])
        message = own if path == "B" else inline(handle, 0, batch(rows, 0, "a"))
        assert driver.commit(sink, [message], 0) == WriteCommitted(0)
        left = open_tasks(survivors.brokers, handle.transaction_version, survivors.client.deadline())
        assert left == ()
        end_tasks(other.brokers, [kept], True, other.client.deadline())
        expected = ["0-0", "0-1", "other"] if path == "B" else ["a", "other"]
        # A coordinator answers before it has written the markers.
        wait_until(lambda: len(committed(proxied, rows)) >= len(expected), "the markers", seconds=SECONDS, pause=0.05)
        assert sorted(committed(proxied, rows)) == expected
    finally:
        other.close()
        survivors.close()


def test_an_answer_that_is_lost_after_the_commit_point_is_found_in_the_log(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str
) -> None:
    handle = driver.begin(sink)
    proxied.proxy.lose_response(END_TXN.key)
    assert driver.commit(sink, [inline(handle, 0, batch(rows, 0, "a"))], 0) == WriteCommitted(0)
    assert committed(proxied, rows) == ["a"]
    handle = driver.begin(sink)
    proxied.proxy.lose_request(END_TXN.key)
    with pytest.raises(ExactlyOnceError) as lost:
        driver.commit(sink, [inline(handle, 1, batch(rows, 0, "b"))], 1)
    assert (lost.value.kind, lost.value.again) == (FailureKind.NOT_WRITTEN.name, True)
    assert committed(proxied, rows) == ["a"]


def test_a_job_without_a_number_whose_commit_another_has_covered_is_not_advised_to_run_again(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str
) -> None:
    handle = driver.begin(sink)
    client = BlockingClient(sink.connection, timeout=SECONDS)
    cluster = CommandExecutor(client, sink.name, sink.control_topic)
    cluster.prepare()
    cluster.take_inline([batch(rows, 0, "a")])

    def perform(ask: Command) -> Result:
        if isinstance(ask, Fence):
            other = driver.begin(sink)
            driver.commit(sink, [InlineRows(other, "", NO_BATCH, (batch(rows, 0, "other"),), 1)], NO_BATCH)
        return cluster.perform(ask)

    proxied.proxy.lose_response(END_TXN.key)
    try:
        message = InlineRows(handle, "", NO_BATCH, (batch(rows, 0, "a"),), 1)
        outcome = state_machine.run(committing.commit([message], NO_BATCH), perform)
    finally:
        client.close()
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.UNKNOWN
    assert committed(proxied, rows) == ["a", "other"]


def test_what_a_dead_driver_had_decided_is_carried_out_by_the_next(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    handle = driver.begin(sink)
    messages = [prepared(handle, 0, each) for each in one_each(tasks, handle, rows, 2)]
    die_before(sink, 0, messages, EndTasks)
    assert committed(proxied, rows) == []
    later = driver.begin(sink)
    assert later.last is not None
    assert (later.last.status, later.last.last_done, later.last.done_rows) == (Status.DONE, 0, 4)
    assert sorted(committed(proxied, rows)) == ["0-0", "0-1", "1-0", "1-1"]
    assert driver.commit(sink, [Skipped(later, QUERY, 0, 3), Skipped(later, QUERY, 0, 1)], 0) == AlreadyDone(0)
    with pytest.raises(ExactlyOnceError, match="batch 0 was committed with 4 rows, and now has 5") as refused:
        driver.commit(sink, [Skipped(later, QUERY, 0, 5)], 0)
    assert (refused.value.kind, refused.value.again) == ("REFUSED", False)


def test_a_driver_that_dies_before_the_commit_point_leaves_nothing(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    handle = driver.begin(sink)
    messages = [prepared(handle, 0, each) for each in one_each(tasks, handle, rows, 2)]
    die_before(sink, 0, messages, WriteControl)
    driver.begin(sink)
    assert committed(proxied, rows) == []


def test_transactions_that_were_all_aborted_after_the_commit_point_are_void_and_run_again(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    handle = driver.begin(sink)
    filled = one_each(tasks, handle, rows, 2)
    die_before(sink, 0, [prepared(handle, 0, each) for each in filled], EndTasks)
    for each in filled:
        take_over(tasks, each)
    later = driver.begin(sink)
    assert later.last is not None
    assert (later.last.status, later.last.last_done) == (Status.VOID, -1)
    assert driver.commit(sink, [inline(later, 0, batch(rows, 0, "again"))], 0) == WriteCommitted(0)
    assert committed(proxied, rows) == ["again"]


def test_a_part_that_was_aborted_after_the_commit_point_stops_the_sink_and_is_named(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    handle = driver.begin(sink)
    filled = one_each(tasks, handle, rows, 2)
    die_before(sink, 0, [prepared(handle, 0, each) for each in filled], EndTasks)
    take_over(tasks, filled[1])
    for _ in range(2):
        with pytest.raises(ExactlyOnceError) as partial:
            driver.begin(sink)
        assert (partial.value.kind, partial.value.again) == (FailureKind.PARTIAL.name, False)
    assert sorted(committed(proxied, rows)) == ["0-0", "0-1"]


def test_a_transaction_that_times_out_after_the_commit_point_makes_the_batch_partial(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    """The vote would have refused it: the driver is taken to have died between the two, for as long."""
    handle = driver.begin(sink)
    [kept] = one_each(tasks, handle, rows, 1)
    short = tasks.fill(1, handle.transaction_version, {(rows, 0): ["late"]}, timeout_ms=1000)
    record = ControlRecord(sink.name, "query", Status.COMMITTING, 0, -1, handle.token, (kept, short))
    cluster = CommandExecutor(tasks.client, sink.name, sink.control_topic)
    cluster.prepare()
    assert isinstance(cluster.perform(WriteControl(handle.fencing, record)), ControlWritten)
    wait_until(lambda: _state(tasks, short) != "Ongoing", "the transaction times out", seconds=SECONDS, pause=0.1)
    with pytest.raises(ExactlyOnceError) as partial:
        driver.begin(sink)
    assert (partial.value.kind, partial.value.names) == (FailureKind.PARTIAL.name, (short.transactional_id,))
    assert sorted(committed(proxied, rows)) == ["0-0", "0-1"]


def _state(tasks: Tasks, transaction: TaskTransaction) -> str:
    own = transaction.transactional_id
    row = describe(tasks.brokers, [own], tasks.client.deadline())[own]
    return "" if row is None else row.transaction_state


def test_the_vote_refuses_a_transaction_that_another_has_taken_over(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    handle = driver.begin(sink)
    filled = one_each(tasks, handle, rows, 2)
    take_over(tasks, filled[0])
    messages = [prepared(handle, 0, each) for each in filled]
    with pytest.raises(ExactlyOnceError, match="another producer has taken over") as refused:
        driver.commit(sink, messages, 0)
    assert (refused.value.kind, refused.value.again) == (FailureKind.VOTE.name, True)
    assert driver.abort(sink, messages, 0) == WriteAborted((filled[1].transactional_id,))
    assert committed(proxied, rows) == []


def test_rows_of_a_topic_that_was_created_again_meanwhile_are_not_committed_as_if_they_were_there(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    handle = driver.begin(sink)
    messages = [prepared(handle, 0, each) for each in one_each(tasks, handle, rows, 2)]
    admin = AdminClient({"bootstrap.servers": proxied.bootstrap_servers})
    admin.delete_topics([rows])[rows].result(SECONDS)
    retry(
        lambda: admin.create_topics([NewTopic(rows, 2)])[rows].result(SECONDS),
        KafkaException,
        "the name is free, once all of the old topic is gone",
        pause=0.1,
    )
    with pytest.raises(ExactlyOnceError, match=f"its rows are no longer in {rows}-0") as refused:
        driver.commit(sink, messages, 0)
    assert (refused.value.kind, refused.value.again) == (FailureKind.VOTE.name, True)
    again = driver.begin(sink)
    assert driver.commit(sink, [inline(again, 0, batch(rows, 0, "a"))], 0) == WriteCommitted(0)
    assert committed(proxied, rows) == ["a"]


def test_another_sinks_open_transaction_does_not_hide_the_control_record(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str
) -> None:
    driver.begin(sink)
    other = Tasks(proxied.bootstrap_servers, f"{sink.name}-other")
    try:
        other.fill(0, TransactionVersion.EXPLICIT, {(sink.control_topic, 0): ["hangs"]})
        for number in range(2):
            handle = driver.begin(sink)
            assert driver.commit(sink, [inline(handle, number, batch(rows, 0, str(number)))], number) == WriteCommitted(
                number
            )
        seen = driver.begin(sink).last
        assert seen is not None
        assert seen.last_done == 1
        assert committed(proxied, rows) == ["0", "1"]
    finally:
        other.close()


def test_transactions_of_librdkafka_with_our_ids_are_committed_by_the_driver(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    handle = driver.begin(sink)
    own = task_id(sink.name, "a" * 32, 0)
    foreign = Producer({"bootstrap.servers": proxied.bootstrap_servers, "transactional.id": own})
    foreign.init_transactions(SECONDS)
    foreign.begin_transaction()
    offsets: list[int | None] = []
    for number in range(3):
        foreign.produce(rows, str(number), partition=0, on_delivery=lambda _, done: offsets.append(done.offset()))
    assert foreign.flush(SECONDS) == 0
    row = describe(tasks.brokers, [own], tasks.client.deadline())[own]
    assert row is not None
    assert offsets == [0, 1, 2]
    # librdkafka uses transactions of level 0, whatever the cluster's feature level is
    transaction = TaskTransaction(
        own, row.producer_id, row.producer_epoch, TransactionVersion.EXPLICIT, (Span(rows, 0, 0, 2, 3),)
    )
    assert driver.commit(sink, [prepared(handle, 0, transaction)], 0) == WriteCommitted(0)
    assert committed(proxied, rows) == ["0", "1", "2"]


def test_a_control_record_that_the_leader_takes_for_an_older_one_is_not_committed(
    proxied: ProxiedBroker, sink: SinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At level 0 all transactions of one BEGIN have the same epoch, and a lagging leader reports too low a sequence."""
    handle = driver.begin(sink)
    client = BlockingClient(sink.connection, timeout=SECONDS)
    try:
        cluster = CommandExecutor(client, sink.name, sink.control_topic)
        cluster.prepare()
        cluster.transaction_version = TransactionVersion.EXPLICIT
        first = ControlRecord(sink.name, "q", Status.DONE, 3, 3, "t" * 32)
        assert cluster.perform(WriteControl(handle.fencing, first)) == ControlWritten(handle.fencing)
        monkeypatch.setattr(ControlWrite, "_next_sequence", lambda _: 0)
        second = first._replace(batch=4, last_done=4)
        answer = cluster.perform(WriteControl(handle.fencing, second))
        assert isinstance(answer, Indeterminate)
        assert cluster.perform(ReadControl()) == Found(first)
        monkeypatch.undo()
        assert cluster.perform(WriteControl(handle.fencing, second)) == ControlWritten(handle.fencing)
        assert cluster.perform(ReadControl()) == Found(second)
    finally:
        client.close()


def test_a_long_control_record_is_split_and_put_together_again(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str
) -> None:
    driver.begin(sink)
    client = BlockingClient(sink.connection, timeout=SECONDS)
    try:
        cluster = CommandExecutor(client, sink.name, sink.control_topic)
        cluster.prepare()
        body = InitProducerIdRequest(control_id(sink.name), 60_000)
        answers = cluster.brokers.request_coordinators(
            INIT_PRODUCER_ID, {control_id(sink.name): body}, client.deadline(), resend=True
        )
        fencing = ProducerIdAndEpoch(*answers[control_id(sink.name)][2:])
        many = tuple(
            TaskTransaction(
                task_id(sink.name, "0" * 32, slot),
                slot,
                1,
                TransactionVersion.EXPLICIT,
                (Span(rows, 0, slot, slot, 1),),
            )
            for slot in range(500)
        )
        record = ControlRecord(sink.name, "q", Status.PARTIAL, 3, 2, "t" * 32, many)
        ask = WriteControl(fencing, record)
        ControlWrite(cluster.brokers, cluster.topic, cluster.transaction_version, ask, client.deadline()).run({}, 4096)
        with pytest.raises(ExactlyOnceError) as reported:
            driver.begin(sink)
        assert reported.value.kind == FailureKind.PARTIAL.name
        assert cluster.perform(ReadControl()) == Found(record)
    finally:
        client.close()
