"""`pyproducer txn`: what it shows of blocked sinks on real brokers, and how it repairs them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from spark_producer.cli.entry import INTERRUPTED, main
from spark_producer.cli.txn_report import MAX_IDS
from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import command_executor, control_write
from spark_producer.exactly_once.cluster.broker_requests import by_topic
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.protocol.commands import EndTasks
from spark_producer.exactly_once.protocol.control_record import Status
from spark_producer.exactly_once.protocol.outcomes import FailureKind, WriteCommitted
from spark_producer.exactly_once.protocol.task_messages import PreparedTask, TaskOutcome, WriteHandle
from tests.conftest import ProxiedBroker
from tests.support.filled_tasks import (
    SECONDS,
    Tasks,
    batch,
    committed,
    die_before,
    inline,
    prepared,
    take_over,
)

KAFKAS = [pytest.param("kafka-3.9", marks=pytest.mark.kafka), pytest.param("kafka-4", marks=pytest.mark.kafka)]
VERIFY = "transaction.partition.verification.enable"
Txn: TypeAlias = Callable[..., tuple[int, str]]


def verify_partitions(proxied: ProxiedBroker, on: bool) -> None:
    """Return whether brokers refuse rows of a transaction of which the coordinator does not know that it has the partition."""
    client = AdminClient({"bootstrap.servers": proxied.bootstrap_servers})
    entry = ConfigEntry(VERIFY, str(on).lower(), incremental_operation=AlterConfigOpType.SET)
    [done] = client.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])]
    ).values()
    done.result(SECONDS)


@pytest.fixture
def trusting(proxied: ProxiedBroker) -> Iterator[ProxiedBroker]:
    """Brokers that do not verify partitions, as before 3.6."""
    verify_partitions(proxied, on=False)
    yield proxied
    verify_partitions(proxied, on=True)


@pytest.fixture
def txn(proxied: ProxiedBroker, capsys: pytest.CaptureFixture[str]) -> Txn:
    """The command: it returns its exit code, and all that it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["txn", *arguments, "--bootstrap-servers", proxied.bootstrap_servers])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def lose_an_end(tasks: Tasks, handle: WriteHandle, rows: str) -> PreparedTask:
    """The message of a task that has a row in each partition; the second one never gets the end of its transaction."""
    values = {(rows, 0): ["0"], (rows, 1): ["1"]}
    return prepared(handle, 0, tasks.fill(0, TransactionVersion.EXPLICIT, values, unknown={(rows, 1)}))


@pytest.mark.parametrize("proxied", ["embedded", *KAFKAS], indirect=True)
def test_a_partial_batch_is_shown_and_accepted_by_a_person(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks, txn: Txn, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = driver.begin(sink)
    filled = [tasks.fill(slot, handle.transaction_version, {(rows, 0): [str(slot)]}) for slot in range(2)]
    die_before(sink, 0, [prepared(handle, 0, each) for each in filled], EndTasks)
    code, shown = txn("describe", sink.name)
    assert code == 0
    assert "COMMITTING, batch 0, last done: none" in shown
    assert f"open: {filled[0].transactional_id}  Ongoing" in shown
    assert f"readers of {rows}-0 are blocked at offset 0; the log ends at 2" in shown
    assert f"producer {filled[1].producer_id}, epoch 0, has a transaction open since offset 1" in shown
    take_over(tasks, filled[1])
    code, shown = txn("resolve", sink.name, "--yes")
    assert code == 1
    assert filled[1].transactional_id in shown
    code, shown = txn("list")
    assert f"{sink.name}  PARTIAL, batch 0, last done: none" in shown
    code, shown = txn("describe", sink.name)
    assert f"{filled[0].transactional_id}  producer {filled[0].producer_id}, epoch 0: committed" in shown
    assert f"{filled[1].transactional_id}  producer {filled[1].producer_id}, epoch 0: aborted" in shown
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    code, shown = txn("resolve", sink.name, "--accept-partial")
    assert code == 1
    assert "Give --yes" in shown
    code, shown = txn("resolve", sink.name, "--accept-partial", "--yes")
    assert code == 0
    assert "resolved: DONE, batch 0, last done: 0" in shown
    handle = driver.begin(sink)
    assert driver.commit(sink, [inline(handle, 1, batch(rows, 0, "next"))], 1) == WriteCommitted(1)
    assert committed(proxied, rows) == ["0", "next"]


@pytest.mark.parametrize("proxied", ["embedded", *KAFKAS], indirect=True)
def test_what_dead_tasks_left_is_listed_and_resolved(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks, txn: Txn
) -> None:
    handle = driver.begin(sink)
    driver.commit(sink, [inline(handle, 0, batch(rows, 0, "a"))], 0)
    left = tasks.fill(0, handle.transaction_version, {(rows, 0): ["never"]})
    code, shown = txn("list")
    assert code == 0
    assert f"open: 1\n    {left.transactional_id}" in shown
    code, shown = txn("resolve", sink.name, "--yes")
    assert code == 0
    assert "resolved: INTENT, batch 0, last done: 0" in shown
    code, shown = txn("describe", sink.name)
    assert "open:" not in shown
    assert committed(proxied, rows) == ["a"]


@pytest.mark.parametrize("proxied", KAFKAS, indirect=True)
@pytest.mark.usefixtures("trusting")
def test_a_lost_marker_is_found_by_the_commit_and_repaired_by_a_person(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks, txn: Txn
) -> None:
    handle = driver.begin(sink)
    reported = lose_an_end(tasks, handle, rows)
    with pytest.raises(ExactlyOnceError, match=f"{rows}-1") as hung:
        driver.commit(sink, [reported], 0)
    assert (hung.value.kind, hung.value.names, hung.value.again) == (FailureKind.HUNG.name, (f"{rows}-1",), False)
    with pytest.raises(ExactlyOnceError) as hung:
        driver.begin(sink)
    assert hung.value.kind == FailureKind.HUNG.name
    assert committed(proxied, rows) == ["0"]
    code, shown = txn("repair", sink.name, "--yes")
    assert code == 0, shown
    assert (
        f"lost: {rows}-1 lacks the marker of producer {reported.transaction.producer_id}'s transaction, which was committed"
        in shown
    )
    again = driver.begin(sink)
    assert again.last is not None
    assert again.last.last_done == 0
    assert committed(proxied, rows) == ["0", "1"]
    code, shown = txn("repair", sink.name, "--yes")
    assert "nothing to repair" in shown


@pytest.mark.parametrize("proxied", KAFKAS, indirect=True)
@pytest.mark.usefixtures("trusting")
def test_an_older_transaction_that_lost_its_end_is_not_decided_by_a_commit(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks
) -> None:
    """The rows of the aborted attempt would become visible with those of the next transaction of the same producer."""
    handle: WriteHandle = driver.begin(sink)
    first = tasks.fill(0, TransactionVersion.EXPLICIT, {(rows, 0): ["old"], (rows, 1): ["old"]}, unknown={(rows, 1)})
    assert driver.abort(sink, [prepared(handle, 0, first)], 0) is not None
    handle = driver.begin(sink)
    second = tasks.fill(0, TransactionVersion.EXPLICIT, {(rows, 1): ["new"]})
    assert second.producer_id == first.producer_id
    with pytest.raises(ExactlyOnceError, match=f"hangs in {rows}-1") as refused:
        driver.commit(sink, [prepared(handle, 0, second)], 0)
    assert (refused.value.kind, refused.value.again) == (FailureKind.VOTE.name, True)
    driver.abort(sink, [prepared(handle, 0, second)], 0)
    handle = driver.begin(sink)
    assert driver.commit(sink, [inline(handle, 0, batch(rows, 1, "again"))], 0) == WriteCommitted(0)
    assert committed(proxied, rows) == ["again"]


def lose_control_markers(monkeypatch: pytest.MonkeyPatch, sink: SinkSettings, spare: TopicPartition) -> None:
    """Leave the control partition out of AddPartitionsToTxn from now on, so that control records get no marker."""

    def without_control(partitions: list[TopicPartition]) -> dict[str, list[int]]:
        others = [each for each in partitions if each[0] != sink.control_topic]
        return by_topic(others or [spare])

    monkeypatch.setattr(command_executor, "find_transaction_version", lambda *_: TransactionVersion.EXPLICIT)
    monkeypatch.setattr(control_write, "by_topic", without_control)


@pytest.mark.parametrize("proxied", KAFKAS, indirect=True)
@pytest.mark.parametrize("way", ["inline", pytest.param("tasks", marks=pytest.mark.nightly), "tasks still open"])
@pytest.mark.usefixtures("trusting")
def test_a_decision_that_lost_its_own_marker_is_repaired_after_a_begin_as_it_was_decided(
    proxied: ProxiedBroker,
    sink: SinkSettings,
    rows: str,
    tasks: Tasks,
    way: str,
    txn: Txn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a BEGIN the coordinator has forgotten how the transaction ended; the note of its fence says that it committed."""
    once = batch(rows, 0, "once")
    with monkeypatch.context() as losing:
        lose_control_markers(losing, sink, TopicPartition(rows, 1))
        handle = driver.begin(sink)
        if way == "inline":
            messages: list[TaskOutcome] = [inline(handle, 0, once)]
        else:
            messages = [prepared(handle, 0, tasks.fill(0, TransactionVersion.EXPLICIT, {(rows, 0): ["once"]}))]
        if way == "tasks still open":
            die_before(sink, 0, messages, EndTasks)
        else:
            with pytest.raises(ExactlyOnceError, match=f"{sink.control_topic}-0"):
                driver.commit(sink, messages, 0)
    driver.close_all()
    with pytest.raises(ExactlyOnceError) as hung:
        driver.begin(sink)
    assert hung.value.kind == FailureKind.HUNG.name
    assert committed(proxied, rows) == ([] if way == "tasks still open" else ["once"])
    code, shown = txn("repair", sink.name, "--yes")
    assert code == 0, shown
    again = driver.begin(sink)
    assert again.last is not None
    assert again.last.last_done == 0, "also where its tasks were still open: the begin has ended them as it was decided"
    assert committed(proxied, rows) == ["once"]


@pytest.mark.parametrize("proxied", KAFKAS, indirect=True)
@pytest.mark.usefixtures("trusting")
def test_what_was_aborted_after_the_commit_point_is_repaired_as_aborted_and_runs_again(
    proxied: ProxiedBroker, sink: SinkSettings, rows: str, tasks: Tasks, txn: Txn
) -> None:
    """With a commit in the one partition and an abort in the other the batch would be PARTIAL for ever."""
    handle = driver.begin(sink)
    reported = lose_an_end(tasks, handle, rows)
    die_before(sink, 0, [reported], EndTasks)
    take_over(tasks, reported.transaction)
    with pytest.raises(ExactlyOnceError, match=f"{rows}-1") as hung:
        driver.begin(sink)
    assert hung.value.kind == FailureKind.HUNG.name
    code, shown = txn("repair", sink.name, "--yes")
    assert code == 0, shown
    handle = driver.begin(sink)
    assert handle.last is not None
    assert handle.last.status is Status.VOID
    assert driver.commit(sink, [inline(handle, 0, batch(rows, 1, "again"))], 0) == WriteCommitted(0)
    assert committed(proxied, rows) == ["again"]


@pytest.mark.parametrize("proxied", KAFKAS, indirect=True)
@pytest.mark.usefixtures("trusting")
def test_what_another_has_repaired_while_the_question_stood_is_not_repaired_again(
    sink: SinkSettings, rows: str, tasks: Tasks, txn: Txn, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = driver.begin(sink)
    reported = lose_an_end(tasks, handle, rows)
    with pytest.raises(ExactlyOnceError, match=f"{rows}-1"):
        driver.commit(sink, [reported], 0)

    def other_first() -> str:
        assert txn("repair", sink.name, "--yes")[0] == 0
        return "y"

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", other_first)
    code, shown = txn("repair", sink.name)
    assert code == 1
    assert "Nothing was written" in shown


@pytest.mark.parametrize("proxied", ["embedded", *KAFKAS], indirect=True)
def test_a_mistyped_sink_or_control_topic_is_an_error_that_names_what_there_is(
    sink: SinkSettings, rows: str, txn: Txn
) -> None:
    """The wrong sink was resolved with success, and the right one stayed as it was."""
    driver.commit(sink, [inline(driver.begin(sink), 0, batch(rows, 0, "a"))], 0)
    for action in (["describe"], ["resolve", "--yes"], ["repair", "--yes"]):
        code, shown = txn(*action, sink.name[:-1])
        assert code == 1
        assert f"knows no sink '{sink.name[:-1]}'" in shown
        assert sink.name in shown
    code, shown = txn("list", "--control-topic", "mistyped")
    assert code == 1
    assert "there is no topic 'mistyped'" in shown
    assert "create the topic" not in shown


def test_what_cannot_be_accepted_disturbs_no_running_query(sink: SinkSettings, rows: str, txn: Txn) -> None:
    driver.commit(sink, [inline(driver.begin(sink), 0, batch(rows, 0, "a"))], 0)
    running = driver.begin(sink)
    code, shown = txn("resolve", sink.name, "--accept-partial", "--yes")
    assert code == 1
    assert "is not PARTIAL" in shown
    assert driver.commit(sink, [inline(running, 1, batch(rows, 0, "b"))], 1) == WriteCommitted(1)


def test_the_question_is_asked_on_stderr_and_no_answer_or_a_stop_changes_nothing(
    proxied: ProxiedBroker,
    sink: SinkSettings,
    rows: str,
    tasks: Tasks,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = driver.begin(sink)
    tasks.fill(0, handle.transaction_version, {(rows, 0): ["never"]})
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    asked = ["txn", "resolve", sink.name, "--bootstrap-servers", proxied.bootstrap_servers]
    for stop, code in ((EOFError, 1), (KeyboardInterrupt, INTERRUPTED)):
        monkeypatch.setattr("builtins.input", raising(stop))
        assert main(asked) == code
        printed = capsys.readouterr()
        assert "Take over" in printed.err
        assert "Take over" not in printed.out
        assert "nothing was changed" in printed.err
    monkeypatch.setattr("spark_producer.cli.txn.resolve", raising(KeyboardInterrupt))
    assert main([*asked, "--yes"]) == INTERRUPTED
    assert "Run the command again" in capsys.readouterr().err


def raising(error: type[BaseException]) -> Callable[..., str]:
    """A function that ends so, whatever it is given."""

    def answer(*_: object) -> str:
        raise error

    return answer


def test_many_open_transactions_are_counted_and_some_of_them_named(
    sink: SinkSettings, rows: str, tasks: Tasks, txn: Txn
) -> None:
    handle = driver.begin(sink)
    driver.commit(sink, [inline(handle, 0, batch(rows, 0, "a"))], 0)
    for slot in range(MAX_IDS + 2):
        tasks.fill(slot, handle.transaction_version, {(rows, 0): ["never"]})
    code, shown = txn("list")
    assert code == 0
    assert f"open: {MAX_IDS + 2}\n" in shown
    assert f"and 2 more: pyproducer txn describe {sink.name}" in shown
    assert shown.count(f"pyproducer.{sink.name}.") == MAX_IDS
    code, shown = txn("describe", sink.name)
    assert shown.count("open: ") == MAX_IDS + 2
    assert f"next: if its query is not running, restart it, or: pyproducer txn resolve {sink.name}" in shown
    code, shown = txn("resolve", sink.name, "--yes")
    assert "that were left open are aborted" in shown
