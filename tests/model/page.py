"""The page of the models: docs/exactly_once_models.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.model.search import LIMIT, Finding
from tests.model.table import Case

INTRODUCTION = """# Models of exactly once

`make model` makes this page from the models in `tests/model`; the small ones are part of every test run.

A model is a small world of drivers, which run `spark_producer/exactly_once/protocol` itself, tasks, transaction coordinators and
partitions. The search goes through **all** orders of events: a driver may die or pause anywhere and continue beside the next one,
Spark may call abort, tasks outlive their driver, and a repeated task may have other rows. A budget bounds timeouts of
transactions, lost or late control writes, and lost markers (the next marker of the producer then ends the old transaction too, as
in Kafka 4.3). A job without a number is a batch write without `txnVersion`; a function is a `foreachBatch` with several writes.

Checked in every world: no row is visible twice (DUPLICATE), no row of a finished batch is missing (LOSS), no false alarm (PARTIAL
and VOID need a timeout, HUNG a lost marker, UNKNOWN a job without a number), and the write can finish.

A is a task that returns its rows to the driver, B one with its own transaction. By default a model has one batch, attempt and
task, and transactions of version 1. "Done" counts worlds in which all batches are done, "alarm" those with an alarm.
"""

HOLDS = """
## The design as it is

No search found a violation. (limit): the search ended at its maximum number of worlds.

| model | worlds | done | alarm |
|---|---:|---:|---:|
"""

BREAKS = """
## One rule broken

Without a rule the search must find the violation in the table. Moves: the length of the shortest way to it.

| left out, or changed | found | moves |
|---|---|---:|
"""

REMARKS = """
Numbers that do not rise are refused in every run ("never finishes"). A number that is written twice loses rows only where two
runs of a function are active at once.
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
    fine = [f"| {case.name} | {worlds_of(found)} | {found.ends:,} | {found.loud:,} |" for case, found in holds]
    faults = [f"| {case.name} | {found.result} | {len(found.trace):,} |" for case, found in breaks]
    return f"{INTRODUCTION}{HOLDS}{lines(fine)}{BREAKS}{lines(faults)}{REMARKS}"


def worlds_of(finding: Finding) -> str:
    """Return how many worlds a search has seen, and why it ended where that is not the end of all."""
    return f"{finding.states:,}" + ("" if finding.result == "OK" else f" ({finding.result.lower()})")


def lines(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)
