"""What an exactly-once write does on the driver: BEGIN before the tasks, COMMIT or ABORT behind them, and the reports for people.

Spark commits in another process than it begins, so only the tasks' messages tie the two together.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from spark_producer.common.cluster import Span
from spark_producer.common.escape import HAS_LINES
from spark_producer.config import SinkOptions
from spark_producer.config.dead_letter_rules import brokers_find_bad_rows
from spark_producer.datasource.write.driver.commit import (
    ReportedWrite,
    TaskReport,
    check_complete,
    json_logger,
    logger,
    merge_reports,
)
from spark_producer.datasource.write.driver.summary import describe, to_json
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

_told_of_transactions: set[str] = set()
"""The sinks of which this process has said so."""


def begin_write(settings: TaskSettings) -> TaskSettings:
    """Take the sink for one execution, after all that earlier ones have left is ended. Return what its tasks need.

    Raises:
        ConfigError: a transaction is to be open for longer than the brokers allow.
        ExactlyOnceError: a person must decide first what became of an earlier write; or a newer driver is at it.
        BrokerError, KafkaTimeout: as the brokers answer; the message names a right that is missing.
    """
    if settings.own_time:
        config = dataclasses.replace(
            settings.config, transaction_timeout_ms=max_transaction_timeout_ms(settings.config)
        )
        settings = settings._replace(config=config)
    else:
        check_transaction_timeout(settings.config)
    _tell_of_transactions(settings.sink)
    return settings._replace(handle=driver.begin(_sink(settings)))


def _tell_of_transactions(sink: SinkOptions) -> None:
    """Say once in a process why tasks of a few rows have transactions of their own: that is slower, and not asked for by name."""
    name = sink.exactly_once_id or ""
    if name in _told_of_transactions or not sink.exactly_once_max_inline_bytes or not brokers_find_bad_rows(sink):
        return
    _told_of_transactions.add(name)
    logger.info(
        "exactlyOnceId %s: brokers may find rows bad (deadLetterClasses=%s), so each task with rows has a transaction of its "
        "own, however few they are. With deadLetterClasses=row,schema small tasks go by the driver",
        name,
        sink.dead_letter_classes,
    )


def commit_write(settings: TaskSettings, messages: Sequence[WriterCommitMessage | None], what: str) -> ReportedWrite:
    """Make what the tasks have written visible, all of it or nothing, and log it.

    Raises:
        CommitError: tasks did not report, as in `commit`.
        ExactlyOnceError: it is not committed, or only in part; the message says which, and what to do.
    """
    check_complete(messages, what)
    outcomes = _outcomes(messages)
    sink = _sink(settings)
    before = time.monotonic()
    driver.commit(sink, outcomes, outcomes[0].batch)
    took_ms = round((time.monotonic() - before) * 1000, 1)
    total, metrics = merge_reports(messages)
    total = merge([total, _of_inline(outcomes, driver.inline_spans(sink))])
    if settings.sink.dead_letter_topic is not None:
        total = total.with_dead_letters(settings.sink.dead_letter_topic, {})
    told = _told(outcomes) | {"commit_ms": took_ms}
    if told["skipped"]:
        _tell_of_skipped(outcomes[0], what)
    else:
        _warn_without_number(outcomes[0])
        ways = f"{told['inline']} tasks by the driver, {told['transactions']} with a transaction of their own; "
        ways += f"{took_ms:g} ms for the commit"
        said = describe(total, metrics)
        logger.info(
            "%s of exactlyOnceId %s: committed exactly once (%s): %s", what, told["id"], ways, said, extra=HAS_LINES
        )
    json_logger.info("%s", to_json(what, total, metrics, exactly_once=told))
    return ReportedWrite(total, metrics, told)


def _tell_of_skipped(one: TaskOutcome, what: str) -> None:
    """Say that nothing was written. A restarted query does that as a matter of course; a job's author may not expect it."""
    sink = one.handle.sink
    done = NO_BATCH if one.handle.last is None else one.handle.last.last_done
    if one.query:
        logger.info("%s of exactlyOnceId %s was committed before the query was started again", what, sink)
    elif one.origin.run:
        logger.info("exactlyOnceId %s: txnVersion %d was committed before the query was started again", sink, one.batch)
    elif one.batch == done:
        logger.warning(
            "exactlyOnceId %s: txnVersion %d was written before, so nothing is written now. If these are other rows, give them "
            "another number, or an exactlyOnceId of their own",
            sink,
            done,
        )
    else:
        logger.warning(
            "exactlyOnceId %s: txnVersion %d is not written, since %d was written before and numbers must rise. Rows of older "
            "numbers, or of a query with a new checkpoint, need an exactlyOnceId of their own",
            sink,
            one.batch,
            done,
        )


def _warn_without_number(one: TaskOutcome) -> None:
    """Somebody who gave numbers once, and now gives none, has probably forgotten it."""
    last = one.handle.last
    if not one.query and one.batch == NO_BATCH and last is not None and last.last_done != NO_BATCH:
        logger.warning(
            "exactlyOnceId %s: this write has no txnVersion, and earlier ones had, up to %d. If it is run again, its rows are "
            "written again",
            one.handle.sink,
            last.last_done,
        )


def abort_write(settings: TaskSettings, messages: Sequence[WriterCommitMessage | None], what: str) -> ReportedWrite:
    """End what the successful tasks of a failed write have left. Spark calls it after a commit that has raised, too.

    If no task has reported there is nothing to do: the next BEGIN ends what is open.
    """
    outcomes = _outcomes(messages)
    if not outcomes:
        return ReportedWrite(WriteReport({}), status="aborted")
    ended = driver.abort(_sink(settings), outcomes, outcomes[0].batch)
    logger.warning("%s of exactlyOnceId %s failed: %s", what, settings.sink.exactly_once_id, _ending(ended))
    total, metrics = merge_reports(messages)
    match ended:
        case WriteAborted():
            return ReportedWrite(WriteReport({}), exactly_once=_told(outcomes), status="aborted")
        case WriteCommitted():
            return ReportedWrite(total, metrics, _told(outcomes))
        case NothingToAbort():
            return ReportedWrite(WriteReport({}), exactly_once=_told(outcomes), status="unknown")


def _ending(ended: WriteAborted | WriteCommitted | NothingToAbort) -> str:
    """Say what became of a write whose commit Spark takes for failed."""
    match ended:
        case WriteAborted(transactions):
            return f"nothing of it is visible; {len(transactions)} transactions were aborted"
        case WriteCommitted():
            return "yet all its rows are committed, and a restart does not write them again"
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


def _told(outcomes: Sequence[TaskOutcome]) -> dict[str, object]:
    """Return for people and programs which way the rows of the tasks went."""
    ways = Counter(type(outcome) for outcome in outcomes)
    return {
        "id": outcomes[0].handle.sink,
        "batch": outcomes[0].batch,
        "inline": ways[InlineRows],
        "transactions": ways[PreparedTask],
        "skipped": ways[Skipped],
    }


def _of_inline(outcomes: Sequence[TaskOutcome], spans: Sequence[Span]) -> WriteReport:
    """Return the report of the rows that the driver has sent itself, to `spans`."""
    batches = [batch for outcome in outcomes if isinstance(outcome, InlineRows) for batch in outcome.batches]
    ranges = {(topic, partition): OffsetRange(*found) for topic, partition, *found in spans}
    size = sum(len(batch.data) for batch in batches)
    return WriteReport(ranges, sum(batch.records for batch in batches), size, len(batches))
