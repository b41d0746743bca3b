"""The pages that tell programs what became of a write: to the program that follows, and into a file of `reportPath`.

They are made in the process on the driver in which Spark commits or aborts. When that happens the rows are written, so nothing
here may fail the write.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_producer.common.escape import escaping_logger
from spark_producer.datasource.write.driver.commit import ReportedWrite, TaskReport
from spark_producer.datasource.write.driver.summary import page
from spark_producer.network.addresses import format_address, parse_bootstrap_servers

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.accumulators import Accumulator

    from spark_producer.datasource.write.task_settings import TaskSettings

logger = escaping_logger("pyproducer")


def publish(
    told: ReportedWrite,
    reports: Sequence[TaskReport],
    what: str,
    batch: int | None,
    settings: TaskSettings,
    follower: Accumulator[Any] | None,
) -> None:
    """Make the page of a write, and hand it to whoever wants it. A file that cannot be written is a warning."""
    query = next((report.query for report in reports if report.query is not None), None)
    made = page_of(told, reports, what, batch, settings.config.bootstrap_servers) | {"query_id": query}
    text = json.dumps(made)
    if follower is not None:
        follower.add([text])
    folder = settings.sink.report_path
    if folder is None:
        return
    try:
        save(text, folder, _name(query, batch, made), overwrite=not _skipped(told))
    except Exception as error:  # of the file system, whichever it is: the rows are written, and stay so
        logger.warning(
            "%s: it is %s, but its report could not be written to reportPath %s (%s: %s). Nothing of the write is lost; the "
            "report was: %s",
            what,
            told.status,
            folder,
            type(error).__name__,
            error,
            text,
        )


def page_of(
    told: ReportedWrite, reports: Sequence[TaskReport], what: str, batch: int | None, servers: str
) -> dict[str, object]:
    """Return the page: that of the log `pyproducer.commit`, with the number of the micro-batch, times and names for lineage."""
    begun = [report.started for report in reports if report.started is not None]
    return page(what, told.report, told.metrics, exactly_once=told.exactly_once) | {
        "status": told.status,
        "batch_id": batch,
        "started": _moment(min(begun)) if begun else None,
        "ended": _moment(time.time()),
        "outputs": outputs(servers, sorted({topic for topic, _ in told.report.ranges})),
    }


def outputs(servers: str, topics: Sequence[str]) -> list[dict[str, str]]:
    """Return the names that OpenLineage gives to topics: the first bootstrap server, in lower case, and the topic.

    Source: OpenLineage, "Naming", Kafka.
    """
    host, port = parse_bootstrap_servers(servers)[0]
    return [{"namespace": f"kafka://{format_address(host, port).lower()}", "name": topic} for topic in topics]


def save(text: str, folder: str, name: str, *, overwrite: bool) -> None:
    """Write a file `name` into `folder`, a path or a URI. Whoever looks sees all of it or nothing.

    Raises:
        OSError, pyarrow.ArrowException: the file system refuses, or there is none of that name.
    """
    system, base = _file_system(folder)
    system.create_dir(base, recursive=True)
    place, hidden = f"{base}/{name}", f"{base}/.{name}.{uuid.uuid4().hex[:8]}"
    if not overwrite and system.get_file_info(place).is_file:
        return
    with system.open_output_stream(hidden) as file:
        file.write(text.encode() + b"\n")
    system.move(hidden, place)


def _file_system(folder: str) -> tuple[FileSystem, str]:
    from pyarrow import fs  # the commit process has no other need of it

    if "://" not in folder and not folder.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(folder).absolute())
    return fs.FileSystem.from_uri(folder)


def _name(query: str | None, batch: int | None, made: dict[str, object]) -> str:
    """Return the file of a write. That of a micro-batch is the same when it is repeated."""
    if batch is not None:
        return f"{query or 'query'}-{batch:08}.json"
    return f"{str(made['ended']).replace(':', '')}-{uuid.uuid4().hex[:8]}.json"


def _skipped(told: ReportedWrite) -> bool:
    """Whether nothing was written because an exactly-once write had happened before: its report is the true one."""
    return bool(told.exactly_once and told.exactly_once["skipped"])


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
