"""Commit and abort on the driver.

Owns: what the driver says of a write: totals, metrics of all tasks together, and offset ranges by partition.
Must not know: how rows were written. At-least-once: everything was acknowledged before a task reported.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from spark_producer.datasource.summary import describe, to_json
from spark_producer.errors import CommitError
from spark_producer.metrics import Snapshot, WriteReport, merge, merge_snapshots

logger = logging.getLogger("pyproducer")
logger.setLevel(logging.INFO)  # so that Spark's worker logging sees it; without a handler nothing is printed
for_programs = logging.getLogger("pyproducer.commit")
"""One line of JSON for each committed write: `commit` runs in a process that the program on the driver cannot look into."""


@dataclasses.dataclass
class TaskReport(WriterCommitMessage):
    """What one task wrote; travels from the executor to the driver."""

    report: WriteReport
    metrics: Snapshot | None = None
    """Of the time from its first row to its last acknowledgement."""


def commit(messages: Sequence[WriterCommitMessage | None], what: str) -> WriteReport:
    """Add up the tasks' reports and log them.

    Raises:
        CommitError: a task did not report. With `trigger(continuous=…)` Spark never calls `write`, so nothing was written;
            and it only logs this error, so the query goes on, and on reading: offsets/ of its checkpoint grows, commits/
            does not (docs/streaming.md). Spark refuses to go on from such a checkpoint; the message says how to mend it.
    """
    if any(message is None for message in messages):
        raise CommitError(
            f"{what}: {sum(message is None for message in messages)} of {len(messages)} tasks wrote nothing and reported "
            "nothing. Spark does not write through Python data sources with trigger(continuous=…). Nothing is lost: stop "
            "the query; if commits/ of its checkpoint is empty, delete the checkpoint, else delete every N and .N.crc of "
            "its offsets/ above the last number in commits/; start it with trigger(processingTime=…) or "
            "trigger(availableNow=True)"
        )
    total, metrics = _all_together(messages)
    logger.info("%s: %s", what, describe(total, metrics))
    for_programs.info("%s", to_json(what, total, metrics))
    return total


def abort(messages: Sequence[WriterCommitMessage | None], what: str) -> WriteReport:
    """Log what successful tasks of a failed write left in Kafka; a retry writes it again."""
    total, metrics = _all_together(messages)
    logger.warning(
        "%s failed; still in Kafka is what its finished tasks wrote, perhaps with rows of those that failed: %s",
        what,
        describe(total, metrics),
    )
    return total


def _all_together(messages: Sequence[WriterCommitMessage | None]) -> tuple[WriteReport, Snapshot | None]:
    reports = [message for message in messages if isinstance(message, TaskReport)]
    metrics = merge_snapshots(report.metrics for report in reports if report.metrics is not None)
    return merge(report.report for report in reports), metrics
