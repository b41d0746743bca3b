"""Publishes write reports: to `follow()` subscribers, and as JSON files under `reportPath`.

This runs in the process on the driver in which Spark commits or aborts. The rows are already written, so an error here does not
fail the write.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_producer.common.addresses import format_address
from spark_producer.common.escape import escaping_logger
from spark_producer.datasource.write.driver.commit import ReportedWrite, TaskReport
from spark_producer.datasource.write.driver.report_formats import report_dict
from spark_producer.network.addresses import parse_bootstrap_servers

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.accumulators import Accumulator

    from spark_producer.datasource.write.task_settings import TaskSettings

logger = escaping_logger("pyproducer")


def publish(
    reported: ReportedWrite,
    reports: Sequence[TaskReport],
    what: str,
    batch: int | None,
    settings: TaskSettings,
    follower: Accumulator[Any] | None,
) -> None:
    """Send the report of a write to the follower, and save it under `reportPath`. If that fails, a warning is logged."""
    query = next((report.query for report in reports if report.query is not None), None)
    report = report_of_write(reported, reports, what, batch, settings.config.bootstrap_servers) | {"query_id": query}
    text = json.dumps(report)
    if follower is not None:
        follower.add([text])
    folder = settings.sink.report_path
    if folder is None:
        return
    try:
        save(text, folder, _name(query, batch, report), overwrite=not _skipped(reported))
    except Exception as error:  # any file system's error: the rows are written already
        logger.warning(
            "%s: the write is %s, but its report could not be saved in reportPath %s (%s: %s). No rows are affected. The report "
            "is: %s",
            what,
            reported.status,
            folder,
            type(error).__name__,
            error,
            text,
        )


def report_of_write(
    reported: ReportedWrite, reports: Sequence[TaskReport], what: str, batch: int | None, servers: str
) -> dict[str, object]:
    """Return the report of the log `pyproducer.commit`, with the number of the micro-batch, times and names for lineage."""
    begun = [report.started for report in reports if report.started is not None]
    return report_dict(what, reported.report, reported.metrics, exactly_once=reported.exactly_once) | {
        "status": reported.status,
        "batch_id": batch,
        "started": _moment(min(begun)) if begun else None,
        "ended": _moment(time.time()),
        "outputs": outputs(servers, sorted({topic for topic, _ in reported.report.ranges})),
    }


def outputs(servers: str, topics: Sequence[str]) -> list[dict[str, str]]:
    """Return the names that OpenLineage gives to topics: the first bootstrap server, in lower case, and the topic.

    Source: OpenLineage, "Naming", Kafka.
    """
    host, port = parse_bootstrap_servers(servers)[0]
    return [{"namespace": f"kafka://{format_address(host, port).lower()}", "name": topic} for topic in topics]


def save(text: str, folder: str, name: str, *, overwrite: bool) -> None:
    """Write a file `name` into `folder`, a path or a URI. Readers see the whole file or none.

    Raises:
        OSError, pyarrow.ArrowException: the file system refuses, or is unknown.
    """
    system, base = _file_system(folder)
    system.create_dir(base, recursive=True)
    path, hidden = f"{base}/{name}", f"{base}/.{name}.{uuid.uuid4().hex[:8]}"
    if not overwrite and system.get_file_info(path).is_file:
        return
    with system.open_output_stream(hidden) as file:
        file.write(text.encode() + b"\n")
    system.move(hidden, path)


def _file_system(folder: str) -> tuple[FileSystem, str]:
    from pyarrow import fs  # loaded only here in the commit process

    if "://" not in folder and not folder.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(folder).absolute())
    return fs.FileSystem.from_uri(folder)


def _name(query: str | None, batch: int | None, report: dict[str, object]) -> str:
    """Return the file name of a report. It is the same for a repeated micro-batch."""
    if batch is not None:
        return f"{query or 'query'}-{batch:08}.json"
    return f"{str(report['ended']).replace(':', '')}-{uuid.uuid4().hex[:8]}.json"


def _skipped(reported: ReportedWrite) -> bool:
    """Return whether an exactly-once write was skipped, because it was committed before. The earlier report has its counts."""
    return bool(reported.exactly_once and reported.exactly_once["skipped"])


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
