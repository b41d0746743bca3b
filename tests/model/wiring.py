"""How a model is put together: the size of its world, the steps that its drivers take, and the rules that can be switched off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from spark_producer.common.cluster import TransactionVersion
from spark_producer.exactly_once.protocol.abort import abort
from spark_producer.exactly_once.protocol.begin import begin
from spark_producer.exactly_once.protocol.commands import Result
from spark_producer.exactly_once.protocol.commit import commit
from spark_producer.exactly_once.protocol.state_machine import Next, WriteState
from spark_producer.exactly_once.protocol.task_messages import TaskOutcome
from tests.model.world import Budget


def as_it_is(step: WriteState, answer: Result) -> Next:
    """The product's own next step."""
    return step.on_result(answer)


class Wiring(NamedTuple):
    """One model. What is a rule of the design is on unless said otherwise."""

    drivers: int = 2
    """incarnations: each starts at any time after the one before it, which may go on"""
    batches: int = 1
    tasks: str = "BB"
    """a letter for each task: A returns its rows inline, B has a transaction of its own"""
    attempts: int = 1
    """attempts of the first task at a time: more are speculation"""
    budget: Budget = Budget()
    transaction_version: TransactionVersion = TransactionVersion.EXPLICIT
    begin: Callable[[str, str], Next] = begin
    commit: Callable[[Sequence[TaskOutcome], int], Next] = commit
    abort: Callable[[Sequence[TaskOutcome | None]], Next] = abort
    after: Callable[[WriteState, Result], Next] = as_it_is
    ids: str = "worker"
    """whose task ids are: worker (of one incarnation, by task and attempt), task (all incarnations and attempts share them), or
    shared (all incarnations run on the same workers)"""
    reuse: str = "epoch"
    """when a shared id is taken again: if the ticket has a newer control epoch, or at every other token"""
    numbered: bool = True
    """batches have numbers; without, each incarnation has a job of its own, which is run once more if it is told that it may"""
    numbers: tuple[int, ...] = ()
    """of a function of `foreachBatch` that writes so often in a micro-batch, each time other rows: the numbers of its writes,
    counted from the first of the micro-batch; empty for a query that writes by itself"""
    tells_run: bool = True
    """Spark tells the tasks the run of the query"""
    tells_micro_batch: bool = True
    zombies: bool = True
    """an incarnation may go on when the next one has started; without, it is killed then"""
    aborts: bool = True
    """Spark calls abort: when its job fails, and when the process of the commit is killed; without, drivers just stop there"""
    forgets: bool = False
    """logs do not reach back to what is decided there"""
    admits: bool = True
    """tasks and commit look whether the batch is done"""
    votes: bool = True
    fenced_done: bool = True
    record_with_rows: bool = True
    r7: bool = True
    r8: bool = True
    looks_at_inline: bool = True
    notes: bool = True
    """fences note the last commit at the coordinator"""
    doubts_late_fences: bool = True

    @property
    def writes(self) -> int:
        """How often each micro-batch writes."""
        return len(self.numbers) or 1
