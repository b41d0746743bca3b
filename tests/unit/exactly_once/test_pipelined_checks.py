"""The check that is pipelined after the rows of a control write: whether it counts, and what follows if it shows other rows."""

from __future__ import annotations

from typing import Any

import pytest

from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.common.error_codes import Code
from spark_producer.exactly_once.cluster.control_write import MAX_WAIT_OF_CHECK_S, ControlWrite
from spark_producer.exactly_once.cluster.coordinator_state import describe
from spark_producer.exactly_once.cluster.early_requests import MAX_AGE_S
from spark_producer.exactly_once.cluster.end_transactions import end_tasks
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan, find_uncommittable
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import (
    ControlWritten,
    Ended,
    OlderTransactionHangs,
    WriteControl,
    WriteResult,
)
from spark_producer.protocol import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    PRODUCE,
)
from tests.fakes.scripted_client import ScriptedClient, brokers_of
from tests.unit.exactly_once.test_performers import (
    CONTROL,
    OURS,
    RECORD,
    ROWS,
    TASK,
    Log,
    added,
    batches,
    described,
    ended,
    producing,
)

BOTH = {ROWS: 100, CONTROL: 102}


@pytest.fixture
def client() -> ScriptedClient:
    made = ScriptedClient()
    made.leaders = {ROWS: 2, CONTROL: 1}
    made.scripts[PRODUCE.name] = Log()
    made.scripts[DESCRIBE_TRANSACTIONS.name] = described("CompleteCommit")
    made.answers(ADD_PARTITIONS_TO_TXN, added(rows=0, commits=0))
    made.answers(END_TXN, ended(0, *OURS))
    return made


def checks_show(client: ScriptedClient, *starts: dict[TopicPartition, int]) -> None:
    """The start of the transaction by each check of the leaders until its end: two requests, one to each leader."""
    left = [each for one in starts for each in (one, one)]

    def answer(body: Any) -> Any:
        is_ended = bool(client.bodies(END_TXN))
        return producing({} if is_ended or not client.bodies(PRODUCE) else left.pop(0))(body)

    client.scripts[DESCRIBE_PRODUCERS.name] = answer


def write(client: ScriptedClient, level: int = TransactionVersion.IMPLICIT, *, pause: float = 0) -> WriteResult:
    """Write a record and a row to a cluster that is known, with a pause when the first requests are sent."""
    brokers = brokers_of(client)
    brokers.leaders([ROWS, CONTROL], client.deadline())
    brokers.coordinators([control_id(brokers.sink)], client.deadline())
    command = WriteControl(OURS, RECORD._replace(inline=(ROWS,)), inline=True)
    made = ControlWrite(brokers, CONTROL[0], TransactionVersion(level), command, client.deadline())
    made.begin({ROWS: batches(ROWS, 1)}, 4096)
    client.pause(pause)
    return made.run({ROWS: batches(ROWS, 1)}, 4096)


def sent(client: ScriptedClient) -> list[tuple[str, int | None]]:
    """Return the requests to each node from the rows to the end of the transaction."""
    names = [name for name, _, _ in client.sent]
    return [(name, node) for name, node, _ in client.sent[names.index(PRODUCE.name) : names.index(END_TXN.name)]]


@pytest.mark.parametrize("level", TransactionVersion)
def test_checks_follow_the_rows_on_the_same_connections(client: ScriptedClient, level: int) -> None:
    checks_show(client, BOTH)
    assert write(client, level) == ControlWritten(OURS)
    assert sent(client) == [(api.name, node) for api in (PRODUCE, DESCRIBE_PRODUCERS) for node in (2, 1)]


def test_a_check_that_does_not_show_the_rows_is_repeated(client: ScriptedClient) -> None:
    checks_show(client, {}, BOTH)
    assert write(client) == ControlWritten(OURS)
    assert len(sent(client)) == 6


@pytest.mark.parametrize(("waited", "checks"), [(0.9, 1), (1.1, 2)])
def test_a_check_whose_response_seconds_waited_for_others_is_repeated(
    client: ScriptedClient, waited: float, checks: int
) -> None:
    """The vote of a write may take long, and a topic be created again meanwhile."""
    checks_show(client, BOTH, BOTH)
    assert write(client, pause=MAX_WAIT_OF_CHECK_S * waited) == ControlWritten(OURS)
    assert len(sent(client)) == 2 + 2 * checks


def test_all_leaders_are_checked_again_after_one_that_took_long(client: ScriptedClient) -> None:
    """Such as one that was just elected: the topic of another one may be gone since its response."""
    spans = [TransactionSpan(OURS.producer_id, *ROWS, 100, 101), TransactionSpan(OURS.producer_id, *CONTROL, 102, 102)]

    def answer(body: Any) -> Any:
        if body.topics[0].name == CONTROL.topic and not client.clock():
            client.pause(MAX_AGE_S * 1.1)
        return producing({CONTROL: 102} if client.clock() else BOTH)(body)

    client.scripts[DESCRIBE_PRODUCERS.name] = answer
    assert find_uncommittable(brokers_of(client), spans, client.deadline()).gone == spans[:1]


def test_an_older_transaction_that_the_check_shows_ends_the_write(client: ScriptedClient) -> None:
    checks_show(client, {**BOTH, ROWS: 50})
    assert write(client) == OlderTransactionHangs((ROWS,))
    assert [body.committed for body in client.bodies(END_TXN)] == [False]


def test_the_state_after_the_end_is_asked_for_with_it_and_again_if_it_is_repeated(client: ScriptedClient) -> None:
    """A state from before the last EndTxn may be that of an open transaction."""
    checks_show(client, BOTH)
    client.answers(END_TXN, ended(Code.CONCURRENT_TRANSACTIONS), ended(0, *OURS))
    assert write(client) == ControlWritten(OURS)
    names = [name for name, _, _ in client.sent if name in (END_TXN.name, DESCRIBE_TRANSACTIONS.name)]
    assert names == [END_TXN.name, DESCRIBE_TRANSACTIONS.name] * 2


@pytest.mark.parametrize("repeated", [False, True])
def test_the_states_of_tasks_are_asked_for_with_the_end_of_their_transactions(
    client: ScriptedClient, repeated: bool
) -> None:
    client.answers(END_TXN, *[ended(Code.CONCURRENT_TRANSACTIONS)] * repeated, ended())
    brokers = brokers_of(client)
    brokers.coordinators([control_id(brokers.sink)], client.deadline())
    assert end_tasks(brokers, [TASK], True, client.deadline()) == (Ended(),)
    describe(brokers, [TASK.transactional_id], client.deadline())
    assert len(client.bodies(DESCRIBE_TRANSACTIONS)) == 1 + repeated
    assert client.sent[-1][0] == DESCRIBE_TRANSACTIONS.name
