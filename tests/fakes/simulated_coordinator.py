"""Coordinators beside the simulated cluster: they fence, add and end transactions as Kafka's TransactionCoordinator does.

Owns: epochs, what is in each transaction, markers with a delay; the result of each batch. Must not know: what is asserted.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, field

from spark_producer.accumulator import ProducerIdAndEpoch
from spark_producer.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from spark_producer.record.batch_v2 import BatchHeader
from tests.fakes.coordinator_answers import coordinated
from tests.fakes.sender_fakes import TOPIC, SenderFakes
from tests.fakes.simulated_cluster import Flight, Log, SimulatedCluster

CONCURRENT, NOT_COORDINATOR, FENCED, STALE, BAD_STATE = 51, 16, 90, 47, 48
LAST_EPOCH = 32766


class Phase(enum.Enum):
    """The state of a transaction at its coordinator."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    ENDING = "ending"
    """decided, and not all markers are written yet"""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Attempt:
    """The batches of one transaction, and how it ended."""

    numbers: list[int] = field(default_factory=list)
    committed: bool | None = None


@dataclass
class SimulatedCoordinator:
    """One transactional id. `implicit`: transaction.version 2."""

    implicit: bool
    identity: ProducerIdAndEpoch = ProducerIdAndEpoch(0, -1)  # noqa: RUF009 - a named tuple
    previous: ProducerIdAndEpoch | None = None
    """The epoch before, by which a repeated EndTxn that raised the epoch is recognised."""
    raised_from: ProducerIdAndEpoch | None = None
    """The epoch before, if its owner has raised it; a new owner names none."""
    phase: Phase = Phase.EMPTY
    added: set[int] = field(default_factory=set)
    ready_at: float = 0.0
    attempts: list[Attempt] = field(default_factory=lambda: [Attempt()])
    commits: bool = False
    took_over: int = 0

    def tick(self, now: float) -> None:
        """The markers are written in the end."""
        if self.phase is Phase.ENDING and now >= self.ready_at:
            self.phase = Phase.COMMITTED if self.commits else Phase.ABORTED

    def end(self, now: float, delay: float, *, commit: bool, bump: bool) -> None:
        """Decide the transaction; markers follow."""
        self.attempts[-1].committed = commit
        self.attempts.append(Attempt())
        if bump:
            self.raise_epoch()
        self.added = set()
        self.commits, self.phase, self.ready_at = commit, Phase.ENDING, now + delay

    def raise_epoch(self) -> None:
        """The next epoch, or another producer id after the last one."""
        self.previous = self.identity
        producer, epoch = self.identity
        if epoch >= LAST_EPOCH:
            self.identity = ProducerIdAndEpoch(producer + 1, 0)
        else:
            self.identity = ProducerIdAndEpoch(producer, epoch + 1)

    def init(self, asked: InitProducerIdRequest, now: float, delay: float) -> int:
        """Fence, or give the next epoch; the code of the answer."""
        if self.phase is Phase.ENDING:
            return CONCURRENT
        known = None
        if asked.producer_id >= 0:
            known = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
            if known == self.raised_from:
                return 0  # the answer was lost
            if known != self.identity:
                return FENCED
        if self.phase is Phase.ONGOING:
            self.end(now, delay, commit=False, bump=True)
            return CONCURRENT
        self.raise_epoch()
        self.raised_from, self.phase = known, Phase.EMPTY
        return 0

    def add(self, asked: AddPartitionsToTxnRequest) -> int:
        """Add partitions."""
        if (asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch) != self.identity:
            return FENCED
        if self.phase is Phase.ENDING:
            return CONCURRENT
        self.phase = Phase.ONGOING
        self.added |= {number for topic in asked.v3_and_below_topics for number in topic.partitions}
        return 0

    def end_asked(self, asked: EndTxnRequest, now: float, delay: float) -> int:
        """Commit or abort."""
        known = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
        again = (
            self.implicit and known == self.previous and self.phase in (Phase.ENDING, Phase.COMMITTED, Phase.ABORTED)
        )
        if known != self.identity and not again:
            return FENCED
        if self.phase is Phase.ENDING:
            return CONCURRENT
        done = Phase.COMMITTED if asked.committed else Phase.ABORTED
        if self.phase is done and (again or not self.implicit):
            return 0
        if self.phase is not Phase.ONGOING:
            if (
                self.implicit and not asked.committed
            ):  # as Kafka 4.3 does, which takes the same abort once more after that
                self.raise_epoch()
                self.phase = Phase.ABORTED
                return 0
            return BAD_STATE
        self.end(now, delay, commit=asked.committed, bump=self.implicit)
        return 0

    def may_write(self, partition: int, header: BatchHeader) -> int:
        """Return the leader's error before it checks sequence numbers: it asks the coordinator (KIP-890)."""
        if (header.producer_id, header.producer_epoch) != self.identity:
            return STALE
        if self.phase is Phase.ENDING and self.implicit:
            return CONCURRENT
        if partition not in self.added:
            if not self.implicit:
                return BAD_STATE
            self.added.add(partition)
            self.phase = Phase.ONGOING
        return 0


@dataclass
class TransactionalLog(Log):
    """A partition that takes only what belongs to the open transaction."""

    partition: int = 0
    coordinator: SimulatedCoordinator = field(default_factory=lambda: SimulatedCoordinator(implicit=False))

    def append(self, header: BatchHeader, numbers: list[int]) -> tuple[int, int]:
        code = self.coordinator.may_write(self.partition, header)
        if code:
            return code, -1
        before = len(self.records)
        answer = super().append(header, numbers)
        self.coordinator.attempts[-1].numbers += self.records[before:]
        return answer


class TransactionalCluster(SimulatedCluster):
    """The simulated cluster with a coordinator that moves between its nodes."""

    def __init__(self, choose: random.Random, trouble: float, partitions: int, *, implicit: bool) -> None:
        super().__init__(choose, trouble, partitions)
        self.coordinator = SimulatedCoordinator(implicit)
        self.logs = [
            TransactionalLog(
                log.leader, log.largest, refusals=log.refusals, partition=number, coordinator=self.coordinator
            )
            for number, log in enumerate(self.logs)
        ]
        self.home = 1

    def finalized_level(self, feature: str) -> int:
        return 2 if self.coordinator.implicit else 0

    def move(self, made: SenderFakes) -> None:
        if self.choose.random() < 0.4:
            self.home = 3 - self.home
        else:
            super().move(made)

    def take_over(self) -> None:
        """Another producer with the same transactional id."""
        coordinator = self.coordinator
        coordinator.took_over += 1
        if coordinator.phase is Phase.ONGOING:
            coordinator.end(self.now, 0.01, commit=False, bump=True)
        coordinator.raise_epoch()
        coordinator.raised_from = coordinator.previous = None
        coordinator.phase = Phase.EMPTY

    def answer(self, node: int, flight: Flight) -> object:
        self.coordinator.tick(self.now)
        body, coordinator = flight.outgoing.body, self.coordinator
        delay = self.choose.random() * 0.1
        if isinstance(body, FindCoordinatorRequest):
            return coordinated(
                body, 15 if self.choose.random() < self.trouble else 0, coordinator.identity, node=self.home
            )
        if isinstance(body, ProduceRequest):
            reported = [self.produce(node, tp, memoryview(data)) for tp, data in flight.copied]
            return ProduceResponse((ProduceTopicResponse(TOPIC, partition_responses=tuple(reported)),))
        if not isinstance(body, InitProducerIdRequest | AddPartitionsToTxnRequest | EndTxnRequest):
            return self.metadata()
        if node != self.home:
            code = NOT_COORDINATOR
        elif self.choose.random() < self.trouble:
            code = self.choose.choice((14, 15, 51))
        elif isinstance(body, InitProducerIdRequest):
            code = coordinator.init(body, self.now, delay)
        elif isinstance(body, AddPartitionsToTxnRequest):
            code = coordinator.add(body)
        else:
            code = coordinator.end_asked(body, self.now, delay)
        implicit = flight.outgoing.api.min_version >= 5
        return coordinated(body, code, coordinator.identity, node=self.home, implicit=implicit)
