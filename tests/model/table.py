"""The table of models: the design as it is in worlds of several kinds, and the design with one rule broken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spark_producer.common.cluster import TransactionVersion
from tests.model import mutants
from tests.model.mutants import changed
from tests.model.wiring import Wiring
from tests.model.world import Budget


class Case(NamedTuple):
    """One model. Its result must be one of `expected`; `large` ones are not in every test run."""

    name: str
    wiring: Wiring
    expected: frozenset[str] = frozenset({"OK"})
    large: bool = False
    max_worlds: int = 250_000
    """maximum worlds of the search: each takes two kilobytes"""
    eager: bool = False
    """the order of `search`"""
    twin: bool = False
    """it takes many seconds, and differs from one of every run by the version of transactions: for `make nightly`"""


A, B, BB, AB = Wiring(tasks="A"), Wiring(tasks="B"), Wiring(tasks="BB"), Wiring(tasks="AB")
# Drivers that stop where Spark would call abort: fewer worlds, for rules in which abort has no part.
QB, QBB, QAB = B._replace(aborts=False), BB._replace(aborts=False), AB._replace(aborts=False)

# The function of `foreachBatch` writes twice in each micro-batch, with rising numbers.
FA, FB = A._replace(numbers=(0, 1)), QB._replace(numbers=(0, 1))

TWICE, LOST, FALSE_PARTIAL, FALSE_VOID = "DUPLICATE", "LOSS", "false PARTIAL", "false VOID"
ALARM = (FALSE_PARTIAL, FALSE_VOID)
FALSE_MISSING = "false NO_RECORD"
STOPS = "never finishes"
V2 = TransactionVersion.IMPLICIT
TIME, LOSE, DROP, MEND = Budget(timeouts=1), Budget(losses=1), Budget(drops=1), Budget(drops=1, repairs=1)
LOSE_TOPIC = Budget(topics=1)
A3 = A._replace(drivers=3, batches=2, budget=LOSE_TOPIC)
WORST_A = Budget(losses=1, drops=1, repairs=1)


def small() -> Iterator[Case]:
    """The design as it is: no world may have a violation. These are in every test run."""
    yield Case("A: 2 drivers, 2 batches, 1 timeout, 1 lost response", A._replace(batches=2, budget=Budget(1, 1)))
    yield Case("A: 2 drivers, 2 batches, 1 lost marker, 1 lost response", A._replace(batches=2, budget=WORST_A))
    yield Case("A: the same with transaction.version 2", A._replace(batches=2, budget=WORST_A, transaction_version=V2))
    yield Case("B: 2 drivers, 1 lost response", B._replace(budget=LOSE))
    yield Case("B: the same with transaction.version 2", B._replace(budget=LOSE, transaction_version=V2))
    yield Case("B: 2 drivers, 2 batches, logs no longer have the rows", QB._replace(batches=2, forgets=True))
    yield Case("B: 2 drivers on the same workers, 2 batches", B._replace(batches=2, ids="shared"))
    yield Case("B: the same, 1 lost marker", QB._replace(batches=2, ids="shared", budget=MEND))
    yield Case(
        "B: 1 driver, 2 batches, speculation, 1 lost marker", B._replace(drivers=1, batches=2, attempts=2, budget=MEND)
    )
    yield Case("B: 2 tasks, 2 drivers, no aborts", QBB)
    yield Case("A: 2 jobs without numbers, 1 lost response", A._replace(numbered=False, batches=2, budget=LOSE))
    yield Case(
        "A: the same with transaction.version 2",
        A._replace(numbered=False, batches=2, budget=LOSE, transaction_version=V2),
    )
    yield Case("B: 2 jobs without numbers, no aborts", QB._replace(numbered=False, batches=2))
    yield Case("A and B: 2 drivers, 1 timeout, no aborts", QAB._replace(budget=TIME))
    yield Case("A and B: 2 drivers, 1 lost marker, no aborts", QAB._replace(budget=MEND))
    yield Case(
        "A: a function with 2 numbers, 2 drivers, 2 batches, 1 lost response", FA._replace(batches=2, budget=LOSE)
    )
    yield Case("A: a function with 3 numbers, 2 drivers, 1 lost response", FA._replace(numbers=(0, 1, 2), budget=LOSE))
    yield Case("A: a function with 2 numbers, 2 drivers, 1 lost marker", FA._replace(budget=MEND))
    yield Case("B: a function with 2 numbers, 2 drivers, no aborts", FB)
    yield Case("A: a function with 2 numbers, Spark does not report the run", FA._replace(reports_run=False))
    yield Case("A: 3 drivers, 2 batches, the control topic lost or changed", A3)
    yield Case("A: the same with transaction.version 2", A3._replace(transaction_version=V2), twin=True)
    yield Case("B: 2 drivers, the control topic lost or changed", B._replace(budget=LOSE_TOPIC))
    yield Case("B: the same with transaction.version 2", B._replace(budget=LOSE_TOPIC, transaction_version=V2))


def large() -> Iterator[Case]:
    """The same in larger worlds."""
    marker_and_timeout = Budget(timeouts=1, drops=1, repairs=1)
    for name, wiring in [
        ("A: 3 drivers, 2 batches, 2 timeouts, 1 lost response", A._replace(drivers=3, batches=2, budget=Budget(2, 1))),
        ("A: 2 drivers, 3 batches, 2 lost markers, 1 lost response", A._replace(batches=3, budget=Budget(0, 1, 2, 2))),
        ("B: 2 drivers, 2 batches, 1 lost response", B._replace(batches=2, budget=LOSE)),
        ("B: 2 drivers, 2 batches, 1 lost marker, 1 timeout", B._replace(batches=2, budget=marker_and_timeout)),
        ("B: 2 tasks, 2 drivers", BB),
        ("B: 2 tasks, 2 drivers, transaction.version 2", BB._replace(transaction_version=V2)),
        ("B: 2 tasks, 2 drivers, 1 timeout", BB._replace(budget=TIME)),
        ("B: 2 tasks, 2 drivers, 2 batches, 1 timeout, no aborts", QBB._replace(batches=2, budget=TIME)),
        ("B: 2 tasks, 2 drivers, 2 batches, 1 lost marker, no aborts", QBB._replace(batches=2, budget=MEND)),
        ("B: 2 tasks, 2 drivers, speculation, no aborts", QBB._replace(attempts=2)),
        ("B: 3 drivers, 2 batches, no aborts", QB._replace(drivers=3, batches=2)),
        ("A and B: 2 drivers, 2 batches, 1 lost marker", AB._replace(batches=2, budget=MEND)),
        ("A: a function with 2 numbers, 3 drivers", FA._replace(drivers=3)),
        ("B: a function with 2 numbers, 2 drivers, 1 lost response", FB._replace(budget=LOSE)),
        ("A and B: 2 drivers, 1 timeout, 1 lost response", AB._replace(budget=Budget(1, 1))),
    ]:
        yield Case(name, wiring, large=True)


def broken() -> Iterator[Case]:
    """The design with one rule broken: the search must find what the rule is for."""

    def case(name: str, wiring: Wiring, *expected: str) -> Case:
        return Case(name, wiring, frozenset(expected))

    yield case("task ids shared by attempts (speculation)", BB._replace(drivers=1, ids="task", attempts=2), *ALARM)
    yield case("task ids shared by runs of a driver", QBB._replace(ids="task"), *ALARM)
    yield case("commit takes its own epoch (A)", A._replace(commit=mutants.commit_with_a_fresh_epoch), TWICE)
    yield case("commit takes its own epoch (B)", QBB._replace(commit=mutants.commit_with_a_fresh_epoch), *ALARM)
    yield case("BEGIN reads before it fences (A)", A._replace(begin=mutants.begin_that_reads_first), TWICE)
    yield case("BEGIN reads before it fences (B)", QB._replace(begin=mutants.begin_that_reads_first), TWICE)
    yield case("orphans aborted without INTENT", QBB._replace(after=changed(mutants.no_intent)), *ALARM)
    yield case(
        "BEGIN takes decided transactions for orphans", B._replace(after=changed(mutants.no_redrive)), TWICE, LOST
    )
    yield case("abort does not check for a decision", B._replace(abort=mutants.abort_without_a_look), *ALARM)
    no_fence = B._replace(after=changed(mutants.abort_without_a_fence), budget=LOSE)
    yield case("abort checks, but does not fence", no_fence, *ALARM)
    stale = QB._replace(drivers=3, batches=2, fenced_done=False, notes=False)  # a note would show it as NO_RECORD
    yield Case("DONE is not fenced", stale, frozenset({TWICE, LOST}), large=True, max_worlds=500_000, eager=True)
    late = QB._replace(batches=2, after=mutants.commit_that_lists_late)
    yield case("COMMIT lists its orphans after DONE", late, *ALARM)
    yield case("DONE is not written", QB._replace(after=changed(mutants.no_done)), TWICE)
    at_once = QB._replace(after=changed(mutants.verdict_at_once), batches=2, forgets=True)
    yield case("PARTIAL is not fenced, logs no longer have the rows", at_once, *ALARM)
    yield case("ids reused by token", QB._replace(ids="shared", reuse="token"), *ALARM)
    yield case("done batches are not skipped", B._replace(admits=False, commit=mutants.commit_of_what_is_done), TWICE)
    uncounted = B._replace(commit=mutants.commit_that_counts_no_transactions)
    yield case("rows of transactions are not counted", uncounted, "false REFUSED")
    yield case(
        "control record in another transaction than the rows (A)",
        A._replace(record_with_rows=False, notes=False),
        TWICE,
    )
    yield case("commit without a response is sent again", A._replace(after=changed(mutants.resend), budget=LOSE), TWICE)
    token = B._replace(after=changed(mutants.token_alone), budget=LOSE)
    yield case("INTENT of the same token taken for a commit", token, LOST)
    jobs = A._replace(numbered=False, batches=2, budget=LOSE, after=mutants.commit_that_knows_too_much)
    yield case("commit without a response or number runs again", jobs, TWICE)
    left = QB._replace(numbered=False, batches=2, after=mutants.commit_that_knows_too_much)
    yield case("decided write without a number runs again", left, TWICE)
    late = A._replace(numbered=False, batches=2, budget=LOSE, doubts_late_fences=False)
    yield case("fence after a delayed commit taken for its failure", late, TWICE)
    void = QAB._replace(after=changed(mutants.void_with_inline_rows), budget=TIME)
    yield case("VOID although inline rows are visible", void, TWICE)
    yield case("fences do not note the last commit", A3._replace(notes=False), TWICE)
    yield from broken_functions()
    yield from broken_looks()


def broken_looks() -> Iterator[Case]:
    """The same where markers get lost: a check is left out, or its result is ignored."""

    def case(name: str, wiring: Wiring, *expected: str) -> Case:
        return Case(name, wiring, frozenset(expected))

    again = B._replace(drivers=1, batches=2, attempts=2, budget=DROP)
    yield case("lost marker, R7 off", again._replace(r7=False), TWICE)
    yield case("lost marker, R8 off (B)", again._replace(r8=False), LOST)
    yield case("lost marker, R8 off (A)", A._replace(batches=2, r8=False, budget=DROP), LOST)
    yield case("lost marker, R7 and R8 off", again._replace(r7=False, r8=False), LOST, TWICE)
    unseen = A._replace(batches=2, checks_inline=False, budget=DROP)
    yield case("lost marker, BEGIN does not check inline rows", unseen, LOST)
    yield case(
        "lost marker, BEGIN does not check the control record",
        B._replace(checks_control=False, budget=DROP),
        FALSE_MISSING,
    )
    yield case("lost marker, the check after the rows is ignored", A._replace(heeds_looks=False, budget=DROP), TWICE)
    left = A._replace(budget=DROP, after=changed(mutants.commit_that_leaves_its_look))
    yield case("lost marker, a commit leaves its check to the next BEGIN (A)", left, LOST)
    beside = AB._replace(budget=DROP, after=changed(mutants.inline_markers_unseen))
    yield case("lost marker, inline rows beside transactions are not checked", beside, LOST)


def broken_functions() -> Iterator[Case]:
    """The same of functions of `foreachBatch`, and functions whose numbers do not rise."""

    def case(name: str, wiring: Wiring, expected: str) -> Case:
        return Case(name, wiring, frozenset({expected}))

    yield case("the record does not name the micro-batch", FA._replace(reports_micro_batch=False), "false REFUSED")
    noted = FA._replace(commit=mutants.commit_that_notes_lower_numbers)
    yield case("lower numbers of a repeated micro-batch are recorded", noted, "false REFUSED")
    same, falling = A._replace(numbers=(0, 0)), A._replace(numbers=(1, 0))
    yield case("a function writes one number twice", same._replace(zombies=False), STOPS)
    yield case("the same, while the previous run continues", same, LOST)
    yield case("a function writes a lower number after a higher one", falling, STOPS)
    unreported = same._replace(zombies=False, reports_run=False)
    yield case("a number is written twice, and Spark does not report the run", unreported, LOST)
    unnoted = same._replace(zombies=False, commit=mutants.commit_that_notes_nothing)
    yield case("a number is written twice, and a run that finds it done does not record it", unnoted, LOST)
