"""`pyproducer txn` for its users: before the first commit, without a control topic, and with open transactions of others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Producer as ConfluentProducer

from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main
from spark_producer.cli.json_output import as_json
from spark_producer.cli.txn_json import description_fields, repaired_fields, summary_fields, topic_fields
from spark_producer.common.cluster import Span, TopicPartition, TransactionVersion
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster.control_log import ControlLogState
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import TransactionOutcome
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status, TaskTransaction
from spark_producer.exactly_once.protocol.task_messages import WriteHandle
from spark_producer.exactly_once.repair import describe
from spark_producer.exactly_once.repair.describe import (
    BlockedReaders,
    BlockingProducer,
    OpenTransaction,
    SinkDescription,
    SinkSummary,
)
from spark_producer.exactly_once.repair.lost_markers import LostMarker, LostMarkers
from tests.support.documented_keys import check_keys, documented_commands
from tests.support.filled_tasks import SECONDS, Tasks, batch, inline, settings

Txn: TypeAlias = Callable[..., tuple[int, str]]
SINK, TOPIC = "orders.eu", "people"
pytestmark = pytest.mark.usefixtures("free_pauses")

NO_BATCH = "no batch was committed yet (__pyproducer_commits has none)"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    """A broker for this test alone, since `list` shows all transactions."""
    monkeypatch.setattr(describe, "MISSING_AFTER_S", 0.1)  # this broker knows all of its topics at once
    with LocalBroker() as made:
        made.create_topic(TOPIC, 2)
        yield made
        driver.close_all()


@pytest.fixture
def sink(broker: LocalBroker) -> SinkSettings:
    return SinkSettings(SINK, settings(broker.bootstrap_servers), timeout=SECONDS)


@pytest.fixture
def tasks(broker: LocalBroker) -> Iterator[Tasks]:
    made = Tasks(broker.bootstrap_servers, SINK)
    yield made
    made.close()


@pytest.fixture
def stranger(broker: LocalBroker) -> ConfluentProducer:
    """Another program, with a transaction open in partition 0."""
    made = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "billing-1", "log_level": 0}
    )
    made.init_transactions(SECONDS)
    made.begin_transaction()
    made.produce(TOPIC, b"x", partition=0)
    assert made.flush(SECONDS) == 0
    return made


@pytest.fixture
def txn(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> Txn:
    """The command: it returns its exit code, and all that it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["txn", *arguments, "--bootstrap-servers", broker.bootstrap_servers])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


@pytest.fixture
def txn_json(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[Any]]:
    """The command with `--json`: it returns the objects that it printed."""

    def run(*arguments: str) -> list[Any]:
        assert main(["txn", *arguments, "--bootstrap-servers", broker.bootstrap_servers, "--json"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return [json.loads(line) for line in printed.out.splitlines()]

    return run


def committed(sink: SinkSettings) -> WriteHandle:
    """The ticket of a batch of two rows that is committed."""
    handle = driver.begin(sink)
    driver.commit(sink, [inline(handle, 0, batch(TOPIC, 1, "a", "b"))], 0)
    return handle


def test_a_sink_whose_first_write_is_open_is_listed_and_described(sink: SinkSettings, tasks: Tasks, txn: Txn) -> None:
    """It was missing from the list, as if no transaction held readers back."""
    left = tasks.fill(0, driver.begin(sink).transaction_version, {(TOPIC, 0): ["never"]})
    assert txn("list") == (0, f"{SINK}  {NO_BATCH}  open: 1\n    {left.transactional_id}\n")
    code, shown = txn("describe", SINK)
    assert code == 0
    assert shown.startswith(f"{SINK}: {NO_BATCH}\nopen: {left.transactional_id}  Ongoing")
    assert f"pyproducer txn resolve {SINK} (only if its control topic is __pyproducer_commits)" in shown
    code, shown = txn("describe", SINK[:-1])
    assert code == 1
    assert f"It knows 1 sink: {SINK}" in shown


def test_open_transactions_are_listed_although_there_is_no_control_topic(tasks: Tasks, txn: Txn) -> None:
    left = tasks.fill(0, TransactionVersion.EXPLICIT, {(TOPIC, 0): ["never"]})
    code, shown = txn("list")
    assert code == 1
    first, second, last = shown.splitlines()
    assert (first, second) == (f"{SINK}  its last batch is unknown  open: 1", f"    {left.transactional_id}")
    assert "there is no topic '__pyproducer_commits'" in last


def test_the_drivers_own_transaction_is_one_of_its_sink(broker: LocalBroker, txn: Txn, sink: SinkSettings) -> None:
    driver.begin(sink)
    own = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": control_id(SINK), "log_level": 0}
    )
    own.init_transactions(SECONDS)
    own.begin_transaction()
    own.produce(TOPIC, b"x")
    assert own.flush(SECONDS) == 0
    assert txn("list") == (0, f"{SINK}  {NO_BATCH}  open: 1\n    {control_id(SINK)}\n")
    code, shown = txn("resolve", SINK, "--yes")
    assert code == 0
    assert shown.endswith(f"resolved: {NO_BATCH}\n    the transactions that were left open are aborted\n")
    assert txn("list") == (0, "no sink has written to __pyproducer_commits\n")


@pytest.mark.parametrize(
    "action",
    [
        ["list"],
        ["list", "--control-topic", "nosuch"],
        ["describe", SINK],
        ["resolve", SINK, "--yes"],
        ["repair", SINK, "--yes"],
    ],
)
def test_a_missing_control_topic_is_reported_at_once(txn: Txn, action: list[str]) -> None:
    """The error took seven seconds, and then advised to start a broker."""
    began = time.monotonic()
    code, shown = txn(*action)
    assert time.monotonic() - began < 4
    assert code == 1
    named = action[-1] if "--control-topic" in action else driver.CONTROL_TOPIC
    assert shown.startswith(f"pyproducer: there is no topic {named!r}: ")
    assert len(shown.splitlines()) == 1


def test_a_stranger_that_holds_readers_back_is_named(sink: SinkSettings, txn: Txn, stranger: ConfluentProducer) -> None:
    committed(sink)
    code, shown = txn("describe", SINK, "--topic", TOPIC)
    assert code == 0
    assert "\n        billing-1  Ongoing for " in shown
    assert "\nnext: billing-1 is not an id of pyproducer: its program must end the transaction" in shown
    stranger.abort_transaction(SECONDS)


def test_who_holds_the_readers_of_a_topic_is_shown_without_a_sink(
    tasks: Tasks, txn: Txn, stranger: ConfluentProducer
) -> None:
    """The command needs no control topic, either."""
    left = tasks.fill(0, TransactionVersion.EXPLICIT, {(TOPIC, 1): ["never"]})
    code, shown = txn("describe", "--topic", TOPIC)
    assert code == 0
    assert f"readers of {TOPIC}-0 are blocked at offset 0; the log ends at 1" in shown
    assert "\n        billing-1  Ongoing for " in shown
    assert f"\n        {left.transactional_id}  Ongoing for " in shown
    assert f"\nnext: readers wait for the sink {SINK}: pyproducer txn describe {SINK}\nnext: billing-1 is" in shown
    stranger.abort_transaction(SECONDS)


def test_a_topic_without_blocked_readers(txn: Txn) -> None:
    assert txn("describe", "--topic", TOPIC) == (0, f"no transaction blocks readers of {TOPIC}\n")
    code, shown = txn("describe")
    assert code == 1
    assert "Give SINK, or --topic, or both" in shown


def test_resolve_says_whether_anything_was_left_open(sink: SinkSettings, tasks: Tasks, txn: Txn) -> None:
    """The second time it said, too, that what was left open is aborted."""
    tasks.fill(0, committed(sink).transaction_version, {(TOPIC, 0): ["never"]})
    assert txn("resolve", SINK, "--yes")[1].endswith("\n    the transactions that were left open are aborted\n")
    code, shown = txn("resolve", SINK, "--yes")
    assert code == 0
    assert shown.endswith("resolved: INTENT, batch 0, last done: 0\n    nothing was left open\n")


def test_accept_difference_says_what_is_forgotten(sink: SinkSettings, txn: Txn) -> None:
    committed(sink)
    code, shown = txn("resolve", SINK, "--accept-row-count-mismatch", "--yes")
    assert code == 0
    assert shown.endswith("\n    nothing was left open\n    forgotten: the row count of batch 0, 2\n")
    code, shown = txn("resolve", SINK, "--accept-row-count-mismatch", "--yes")
    assert shown.endswith("\n    the row count of batch 0 was unknown before: nothing is forgotten\n")


def test_accept_difference_before_any_batch_says_that_there_is_nothing_to_forget(
    sink: SinkSettings, tasks: Tasks, txn: Txn
) -> None:
    tasks.fill(0, driver.begin(sink).transaction_version, {(TOPIC, 0): ["never"]})
    code, shown = txn("resolve", SINK, "--accept-row-count-mismatch", "--yes")
    assert code == 0
    assert shown.endswith("are aborted\n    there is no batch whose row count could be forgotten\n")


def test_a_sink_as_json(
    sink: SinkSettings, tasks: Tasks, txn: Txn, txn_json: Callable[..., list[Any]], stranger: ConfluentProducer
) -> None:
    left = tasks.fill(0, committed(sink).transaction_version, {(TOPIC, 1): ["never"]})
    listed = txn_json("list")
    check_keys("txn list", listed)
    (line,) = [line for line in listed if line["sink"] == SINK]
    assert (line["record"]["status"], line["record"]["last_done"]) == ("DONE", 0)
    assert line["open"] == [left.transactional_id]
    (found,) = txn_json("describe", SINK, "--topic", TOPIC)
    assert [one["transactional_id"] for one in found["open"]] == [left.transactional_id]
    assert found["open"][0]["partitions"] == [{"topic": TOPIC, "partition": 1}]
    blocking = {one["partition"]: one["producers"] for one in found["blocked_readers"] if one["topic"] == TOPIC}
    assert blocking[0][0]["transaction"]["transactional_id"] == "billing-1"
    assert "pyproducer txn resolve" in found["next"][0]
    (topic,) = txn_json("describe", "--topic", TOPIC)
    assert topic.keys() == found.keys()
    assert (topic["sink"], len(topic["blocked_readers"])) == (None, 2)
    assert txn("resolve", SINK, "--json") == (
        1,
        "pyproducer: nothing was changed: with --json no question is asked. Give --yes\n",
    )
    resolved = txn_json("resolve", SINK, "--yes")
    check_keys("txn resolve", resolved)
    assert resolved[0]["changes"] == ["the transactions that were left open are aborted"]
    assert txn_json("repair", SINK, "--yes") == [{"sink": SINK, "written_markers": []}]
    stranger.abort_transaction(SECONDS)


def test_the_keys_of_a_description_and_of_a_repair() -> None:
    """With everything that a sink can have at once."""
    place = TopicPartition(TOPIC, 0)
    task = TaskTransaction("task", 7, 0, TransactionVersion.EXPLICIT, (Span(TOPIC, 0, 1, 2, 2),))
    record = ControlRecord(SINK, None, Status.PARTIAL, 3, -1, "token", (task,))
    opened = OpenTransaction("task", "Ongoing", 5, 60_000, (place,))
    lost = LostMarker(place, 7, 0, 0, 1, None)
    found = SinkDescription(
        ControlLogState(record, 1, 0, ()),
        1_000,
        None,
        (opened,),
        (BlockedReaders(place, 1, 3, (BlockingProducer(7, 0, 1, opened),)), BlockedReaders(place, 1, 3, None)),
        LostMarkers((lost,), (place,)),
        (TransactionOutcome.MIXED,),
    )
    shown = json.loads(as_json(description_fields(SINK, found, ["wait"])))
    known = documented_commands()["txn describe"]
    assert shown["blocked_readers"][1]["producers"] is None
    check_keys("txn describe", [shown])
    assert {path.partition(".")[0].partition("[")[0] for path in known} == topic_fields((), ()).keys()
    assert (shown["record"]["batch"], shown["record"]["last_done"]) == (3, None)
    assert shown["transactions"][0]["outcome"] == "mixed"
    assert shown["lost_markers"][0]["outcome"] is None
    written = repaired_fields(SINK, [lost._replace(commit=True)])
    check_keys("txn repair", [json.loads(as_json(written))])


def test_a_record_that_cannot_be_read_is_an_error_in_the_list() -> None:
    fields = summary_fields(SinkSummary(SINK, ExactlyOnceError("version 9"), 1_000, ()))
    assert (fields["record"], fields["error"], fields["written_ms"]) == (None, "version 9", 1_000)
    assert summary_fields(SinkSummary(SINK, None, -1, ("task",)))["written_ms"] is None
