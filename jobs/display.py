"""The output of a job for people: its progress while it works, and a report at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from topics import ReadBack

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.errors import PyProducerError, TopicNotFound
from spark_producer.network import ConnectionSettings

console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)

POLL_SECONDS = 0.25
"""Seconds between two look-ups of the topic's offsets."""

STARTING = "Spark starts …"
"""The text in place of a count until the first record arrives: a bar at 0 would look as if nothing happened."""

HIDDEN_MESSAGES = ("Using incubator modules: jdk.incubator.vector",)
"""Messages that the JVM prints at every start of Spark, before it reads any log setting."""


class Written(NamedTuple):
    """One write, and the records that were read back."""

    name: str
    topic: str
    rows: int
    seconds: float
    found: ReadBack
    in_spark: int
    """The number of records that `spark.read` has returned."""


def _progress(*middle: ProgressColumn) -> Progress:
    """Return a line with a spinner, `middle` and the time. A finished line stays on the screen."""
    return Progress(SpinnerColumn(finished_text="[green]✓[/]"), *middle, TimeElapsedColumn(), console=console)


def _counting() -> Progress:
    return _progress(
        TextColumn("{task.description:<30}"), BarColumn(bar_width=18), TextColumn("{task.fields[count]:>17}")
    )


@contextlib.contextmanager
def orderly_stderr() -> Iterator[None]:
    """Let child processes that the body starts write their stderr above the progress instead of into it.

    Without this, a warning of the JVM lands in the middle of a line that is being redrawn.
    """
    reading, writing = os.pipe()
    threading.Thread(target=_relay, args=(reading,), daemon=True).start()
    own = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _relay(reading: int) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not any(hidden in line for hidden in HIDDEN_MESSAGES):
                console.print(Text(line.rstrip("\n"), style="yellow"), soft_wrap=True)


@contextlib.contextmanager
def step(description: str) -> Iterator[None]:
    """Show a line for work whose progress cannot be seen."""
    with _progress(TextColumn("{task.description:<67}")) as shown:
        line = shown.add_task(description, total=None)
        yield
        shown.update(line, total=1, completed=1)


@contextlib.contextmanager
def watch(connection: ConnectionSettings, topic: str, goal: int, description: str) -> Iterator[None]:
    """Show a line that counts the records which arrive in `topic` while the body writes `goal` of them."""
    done = threading.Event()
    with _counting() as shown, BlockingClient(connection, timeout=10) as client:
        start = _records_of(client, topic)
        line = shown.add_task(description, total=None, count=STARTING)
        count = partial(_records_of, client, topic)
        watcher = threading.Thread(target=_poll, args=(count, start, shown, line, goal, done), daemon=True)
        try:
            watcher.start()  # Ctrl-C may come while it starts, and it must end before the client is closed
            yield
            done.set()
            watcher.join()
            _show(shown, line, goal, goal)
        finally:
            done.set()
            if watcher.is_alive():
                watcher.join()


@contextlib.contextmanager
def count_line(description: str, goal: int, *, start: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a line for a body that reports its own progress.

    Give `start`, the count at the beginning, if Spark has to start first: the bar moves to and fro until the count has changed.
    """
    with _counting() as shown:
        waits = start is not None
        line = shown.add_task(description, total=None if waits else goal, count=STARTING if waits else "")

        def report(count: int) -> None:
            if count != start:
                _show(shown, line, count, goal)

        yield report


def _poll(
    count: Callable[[], int], start: int, shown: Progress, line: TaskID, goal: int, done: threading.Event
) -> None:
    while not done.wait(POLL_SECONDS):
        # An error here does not matter: if it affects the write too, the write will report it.
        with contextlib.suppress(PyProducerError):
            new = min(count() - start, goal)
            if new:
                _show(shown, line, new, goal)


def _show(shown: Progress, line: TaskID, count: int, goal: int) -> None:
    shown.update(line, total=goal, completed=count, count=f"{count:,}/{goal:,}")


def _records_of(client: BlockingClient, topic: str) -> int:
    """Return the sum of the end offsets of all partitions; 0 while there is no such topic."""
    try:
        return sum(offsets(client, topic).values())
    except TopicNotFound:
        return 0


def print_report(runs: Sequence[Written], next_steps: Sequence[tuple[str, str]]) -> None:
    """Print the writes, their offsets, a few records, and the next steps with their commands."""
    console.print()
    console.print(_summary(runs))
    console.print(
        Text("Seconds are those of the whole write, including the start of Spark's Python workers.", style="dim")
    )
    console.print()
    console.print(_offsets(runs))
    console.print()
    console.print(Text("A few records, as pyproducer tail prints them", style="bold"))
    for line in runs[0].found.sample:
        console.print(Text(line), overflow="ellipsis", no_wrap=True)
    console.print()
    console.print(Text("Next steps", style="bold"))
    for step_name, command in next_steps:
        console.print(f"  {step_name:<29}", Text(command, style="cyan"), soft_wrap=True)
    console.print()


class TopicCounts(NamedTuple):
    """The counts of a topic at one moment: all records, committed records, and distinct committed records."""

    moment: str
    in_log: int
    committed: int
    distinct: int


def print_counts(counts: Sequence[TopicCounts], rows: int) -> None:
    """Print the counts of a topic whose write of `rows` rows was killed and repeated."""
    table = _table("Records that readers see")
    for name in ("", "in the log", "isolation.level=read_committed", "distinct flights"):
        table.add_column(name, justify="right" if name else "left")
    for count in counts:
        table.add_row(count.moment, f"{count.in_log:,}", f"{count.committed:,}", f"{count.distinct:,}")
    console.print()
    console.print(table)
    last = counts[-1]
    complete = last.committed == last.distinct == rows
    verdict = f"each of the {rows:,} flights once" if complete else f"expected {rows:,} flights: this is a defect"
    console.print(Text(f"{'✓' if complete else '≠'} {verdict}", style="green" if complete else "bold red"))
    console.print(
        Text(
            "The other records in the log belong to the killed run. Its transaction is aborted, so read_committed skips them.",
            style="dim",
        )
    )
    console.print()


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )


def _summary(runs: Sequence[Written]) -> Table:
    """Return a table with rows in, records out, those that Spark reads, and speed, with one line for each write."""
    table = _table("Writes")
    table.add_column("")
    table.add_column("topic")
    for name in ("rows in", "records out", "spark.read", "", "seconds", "records/s", "MB/s"):
        table.add_column(name, justify="right")
    for run in runs:
        same = run.found.records == run.in_spark == run.rows
        table.add_row(
            run.name,
            run.topic,
            f"{run.rows:,}",
            f"{run.found.records:,}",
            f"{run.in_spark:,}",
            Text("✓", style="green") if same else Text("≠", style="bold red"),
            f"{run.seconds:.1f}",
            f"{run.rows / run.seconds:,.0f}",
            f"{run.found.bytes / run.seconds / 1e6:.1f}",
        )
    return table


def _offsets(runs: Sequence[Written]) -> Table:
    """Return a table with the first and last offset and the number of records of each partition, with the writes side by side."""
    table = _table("Offsets")
    table.add_column("partition", justify="right")
    for run in runs:
        table.add_column(f"{run.topic}: offsets", justify="right")
        table.add_column("records", justify="right")
    for partition in sorted({partition for run in runs for partition in run.found.ranges}):
        cells = [str(partition)]
        for run in runs:
            first, end, records = run.found.ranges.get(partition, (0, 0, 0))
            cells += [f"{first:,} … {end - 1:,}" if records else "–", f"{records:,}"]
        table.add_row(*cells)
    return table
