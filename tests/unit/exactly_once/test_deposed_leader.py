"""A leader that was deposed and does not know it, and brokers that still name it: it never shows the last control record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.exchange import NodeRequest, ResponseOrError
from spark_producer.common.error_codes import Code
from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.protocol.commands import DescribeControlId, Fence, Fenced, Found, ReadControl
from spark_producer.protocol import (
    DESCRIBE_TRANSACTIONS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    messages,
)
from tests.fakes.scripted_client import LOST, ScriptedClient
from tests.unit.exactly_once.cluster.test_control_log import COMMIT, PARTITION_0, Log, control_record

DEPOSED, ELECTED = 1, 2
EPOCHS = {DEPOSED: 5, ELECTED: 6}


class CutOff(ScriptedClient):
    """Broker 1 leads by its own word, and has seen less than broker 2, which leads. 2 coordinates; `request_any` broker is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = ELECTED
        self.logs = {DEPOSED: Log(), ELECTED: Log()}
        self.topic_id = b"first"
        self.silent_coordinator = 0
        self.healed = False
        """Whether all brokers have the metadata of the election."""
        row = messages.DescribedTransaction(0, "pyproducer.orders.ctl", "CompleteCommit", producer_id=7)
        self.answers(DESCRIBE_TRANSACTIONS, messages.DescribeTransactionsResponse(0, (row,)))
        self.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse())
        self.answers(INIT_PRODUCER_ID, messages.InitProducerIdResponse(0, 0, 7, 4))
        for log in self.logs.values():
            log.write(7, control_record(0))
            log.decide(7, COMMIT)

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = None) -> messages.MetadataResponse:
        self.sent.append((METADATA.name, node, topics))
        if node == self.coordinator and self.silent_coordinator:
            self.silent_coordinator -= 1
            raise LOST
        leader = ELECTED if node == ELECTED or self.healed else DEPOSED
        self.brokers = {1: ("one", 9092), 2: ("two", 9092)}
        reported = tuple(messages.MetadataResponseBroker(each, *address) for each, address in self.brokers.items())
        row = messages.MetadataResponsePartition(0, 0, leader, EPOCHS[leader])
        names = tuple(
            messages.MetadataResponseTopic(name=each, topic_id=self.topic_id, partitions=(row,)) for each in topics
        )
        return messages.MetadataResponse(brokers=reported, topics=names)

    def request_all(self, calls: Sequence[NodeRequest], deadline: float) -> list[ResponseOrError]:
        return [
            self._led(call)
            if call.api in (FETCH, LIST_OFFSETS)
            else super(CutOff, self).request_all([call], deadline)[0]
            for call in calls
        ]

    def _led(self, call: NodeRequest) -> Any:
        """A broker of which a newer epoch is asked knows none such (75); one of which an older is asked refuses it (74)."""
        assert call.node is not None
        self.sent.append((call.api.name, call.node, call.body))
        own, asked = EPOCHS[call.node], call.body.topics[0].partitions[0].current_leader_epoch
        code = Code.NONE
        if asked >= 0 and asked != own:
            code = Code.UNKNOWN_LEADER_EPOCH if asked > own else Code.FENCED_LEADER_EPOCH
        if call.api is FETCH:
            if code:
                refused = messages.FetchPartitionResponse(0, code)
                return messages.FetchResponse(
                    responses=(messages.FetchTopicResponse(PARTITION_0[0], partitions=(refused,)),)
                )
            return self.logs[call.node].client.scripts[FETCH.name](call.body)
        if code:
            row = messages.ListOffsetsPartitionResponse(0, code)
            return messages.ListOffsetsResponse(0, (messages.ListOffsetsTopicResponse(PARTITION_0[0], (row,)),))
        return self.logs[call.node].offset(call.body)

    def commit(self, batch: int) -> None:
        """A driver commits through the leader."""
        self.logs[ELECTED].write(7, control_record(batch))
        self.logs[ELECTED].decide(7, COMMIT)


def cluster_of(client: CutOff) -> CommandExecutor:
    return CommandExecutor(cast("BlockingClient", client), "orders", PARTITION_0[0])


@pytest.mark.parametrize("command", [Fence(), DescribeControlId()])
def test_the_last_record_is_that_of_the_leader_which_the_coordinator_knows(command: Any) -> None:
    """The older one would have a batch written again that is done."""
    client = CutOff()
    client.commit(1)
    cluster = cluster_of(client)
    cluster.perform(command)
    assert cluster.perform(ReadControl()) == Found(control_record(1))


def test_a_coordinator_without_a_response_is_fenced_again() -> None:
    """The leader that replaces it must have answered a fence too."""
    client = CutOff()
    client.silent_coordinator = 2
    assert isinstance(cluster_of(client).perform(Fence()), Fenced)
    assert len(client.bodies(INIT_PRODUCER_ID)) == 3


def test_who_has_read_further_takes_a_shorter_log_for_that_of_a_deposed_leader() -> None:
    """The driver took the topic for a recreated one, and went back to an older record."""
    client = CutOff()
    client.commit(1)
    cluster = cluster_of(client)
    cluster.perform(Fence())
    cluster.perform(ReadControl())
    client.commit(2)
    cluster.brokers.forget_leaders([PARTITION_0])
    began = client.clock()
    with pytest.raises(KafkaTimeout, match="live leader of commits-0"):
        cluster.perform(ReadControl())
    assert client.clock() > began
    cluster.perform(Fence())
    assert cluster.perform(ReadControl()) == Found(control_record(2))


def test_a_log_that_is_shorter_than_before_is_looked_at_again() -> None:
    client = CutOff()
    client.healed = True
    client.commit(1)
    cluster = cluster_of(client)
    cluster.perform(Fence())
    assert cluster.perform(ReadControl()) == Found(control_record(1))
    log = client.logs[ELECTED]
    whole, log.end = log.end, 1
    pause = client.pause

    def caught_up(seconds: float) -> None:
        pause(seconds)
        log.end = whole

    client.pause = caught_up  # type: ignore[method-assign]
    assert cluster.perform(ReadControl()) == Found(control_record(1))


def test_a_recreated_topic_is_read_from_its_start_even_if_it_is_longer() -> None:
    client = CutOff()
    cluster = cluster_of(client)
    cluster.perform(Fence())
    assert cluster.perform(ReadControl()) == Found(control_record(0))
    client.topic_id = b"second"
    log = client.logs[ELECTED]
    log.batches, log.end = [], 0
    for batch in (7, 6):
        client.commit(batch)
    log.write(7, control_record(5, "others"))
    cluster.perform(Fence())
    assert cluster.perform(ReadControl()) == Found(control_record(6))


def test_a_topic_that_is_recreated_after_its_end_was_asked_ahead_is_read_to_its_new_end() -> None:
    """The last response was about the topic before it, which was longer."""
    client = CutOff()
    client.healed = True
    for batch in (1, 2, 3):
        client.commit(batch)
    cluster = cluster_of(client)
    cluster.perform(Fence())
    assert cluster.perform(ReadControl()) == Found(control_record(3))
    log, metadata = client.logs[ELECTED], client.metadata

    def recreated(*given: Any) -> messages.MetadataResponse:
        client.metadata = metadata  # type: ignore[method-assign]
        client.topic_id, log.batches, log.end = b"second", [], 0
        client.commit(4)
        return metadata(*given)

    client.metadata = recreated  # type: ignore[assignment, method-assign]
    cluster.perform(Fence())
    assert cluster.perform(ReadControl()) == Found(control_record(4))
