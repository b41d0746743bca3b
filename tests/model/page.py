"""The page of the models: docs/exactly_once_models.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.model.search import LIMIT, Finding
from tests.model.table import Case

INTRODUCTION = """# Models of exactly once

This page is made by `make model`. The models are in `tests/model`; the small ones are part of every test run.

A model is a small world of drivers, tasks, transaction coordinators and partitions. The search goes through **all** orders
of what they may do, and looks at every world that can be reached. The drivers are the steps of `spark_producer/exactly_once`
themselves, not a copy of them. Wherever a driver is, it may stop for ever or go on later as a zombie, beside the next
incarnation; the commit's process may be killed, upon which Spark calls abort; tasks go on after their driver died, and the
rows that a task has differ from one incarnation to the next. A budget says how often transactions time out, answers to
control writes get lost (or the write itself arrives late, or is put off although it happens), and markers get lost. A lost
marker leaves rows undecided in the partition, and the next marker of the same producer decides them too, as Kafka 4.3 does
it. Jobs without numbers are batch writes without `txnVersion`: each driver has one of its own, and runs it a second time if it
is told that it may. A function is one of `foreachBatch`, which writes several times in a micro-batch, with numbers of its own.

In every world it is checked that no row is visible twice (DUPLICATE), that every row of a batch is visible which Spark's log
calls done (LOSS), and that nobody is called without a reason: PARTIAL and VOID need a timeout, HUNG a lost marker, UNKNOWN a
job without a number. Somewhere all batches must be done, or the write never finishes.

A is a task that returns its rows to the driver, B one with a transaction of its own. Where nothing else is said, there are
one batch, one attempt at a time, one task, and the explicit style of transactions. "Done" counts the worlds in which all
batches are done, "loud" those in which a person is called.
"""

HOLDS = """
## The design as it is

| model | result | worlds | done | loud |
|---|---|---:|---:|---:|
"""

BREAKS = """
## One rule broken

| broken | found | after worlds | moves |
|---|---|---:|---:|
"""

REMARKS = """
Two rules are each one of two locks on the same door. Without a fence of the verdict nothing happens as long as the logs can
be read, since they tell a stale driver the truth; it needs logs that do not reach back. And an unfenced `DONE` needs three
drivers. A function whose numbers do not rise is refused in every run: no row is lost, and no batch is done ("never finishes",
with no moves to show). One that writes a number twice may lose rows only where two of its runs go on side by side, since runs
have no order. A search that stopped at its limit, marked LIMIT, has found nothing wrong so far.
"""


class Row(NamedTuple):
    """A model and what its search found."""

    case: Case
    finding: Finding

    @property
    def as_expected(self) -> bool:
        """A search of the design itself may stop at its limit; one for a fault must find it."""
        expected = self.case.expected
        return self.finding.result in (expected | {LIMIT} if "OK" in expected else expected)


def page(holds: Iterable[Row], breaks: Iterable[Row]) -> str:
    """The whole page."""
    fine = [
        f"| {case.name} | {found.result} | {found.states:,} | {found.ends:,} | {found.loud:,} |"
        for case, found in holds
    ]
    faults = [f"| {case.name} | {found.result} | {found.states:,} | {len(found.trace):,} |" for case, found in breaks]
    return f"{INTRODUCTION}{HOLDS}{lines(fine)}{BREAKS}{lines(faults)}{REMARKS}"


def lines(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)
