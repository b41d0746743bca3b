"""The parts of a model: the size of its world, the steps of its drivers, and the rules that can be switched off."""

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
    """One model. Rules of the design are on by default."""

    drivers: int = 2
    """runs of the driver: each starts at any time after the previous one, which may continue"""
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
    """the owner of task ids: worker (one run, by task and attempt), task (all runs and attempts share them), or shared (all runs
    use the same workers)"""
    reuse: str = "epoch"
    """when a shared id is reused: if the handle has a newer control epoch, or with any other token"""
    numbered: bool = True
    """batches have numbers; without, each run of the driver has its own job, which is run again if its error allows that"""
    numbers: tuple[int, ...] = ()
    """the numbers of the writes of a function of `foreachBatch` in one micro-batch, counted from its first; each has other rows.
    Empty for a query without a function"""
    reports_run: bool = True
    """Spark reports the run of the query to the tasks"""
    reports_micro_batch: bool = True
    zombies: bool = True
    """a run may continue when the next one has started; without, it is killed then"""
    aborts: bool = True
    """Spark calls abort: when its job fails, and when the process of the commit is killed; without, drivers stop there"""
    forgets: bool = False
    """logs no longer have the rows of decided transactions"""
    admits: bool = True
    """tasks and commit check whether the batch is done"""
    votes: bool = True
    fenced_done: bool = True
    record_with_rows: bool = True
    r7: bool = True
    r8: bool = True
    checks_inline: bool = True
    checks_control: bool = True
    """BEGIN looks whether the control record hangs"""
    heeds_looks: bool = True
    """a write is aborted if the look after its rows shows an older transaction"""
    early: bool = True
    """rows and record are sent before orphans are listed and transactions voted on"""
    notes: bool = True
    """fences record the last commit at the coordinator"""
    doubts_late_fences: bool = True

    @property
    def writes(self) -> int:
        """The number of writes in each micro-batch."""
        return len(self.numbers) or 1
