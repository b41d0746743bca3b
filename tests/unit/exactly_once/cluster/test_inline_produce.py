"""The rows of inline tasks on their way: their order, what is sent again, what waits, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_producer.common.cluster import TransactionVersion
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, PyProducerError
from spark_producer.exactly_once.cluster.inline_produce import InlineProduce
from spark_producer.exactly_once.protocol.commands import FencedOff, Indeterminate
from spark_producer.protocol import PRODUCE
from spark_producer.protocol.messages import ProduceResponse
from tests.fakes.scripted_client import LOST, TIMEOUT_S, ScriptedClient, brokers_of
from tests.unit.exactly_once.test_performers import OURS, ROWS, Log, batches


@pytest.fixture
def client() -> ScriptedClient:
    made = ScriptedClient()
    made.leaders = {ROWS: 2}
    return made


def produce(
    client: ScriptedClient,
    log: Callable[[Any], Any],
    count: int,
    level: TransactionVersion = TransactionVersion.EXPLICIT,
) -> Any:
    client.scripts[PRODUCE.name] = log
    made = InlineProduce(brokers_of(client), "id", OURS, level, {ROWS: batches(ROWS, count)}, {})
    return made.run(client.deadline())


def test_batches_keep_their_order_and_sequences_when_the_leader_moves(client: ScriptedClient) -> None:
    log = Log(0, Code.NOT_LEADER_OR_FOLLOWER, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert produce(client, log, 4) is None
    assert log.taken == [("rows", 0, sequence) for sequence in (0, 2, 4, 6)]
    assert log.refused == [("rows", 0, sequence) for sequence in (2, 4, 6)]


def test_what_is_too_large_for_a_topic_is_cut_with_all_batches_of_its_size(client: ScriptedClient) -> None:
    """The second batch is refused, and the third is in flight after it; both are sent in halves, with their sequences."""
    log = Log(0, Code.MESSAGE_TOO_LARGE, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert produce(client, log, 3) is None
    assert log.refused == [("rows", 0, sequence) for sequence in (2, 4)]
    assert log.taken == [("rows", 0, sequence) for sequence in (0, 2, 3, 4, 5)]
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        produce(client, Log(*[Code.MESSAGE_TOO_LARGE] * 2), 1)


@pytest.mark.parametrize(
    ("level", "expected"), [(TransactionVersion.EXPLICIT, [1, 5, 5, 1]), (TransactionVersion.IMPLICIT, [5, 5, 2])]
)
def test_at_most_five_batches_of_a_partition_fly_each_in_a_request_of_its_own(
    client: ScriptedClient, level: TransactionVersion, expected: list[int]
) -> None:
    """The first alone, so that no leader takes another in its place, unless leaders refuse such a one."""
    flights: list[int] = []
    request_all = client.request_all

    def counted(calls: Any, deadline: float) -> Any:
        flights.append(sum(call.api.name == PRODUCE.name for call in calls))
        return request_all(calls, deadline)

    client.request_all = counted  # type: ignore[method-assign]
    assert produce(client, Log(), 12, level) is None
    assert [flight for flight in flights if flight] == expected
    assert all(len(body.topic_data[0].partition_data) == 1 for body in client.bodies(PRODUCE))


def test_batches_that_follow_a_refused_first_one_are_sent_again_in_order(client: ScriptedClient) -> None:
    """From Produce 12 on a leader without state takes no other first sequence than 0."""
    log = Log(Code.MESSAGE_TOO_LARGE, *[Code.OUT_OF_ORDER_SEQUENCE_NUMBER] * 3)
    assert produce(client, log, 4, TransactionVersion.IMPLICIT) is None
    assert [sequence for _, _, sequence in log.refused] == [0, 2, 4, 6]
    assert [sequence for _, _, sequence in log.taken] == [*range(8)]


def test_only_what_was_refused_makes_the_next_batches_wait(client: ScriptedClient) -> None:
    began = client.clock()
    assert produce(client, Log(), 2_000) is None
    assert client.clock() == began
    refused = Log(0, *[Code.NOT_ENOUGH_REPLICAS] * 15)
    assert produce(client, refused, 2_000) is None
    assert 0 < client.clock() - began < 0.1, "the pauses begin again after an acknowledgement"
    assert [sequence for _, _, sequence in refused.taken] == [*range(0, 4_000, 2)]


def test_batches_after_a_refused_one_wait_for_it_until_the_deadline(
    client: ScriptedClient,
) -> None:
    began = client.clock()
    assert isinstance(produce(client, Log(0, *[Code.NOT_ENOUGH_REPLICAS] * 10_000), 3), Indeterminate)
    assert client.clock() - began > TIMEOUT_S / 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (LOST, Indeterminate),
        (Log(Code.OUT_OF_ORDER_SEQUENCE_NUMBER), Indeterminate),
        (Log(Code.INVALID_PRODUCER_EPOCH), FencedOff),
        (Log(Code.INVALID_PRODUCER_ID_MAPPING), FencedOff),
        (Log(*[Code.NOT_ENOUGH_REPLICAS] * 10_000), Indeterminate),
    ],
)
def test_what_ends_the_production_of_rows(client: ScriptedClient, answer: Any, kind: type) -> None:
    log = (lambda _: answer) if isinstance(answer, PyProducerError) else answer
    assert isinstance(produce(client, log, 1), kind)


FORMER, NEWER = bytes([1] * 16), bytes([2] * 16)


def created_again(client: ScriptedClient, log: Log, after: int) -> Callable[[Any], Any]:
    """Answer as `log`, until the topic is created again after that many batches: then refuse the former id (KIP-516)."""
    client.topic_id = FORMER

    def answer(body: Any) -> Any:
        if len(log.taken) >= after:
            client.topic_id = NEWER
        (topic,) = body.topic_data
        if topic.topic_id != client.topic_id:
            log.codes[:0] = [Code.UNKNOWN_TOPIC_ID] * len(topic.partition_data)
        (row,) = log(body).responses
        return ProduceResponse((row._replace(name="", topic_id=topic.topic_id),))

    return answer


def test_rows_go_to_the_topic_that_has_the_name_now_if_none_is_acknowledged(client: ScriptedClient) -> None:
    log = Log()
    assert produce(client, created_again(client, log, 0), 2, TransactionVersion.IMPLICIT) is None
    assert [sequence for _, _, sequence in log.taken] == [0, 2]
    assert {body.topic_data[0].topic_id for body in client.bodies(PRODUCE)[-2:]} == {NEWER}


def test_a_write_is_refused_if_its_topic_is_created_again_after_the_first_batch(client: ScriptedClient) -> None:
    """The rest would be committed to another topic than the first batch."""
    stop = produce(client, created_again(client, Log(), 1), 7, TransactionVersion.IMPLICIT)
    assert stop == Indeterminate("topic 'rows' was deleted and created again, and acknowledged rows are lost")
    assert {body.topic_data[0].topic_id for body in client.bodies(PRODUCE)} == {FORMER}


def test_without_ids_the_rows_are_sent_by_name(client: ScriptedClient) -> None:
    versions: set[int] = set()
    request_all = client.request_all

    def noted(calls: Any, deadline: float) -> Any:
        versions.update(call.api.max_version for call in calls if call.api.key == PRODUCE.key)
        return request_all(calls, deadline)

    client.request_all = noted  # type: ignore[method-assign]
    for topic_id, newest in ((bytes(16), 12), (FORMER, 13)):
        versions.clear()
        client.topic_id = topic_id
        assert produce(client, Log(), 2, TransactionVersion.IMPLICIT) is None
        assert versions == {newest}
