"""A transactional sender: calls as the I/O thread sees them, and coordinators that answer by a script.

Owns: which requests were sent, in words; epochs as a coordinator gives them. Must not know: what is tested.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_producer.accumulator import ProducerIdAndEpoch
from spark_producer.common.cluster import TRANSACTIONS, TopicPartition
from spark_producer.errors import ConnectionFailed, PyProducerError
from spark_producer.protocol import METADATA
from spark_producer.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataResponse,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from spark_producer.record.batch_v2 import BatchHeader, read_header
from spark_producer.sender import ClientRequest
from spark_producer.sender.transactions.manager import TransactionManager
from spark_producer.sender.transactions.states import Operation, TxnCall, TxnState
from tests.fakes.coordinator_answers import coordinated, kind_of
from tests.fakes.sender_fakes import TOPIC, SenderFakes, answer_to, metadata_of, sender_fakes

TID = "orders-1"
LOST = ConnectionFailed("cut")

Answer = int | PyProducerError | Mapping[int, int]
"""An error code, one for each partition, or why there is no answer."""


@dataclass
class TransactionFakes:
    """The sender, its coordinators, and what was sent."""

    made: SenderFakes
    script: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    """The next answers to requests by name; without any, they succeed."""
    holding: set[str] = field(default_factory=set)
    """Names of requests that get no response."""
    held: list[ClientRequest] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    """Producer id and epoch of all batches sent."""
    requests: list[ClientRequest] = field(default_factory=list)
    """Requests to coordinators, and Produce."""
    identity: ProducerIdAndEpoch = ProducerIdAndEpoch(77, -1)  # noqa: RUF009 - a named tuple
    written: dict[TopicPartition, int] = field(default_factory=dict)
    nodes: tuple[int, ...] = (1, 2)
    """Nodes of the cluster; the last one leads all partitions if node 1 is not among them."""
    metadata: MetadataResponse | None = None
    """The brokers' metadata of the topic, instead of its three partitions."""
    group_node: int = 2
    transaction_node: int = 1

    @property
    def manager(self) -> TransactionManager:
        found = self.made.sender.transactions
        assert found is not None
        return found

    @property
    def state(self) -> TxnState:
        return self.manager.state

    def implicit(self, level: int = 2) -> None:
        """The cluster agrees on a level of transaction.version."""
        self.made.network.levels[TRANSACTIONS] = level

    def ask(self, call: TxnCall, argument: object = None) -> Operation:
        """A call of another thread; nothing is done about it before the next step."""
        operation = Operation(call, argument)
        self.manager.calls.append(operation)
        return operation

    def do(self, call: TxnCall, argument: object = None) -> Operation:
        """A call, and everything that follows from it."""
        operation = self.ask(call, argument)
        self.run()
        return operation

    def begin(self) -> None:
        """Init, and begin the first transaction."""
        assert self.do(TxnCall.INIT).error is None
        assert self.do(TxnCall.BEGIN).error is None
        self.sent.clear()

    def run(self, seconds: float = 60.0) -> None:
        """Steps and answers until nothing is left to do, or everything waits for `holding`. The clock jumps over pauses."""
        end = self.made.now + seconds
        for _ in range(500):
            step = self.made.step()
            for outgoing in step.requests:
                self.take(outgoing)
            if step.requests:
                continue
            waits = self.manager.next_request() is not None or any(self.made.fakes.incomplete.remaining())
            if self.manager.busy or not waits or step.wake_at is None or step.wake_at > end:
                return
            self.made.fakes.clock.now = step.wake_at
        raise AssertionError("the sender does not come to rest")

    def take(self, outgoing: ClientRequest) -> None:
        """A request is on its way: held back, or answered at once."""
        if outgoing.api is METADATA:
            leader = 1 if 1 in self.nodes else self.nodes[-1]
            self.made.complete(
                outgoing, self.metadata or metadata_of({TOPIC: (leader, leader, self.nodes[-1])}, self.nodes)
            )
            return
        self.requests.append(outgoing)
        self.sent.append(describe(outgoing))
        if isinstance(outgoing.body, ProduceRequest):
            for topic in outgoing.body.topic_data:
                self.headers += [_header(part.records) for part in topic.partition_data]
        if self.sent[-1].split()[0] in self.holding:
            self.held.append(outgoing)
        else:
            self.answer(outgoing)

    def answer_held(self) -> None:
        """Answer what was held back, as the script says."""
        held, self.held = self.held, []
        for outgoing in held:
            self.answer(outgoing)

    def answer(self, outgoing: ClientRequest) -> None:
        queue = self.script[describe(outgoing).split()[0]]
        answer = queue.pop(0) if queue else 0
        if isinstance(answer, PyProducerError):
            self.made.complete(outgoing, error=answer)
            return
        self.made.complete(outgoing, self.body(outgoing, answer))

    def body(self, outgoing: ClientRequest, code: Any) -> object:
        """The answer of the broker that is asked."""
        asked = outgoing.body
        if isinstance(asked, ProduceRequest):
            return self._written(outgoing, code)
        implicit = isinstance(asked, EndTxnRequest) and outgoing.api.min_version >= 5
        if not code and (implicit or isinstance(asked, InitProducerIdRequest)):
            self.identity = ProducerIdAndEpoch(self.identity.producer_id, self.identity.epoch + 1)
        group = isinstance(asked, FindCoordinatorRequest) and not asked.key_type
        node = self.group_node if group else self.transaction_node
        return coordinated(asked, code, self.identity, node=node, implicit=implicit)

    def _written(self, outgoing: ClientRequest, code: Any) -> object:
        """Offsets that go on from one batch of a partition to the next."""
        answer = answer_to(outgoing, code)
        responses = []
        for topic, batch in zip(answer.responses, outgoing.batches, strict=True):
            (part,) = topic.partition_responses
            if not part.error_code:
                offset = self.written.get(batch.topic_partition, 0)
                self.written[batch.topic_partition] = offset + batch.records_count
                part = part._replace(base_offset=offset)
            responses.append(topic._replace(partition_responses=(part,)))
        return answer._replace(responses=tuple(responses))


def _header(records: object) -> BatchHeader:
    assert isinstance(records, memoryview)
    return read_header(records)


def describe(outgoing: ClientRequest) -> str:
    """A request as a test names it; the first word is the name that `script` and `holding` know."""
    body = outgoing.body
    if isinstance(body, ProduceRequest):
        return "produce " + ",".join(str(batch.topic_partition.partition) for batch in outgoing.batches)
    name = kind_of(body)
    if isinstance(body, FindCoordinatorRequest):
        return f"{name} {'transaction' if body.key_type else 'group'}"
    if isinstance(body, InitProducerIdRequest):
        return name if body.producer_id < 0 else f"{name} {body.producer_epoch}"
    if isinstance(body, AddPartitionsToTxnRequest):
        return f"{name} " + ",".join(str(number) for topic in body.v3_and_below_topics for number in topic.partitions)
    if isinstance(body, AddOffsetsToTxnRequest | TxnOffsetCommitRequest):
        return f"{name} {body.group_id}"
    return name


def transaction_fakes(*, implicit: bool = False, **options: Any) -> TransactionFakes:
    """A transactional sender whose metadata is known, and nothing else."""
    made = sender_fakes(ready=False, transactional_id=TID, **options)
    made.metadata.request_topics(TOPIC)
    made.learn(metadata_of({TOPIC: (1, 1, 2)}))
    found = TransactionFakes(made)
    if implicit:
        found.implicit()
    return found
