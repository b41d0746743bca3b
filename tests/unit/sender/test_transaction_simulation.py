"""Hundreds of seeded schedules of transactions: coordinators move, answers are lost, batches expire, a newer producer takes over.

After each: of a committed transaction every row is visible once and in order, of an aborted one none, and of one whose producer
was fenced off in mid-commit all or none. No producer that was not fenced has ended. Ids: TM.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted, ProducerFenced, TransactionAbortable
from spark_producer.sender.transactions.manager import TransactionManager
from spark_producer.sender.transactions.states import Operation, TxnCall, TxnState
from tests.fakes.fake_clock import FakeClock
from tests.fakes.sender_fakes import TOPIC, SenderFakes, sender_fakes
from tests.fakes.simulated_coordinator import LAST_EPOCH, TransactionalCluster
from tests.support.campaigns import sample_and_campaign

QUANTUM = 0.06
TID = "orders-1"


@dataclass
class Written:
    """The rows that a caller wrote in one transaction, and its result: committed, aborted, or (None) neither."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    committed: bool | None = None


class Caller:
    """A program that writes transactions, and begins with a new producer when it is fenced off."""

    def __init__(self, seed: int, *, implicit: bool, takeovers: bool) -> None:
        self.choose = random.Random(seed)
        trouble = self.choose.choice((0.0, 0.03, 0.1, 0.2))
        self.cluster = TransactionalCluster(self.choose, trouble, 3, implicit=implicit)
        self.cluster.coordinator.identity = self.cluster.coordinator.identity._replace(
            epoch=self.choose.choice((-1, LAST_EPOCH - 1))
        )
        self.takeovers = takeovers
        self.clock = FakeClock()
        self.reported: list[Written] = []
        self.rows = 0
        self.fenced = 0
        self.made = self._new()

    def _new(self) -> SenderFakes:
        made = sender_fakes(
            ready=False, transactional_id=TID, linger=self.choose.choice((0, 0.02)), memory=self.choose.choice((4096, 16384)),
            delivery_timeout=self.choose.choice((0.7, 5.0)), max_request_size=self.choose.choice((2000, 1 << 20)),
        )  # fmt: skip
        made.fakes.clock.now = self.clock.now
        self.clock = made.fakes.clock
        made.metadata.request_topics(TOPIC)
        made.network = self.cluster  # type: ignore[assignment]
        self.cluster.flying = {node: type(flights)() for node, flights in self.cluster.flying.items()}
        return made

    @property
    def manager(self) -> TransactionManager:
        found = self.made.sender.transactions
        assert found is not None
        return found

    def turn(self) -> None:
        """Send what is due, or let something happen."""
        self.cluster.now = self.clock.now
        step = self.made.step()
        for outgoing in step.requests:
            self.cluster.send(outgoing)
        if not step.requests:
            self.cluster.happen(self.made)
            self.clock.advance(self.choose.random() * QUANTUM)

    def call(self, call: TxnCall) -> Operation:
        """A call, until it is done."""
        operation = Operation(call)
        self.manager.calls.append(operation)
        for _ in range(5000):
            if operation.done or self.made.fakes.incomplete.error is not None:
                operation.error = operation.error or self.made.fakes.incomplete.error
                return operation
            if self.takeovers and self.choose.random() < 0.004:
                self.cluster.take_over()
            self.turn()
        raise AssertionError(f"{call} has no end: {self.manager.state}")

    def run(self) -> None:
        """Twelve transactions."""
        self.recover(self.call(TxnCall.INIT))
        for _ in range(12):
            self.transaction()

    def transaction(self) -> None:
        begun = self.call(TxnCall.BEGIN)
        if self.recover(begun):
            return
        assert begun.error is None
        written = Written()
        self.reported.append(written)
        for _ in range(self.choose.randint(0, 6)):
            self.write(written)
            for _ in range(self.choose.randint(0, 8)):
                if self.made.fakes.incomplete.error is None:
                    self.turn()
        if self.manager.state is TxnState.FATAL:
            self.recover(Operation(TxnCall.ABORT))
            return
        wanted = TxnCall.COMMIT if self.choose.random() < 0.75 else TxnCall.ABORT
        ended = self.call(wanted)
        if isinstance(ended.error, TransactionAbortable):
            wanted = TxnCall.ABORT
            ended = self.call(wanted)
        if not self.recover(ended):
            assert ended.error is None, ended.error
            written.committed = wanted is TxnCall.COMMIT

    def write(self, written: Written) -> None:
        partition = self.choose.randrange(3)
        for _ in range(self.choose.randint(1, 6)):
            if self.manager.state is not TxnState.IN_TRANSACTION:
                return
            value = (b"%08d" % self.rows).ljust(self.choose.randint(8, 300), b".")
            try:
                self.made.fakes.append_one(value, 1000 + self.rows, None, TopicPartition(TOPIC, partition))
            except BufferExhausted as error:
                spoilt = Operation(TxnCall.MARK_ABORTABLE, error)
                self.manager.calls.append(spoilt)
                return
            written.rows.append((partition, self.rows))
            self.rows += 1

    def recover(self, operation: Operation) -> bool:
        """Begin with a new producer if this one has ended, which only a newer one may bring about."""
        error = self.made.fakes.incomplete.error
        if error is None:
            return False
        assert isinstance(error, ProducerFenced), (operation.call, error)
        assert self.cluster.coordinator.took_over
        self.fenced += 1
        self.made = self._new()
        self.call(TxnCall.INIT)
        return True


def check(caller: Caller) -> None:
    """The invariant of the docstring above."""
    attempts = caller.cluster.coordinator.attempts
    visible = [number for attempt in attempts if attempt.committed for number in attempt.numbers]
    counts = Counter(visible)
    for written in caller.reported:
        numbers = {number for _, number in written.rows}
        seen = {number for number in numbers if counts[number]}
        assert all(counts[number] == 1 for number in seen)
        if written.committed is None:
            assert seen in (set(), numbers)
        else:
            assert seen == (numbers if written.committed else set())
    for log in caller.cluster.logs:
        shown = [number for number in log.records if counts[number]]
        assert shown == sorted(shown)


@pytest.mark.covers("TM8")
@pytest.mark.slow
@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize(
    "seeds", sample_and_campaign([range(60), *(range(at, at + 200) for at in range(1000, 5000, 200))])
)
def test_a_transaction_is_visible_whole_and_once_or_not_at_all(seeds: range, implicit: bool) -> None:
    committed = aborted = fenced = 0
    for seed in seeds:
        caller = Caller(seed, implicit=implicit, takeovers=seed % 3 == 0)
        caller.run()
        check(caller)
        committed += sum(written.committed is True and bool(written.rows) for written in caller.reported)
        aborted += sum(written.committed is False for written in caller.reported)
        fenced += caller.fenced
    assert committed > 3 * len(seeds)
    assert aborted > len(seeds)
    assert fenced > len(seeds) // 20
