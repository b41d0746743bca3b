"""The driver's side of an exactly-once write: BEGIN before the tasks, COMMIT or ABORT after them, and its log messages.

Spark commits in another process than it begins, so only the tasks' messages connect the two.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import WriterCommitMessage

from spark_producer.common.cluster import Span
from spark_producer.common.escape import HAS_LINES
from spark_producer.config import SinkOptions
from spark_producer.config.dead_letter_rules import brokers_find_bad_rows
from spark_producer.datasource.write.driver.commit import (
    ReportedWrite,
    TaskReport,
    check_complete,
    is_logged,
    json_logger,
    logger,
    merge_reports,
)
from spark_producer.datasource.write.driver.report_formats import describe, to_json
from spark_producer.datasource.write.driver.transaction_timeout import (
    check_transaction_timeout,
    max_transaction_timeout_ms,
)
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.protocol.control_record import NO_BATCH
from spark_producer.exactly_once.protocol.outcomes import NothingToAbort, WriteAborted, WriteCommitted
from spark_producer.exactly_once.protocol.task_messages import InlineRows, PreparedTask, Skipped, TaskOutcome
from spark_producer.metrics import WriteReport, merge
from spark_producer.metrics.write_report import OffsetRange
from spark_producer.network import ConnectionSettings

_explained_transactions: set[str] = set()
"""The sinks for which this process has logged why small tasks have transactions."""


def begin_write(settings: TaskSettings) -> TaskSettings:
    """Begin one execution: end the transactions of earlier ones, and return the settings with the handle for its tasks.

    Raises:
        ConfigError: the transaction timeout is above the brokers' maximum.
        ExactlyOnceError: a person must first decide about an earlier write; or a newer driver has taken over.
        BrokerError, KafkaTimeout: the brokers refuse, or do not answer; the message names a right that is missing.
    """
    if settings.transaction_timeout_unset:
        config = dataclasses.replace(
            settings.config, transaction_timeout_ms=max_transaction_timeout_ms(settings.config)
        )
        settings = settings._replace(config=config)
    else:
        check_transaction_timeout(settings.config)
    _explain_transactions(settings.sink)
    return settings._replace(handle=driver.begin(_sink(settings)))


def _explain_transactions(sink: SinkOptions) -> None:
    """Log once in a process why even small tasks have their own transaction (slower, and a side effect of an option)."""
    name = sink.exactly_once_id or ""
    if name in _explained_transactions or not sink.exactly_once_max_inline_bytes or not brokers_find_bad_rows(sink):
        return
    _explained_transactions.add(name)
    logger.info(
        "exactlyOnceId %s: brokers may find rows bad (deadLetterClasses=%s), so each task with rows has its own transaction, "
        "however few they are. With deadLetterClasses=row,schema the driver writes the rows of small tasks",
        name,
        sink.dead_letter_classes,
    )


def commit_write(settings: TaskSettings, messages: Sequence[WriterCommitMessage | None], what: str) -> ReportedWrite:
    """Make the rows of all tasks visible, all or none, log the commit, and return its report.

    Raises:
        CommitError: tasks did not report, as in `commit`.
        ExactlyOnceError: the write is not committed, or only in part; the message says what to do.
    """
    check_complete(messages, what)
    outcomes = _outcomes(messages)
    sink = _sink(settings)
    started = time.monotonic()
    driver.commit(sink, outcomes, outcomes[0].batch)
    took_ms = round((time.monotonic() - started) * 1000, 1)
    total, interval = merge_reports(messages)
    total = merge([total, _inline_report(outcomes, driver.inline_spans(sink))])
    if settings.sink.dead_letter_topic is not None:
        total = total.with_dead_letters(settings.sink.dead_letter_topic, {})
    summary = _summary(outcomes) | {"commit_ms": took_ms}
    reported = ReportedWrite(total, interval, summary)
    if summary["skipped"]:
        _log_skipped(outcomes[0], what)
    else:
        _warn_without_number(outcomes[0])
        _log_committed(reported, summary, what)
    if is_logged(json_logger):
        json_logger.info("%s", to_json(what, total, reported.metrics, exactly_once=summary))
    return reported


def _log_committed(reported: ReportedWrite, summary: Mapping[str, object], what: str) -> None:
    """Log a commit for people."""
    if is_logged(logger):
        logger.info(
            "%s of exactlyOnceId %s: committed exactly once (%s tasks by the driver, %s with a transaction of their own; %s ms "
            "for the commit): %s",
            what,
            summary["id"],
            summary["inline"],
            summary["transactions"],
            f"{summary['commit_ms']:g}",
            describe(reported.report, reported.metrics),
            extra=HAS_LINES,
        )


def _log_skipped(outcome: TaskOutcome, what: str) -> None:
    """Log that nothing was written: normal for a restarted query, but a warning for a job, whose author may not expect it."""
    sink = outcome.handle.sink
    done = NO_BATCH if outcome.handle.last is None else outcome.handle.last.last_done
    if outcome.query:
        logger.info("%s of exactlyOnceId %s was committed before the query was started again", what, sink)
    elif outcome.origin.run:
        logger.info(
            "exactlyOnceId %s: txnVersion %d was committed before the query was started again", sink, outcome.batch
        )
    elif outcome.batch == done:
        logger.warning(
            "exactlyOnceId %s: txnVersion %d was written before, so nothing is written now. If these are other rows, give them "
            "another number, or their own exactlyOnceId",
            sink,
            done,
        )
    else:
        logger.warning(
            "exactlyOnceId %s: txnVersion %d is not written, since %d was written before and numbers must rise. Rows with older "
            "numbers, or of a query with a new checkpoint, need their own exactlyOnceId",
            sink,
            outcome.batch,
            done,
        )


def _warn_without_number(outcome: TaskOutcome) -> None:
    """Warn if earlier writes set `txnVersion` and this one does not, which is probably an oversight."""
    last = outcome.handle.last
    if not outcome.query and outcome.batch == NO_BATCH and last is not None and last.last_done != NO_BATCH:
        logger.warning(
            "exactlyOnceId %s: this write has no txnVersion, and earlier ones had, up to %d. If it runs again, its rows are "
            "written again",
            outcome.handle.sink,
            last.last_done,
        )


def abort_write(settings: TaskSettings, messages: Sequence[WriterCommitMessage | None], what: str) -> ReportedWrite:
    """Abort the transactions of a failed write's successful tasks. Spark also calls it after a commit that has raised an error.

    If no task has reported, nothing is done: the next BEGIN aborts open transactions.
    """
    outcomes = _outcomes(messages)
    if not outcomes:
        return ReportedWrite(WriteReport({}), status="aborted")
    ended = driver.abort(_sink(settings), outcomes, outcomes[0].batch)
    logger.warning("%s of exactlyOnceId %s failed: %s", what, settings.sink.exactly_once_id, _describe_end(ended))
    total, interval = merge_reports(messages)
    match ended:
        case WriteAborted():
            return ReportedWrite(WriteReport({}), exactly_once=_summary(outcomes), status="aborted")
        case WriteCommitted():
            return ReportedWrite(total, interval, _summary(outcomes))
        case NothingToAbort():
            return ReportedWrite(WriteReport({}), exactly_once=_summary(outcomes), status="unknown")


def _describe_end(ended: WriteAborted | WriteCommitted | NothingToAbort) -> str:
    """Return the text for the outcome of a write whose commit has failed for Spark."""
    match ended:
        case WriteAborted(transactions):
            return f"nothing of it is visible; {len(transactions)} transactions were aborted"
        case WriteCommitted():
            return "but all its rows are committed, and a restart does not write them again"
        case NothingToAbort(text):
            return text


def _sink(settings: TaskSettings) -> driver.SinkSettings:
    config, sink = settings.config, settings.sink
    return driver.SinkSettings(
        sink.exactly_once_id or "",
        ConnectionSettings.from_config(config),
        sink.exactly_once_control_topic,
        config.max_block_ms / 1000,
        () if sink.topic is None else (sink.topic,),
    )


def _outcomes(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    reports = [message for message in messages if isinstance(message, TaskReport)]
    return [report.outcome for report in reports if report.outcome is not None]


def _summary(outcomes: Sequence[TaskOutcome]) -> dict[str, object]:
    """Return the path of the tasks' rows, for the log and for write reports."""
    paths = Counter(type(outcome) for outcome in outcomes)
    return {
        "id": outcomes[0].handle.sink,
        "batch": outcomes[0].batch,
        "inline": paths[InlineRows],
        "transactions": paths[PreparedTask],
        "skipped": paths[Skipped],
    }


def _inline_report(outcomes: Sequence[TaskOutcome], spans: Sequence[Span]) -> WriteReport:
    """Return the report of the inline rows, which the driver has written to `spans`."""
    batches = [batch for outcome in outcomes if isinstance(outcome, InlineRows) for batch in outcome.batches]
    ranges = {(topic, partition): OffsetRange(*found) for topic, partition, *found in spans}
    size = sum(len(batch.data) for batch in batches)
    return WriteReport(ranges, sum(batch.records for batch in batches), size, len(batches))
