"""Commit and abort on the driver: they merge and log the tasks' reports, with totals, metrics and offset ranges by partition.

Delivery is at-least-once: all rows of a task are acknowledged before it reports.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from spark_producer.common.escape import HAS_LINES, escaping_logger
from spark_producer.datasource.write.driver.report_formats import describe, to_json
from spark_producer.errors import CommitError
from spark_producer.metrics import Interval, Snapshot, WriteReport, merge, merge_intervals

if TYPE_CHECKING:
    from spark_producer.exactly_once.protocol.task_messages import TaskOutcome

logger = escaping_logger("pyproducer")
logger.setLevel(logging.INFO)  # so that Spark's worker logging sees it; without a handler nothing is printed
json_logger = logging.getLogger("pyproducer.commit")
"""This log gets one line of JSON for each committed write, since the program on the driver cannot see into the process in which
`commit` runs."""


@dataclasses.dataclass
class TaskReport(WriterCommitMessage):
    """The commit message of one task, from its executor to the driver: the report of its rows."""

    report: WriteReport
    metrics: Interval | None = None
    """The metrics of the time from the task's first row to its last acknowledgement."""
    outcome: TaskOutcome | None = None
    """The task's part of an exactly-once write, which the driver commits. If it has the rows themselves, the report is empty."""
    started: float | None = None
    """When the task began, in seconds since 1970."""
    query: str | None = None
    """The id of the streaming query; None for batch writes."""


class ReportedWrite(NamedTuple):
    """The result of a write, for programs. `exactly_once` has the details of an exactly-once write.

    `report` has the rows in the topics: also after an abort, except for exactly-once writes, whose rows are invisible then.
    """

    report: WriteReport
    interval: Interval | None = None
    exactly_once: Mapping[str, object] | None = None
    status: Literal["committed", "aborted", "unknown"] = "committed"

    @property
    def metrics(self) -> Snapshot | None:
        """The metrics of all tasks together, calculated at each access; None if there are none."""
        return None if self.interval is None else self.interval.snapshot()


def is_logged(log: logging.Logger) -> bool:
    """Return whether a message of level INFO would be shown. To make the messages of a commit costs more than a small commit."""
    return log.isEnabledFor(logging.INFO) and log.hasHandlers()


def commit(messages: Sequence[WriterCommitMessage | None], what: str) -> ReportedWrite:
    """Merge the tasks' reports and log the result.

    Raises:
        CommitError: a task did not report. With `trigger(continuous=…)` Spark never calls `write`, so nothing was written.
            Spark only logs this error, so the query goes on reading: offsets/ of its checkpoint grows, commits/ does not
            (docs/streaming.md). Spark refuses to go on from such a checkpoint; the message says how to mend it.
    """
    check_complete(messages, what)
    reported = ReportedWrite(*merge_reports(messages))
    if is_logged(logger):
        logger.info("%s: %s", what, describe(reported.report, reported.metrics), extra=HAS_LINES)
    if is_logged(json_logger):
        json_logger.info("%s", to_json(what, reported.report, reported.metrics))
    return reported


def check_complete(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Refuse a commit without the reports of all tasks.

    Raises:
        CommitError: as `commit`.
    """
    if any(message is None for message in messages):
        raise CommitError(
            f"{what}: {sum(message is None for message in messages)} of {len(messages)} tasks wrote nothing and reported "
            "nothing. Spark does not write through Python data sources with trigger(continuous=…). Nothing is lost. Stop "
            "the query; if commits/ of its checkpoint is empty, delete the checkpoint, else delete every N and .N.crc of "
            "its offsets/ above the last number in commits/. Start it with trigger(processingTime=…) or "
            "trigger(availableNow=True)"
        )


def abort(messages: Sequence[WriterCommitMessage | None], what: str) -> ReportedWrite:
    """Log what the successful tasks of a failed write left in Kafka; a retry writes it again."""
    reported = ReportedWrite(*merge_reports(messages), status="aborted")
    logger.warning(
        "%s failed; the rows of its finished tasks stay in Kafka, perhaps with some rows of the failed ones: %s",
        what,
        describe(reported.report, reported.metrics),
        extra=HAS_LINES,
    )
    return reported


def merge_reports(messages: Sequence[WriterCommitMessage | None]) -> tuple[WriteReport, Interval | None]:
    """Return the merged reports and metrics of tasks."""
    reports = [message for message in messages if isinstance(message, TaskReport)]
    metrics = merge_intervals(report.metrics for report in reports if report.metrics is not None)
    return merge(report.report for report in reports), metrics
