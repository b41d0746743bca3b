"""The tour of exactly once: a query is killed in the middle of a micro-batch, started again, and its records are counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from display import TopicCounts, console, count_line
from topics import count_distinct

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.errors import PyProducerError

CHECK_SECONDS = 0.05
"""Seconds between two checks for an open transaction. That of a month of flights is open for some tenths of a second."""

COUNT_SECONDS = 0.25
"""Seconds between two counts; longer, so that a small machine has its cores for Spark."""

MAX_RUN_S = 300.0
"""Maximum seconds of a query."""

ID = "flights"


class KilledQuery:
    """A query that replays the flights into `topic` exactly once, in a separate process, so that it can be killed."""

    def __init__(self, client: BlockingClient, topic: str, rows: int, connection: Sequence[str], scratch: Path) -> None:
        """`connection` has the connection arguments of `flights.py`; files and checkpoint are in `scratch`."""
        self._client = client
        self._topic = topic
        self._rows = rows
        self._scratch = scratch
        flights = str(Path(__file__).with_name("flights.py"))
        self._environment = _environment(scratch)
        self._command = [
            sys.executable, flights, *connection, "--topic", topic, "--stream", "--data-dir", str(scratch / "files"),
            "--checkpoint", str(scratch / "checkpoint-once"), "--option", f"exactlyOnceId={ID}",
        ]  # fmt: skip

    def play(self) -> list[TopicCounts]:
        """Run the query until a transaction is open, kill it, run it to its end; return the counts of the topic after each run.

        Raises:
            PyProducerError: the query failed, or took too long.
        """
        self._run("Spark, a replay of the flights", until_open=True)
        console.print("  [bold]kill -9[/] in the middle of a micro-batch: its driver, its JVM and its tasks are gone")
        killed = self._count("after the kill")
        self._run("Spark again, the same query", until_open=False)
        return [killed, self._count("at the end")]

    def _count(self, moment: str) -> TopicCounts:
        in_log, _ = count_distinct(self._client, self._topic, IsolationLevel.READ_UNCOMMITTED)
        committed, distinct = count_distinct(self._client, self._topic, IsolationLevel.READ_COMMITTED)
        return TopicCounts(moment, in_log, committed, distinct)

    def _run(self, description: str, *, until_open: bool) -> None:
        """Run the query to its end, or until uncommitted rows are in the log, and kill it."""
        log = self._scratch / "query.log"
        with log.open("wb") as output:
            query = subprocess.Popen(
                self._command, stdout=output, stderr=output, start_new_session=True, env=self._environment
            )
        try:
            with count_line(description, self._rows, start=self._committed()) as on_count:
                done = self._watch(query, on_count, until_open=until_open)
        finally:
            if query.poll() is None:
                os.killpg(query.pid, signal.SIGKILL)
            query.wait()
        if not done:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise PyProducerError(
                f"the query ended with code {query.returncode}: {lines[-1] if lines else 'no output'}"
            )

    def _watch(self, query: subprocess.Popen[bytes], on_count: Callable[[int], None], *, until_open: bool) -> bool:
        deadline = time.monotonic() + MAX_RUN_S
        while (ended := query.poll()) is None:
            end = sum(offsets(self._client, self._topic).values())
            stable = self._committed()  # after the end: below that a transaction is open now, and not only before
            on_count(min(stable, self._rows))
            if until_open and 0 < stable < end:
                return True
            if time.monotonic() > deadline:
                raise PyProducerError(f"the query was not done within {MAX_RUN_S:g} s")
            time.sleep(CHECK_SECONDS if until_open else COUNT_SECONDS)
        on_count(self._rows)
        return ended == 0 and not until_open

    def _committed(self) -> int:
        """Return the number of records that readers of committed records see."""
        return sum(offsets(self._client, self._topic, isolation_level=IsolationLevel.READ_COMMITTED).values())


def _environment(scratch: Path) -> dict[str, str]:
    """Return the environment of a query that cannot clean up: all files that Spark and the JVM leave are in `scratch`."""
    directory = scratch / "left"
    directory.mkdir()
    java = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={directory}".strip()
    quick = {"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}
    directories = {"TMPDIR": str(directory), "SPARK_LOCAL_DIRS": str(directory)}
    return quick | dict(os.environ) | directories | {"JAVA_TOOL_OPTIONS": java}
