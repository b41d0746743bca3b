"""A tour: write the flights of 2013 to Kafka in one batch, write them again as a stream, read them back twice and count them.

    make quickstart                                                 with the embedded broker
    make quickstart ARGS=--secure                                   with the embedded broker, TLS and a login
    make quickstart ARGS=--exactly-once                             a query is killed in the middle, and nothing is seen twice
    make quickstart ARGS='--bootstrap-servers host:9092'            with a real cluster
    make quickstart ARGS='--command-config client.properties'       with a secured one (docs/security.md)

At the end it removes everything that it has created; with `--keep` the topics stay.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from display import Written, console, count_line, print_counts, print_report, step, watch
from flights import ROWS, count_in_spark, replay_months, unpack_flights, write_batch
from interrupts import end_in_order, interrupted_later
from killed_query import KilledQuery
from pyspark.sql import SparkSession
from secured import secured_broker
from session import quiet_session
from topics import read_back

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.admin.topics import create_topic, delete_topic, wait_for_topic
from spark_producer.broker import LocalBroker
from spark_producer.cli.connection_args import SERVERS, add_connection, connection_options, settings_of
from spark_producer.errors import PyProducerError

BATCH_TOPIC, STREAM_TOPIC, ONCE_TOPIC = "flights", "flights-replay", "flights-once"
TIMEOUT = 30.0
STOPPED = 130
"""The exit code after Ctrl-C, as in shells."""


def main(given: Sequence[str] | None = None) -> int:
    """Run the whole tour. The exit code is 1 if records are missing at its end."""
    chosen = _arguments(given)
    console.print("\n[bold]pyproducer quickstart[/]: the flights of 2013, from Spark to Kafka\n")
    with contextlib.ExitStack() as stack:
        if chosen.secure:
            chosen.command_config = _start_secured_broker(stack)
        options = connection_options(chosen)
        own_broker = chosen.secure or SERVERS not in options
        if SERVERS not in options:
            options |= _start_broker(stack)
        client = stack.enter_context(BlockingClient(settings_of(options), timeout=TIMEOUT))
        client.metadata([])  # if brokers cannot be reached, the wait is here, where Ctrl-C takes effect at once
        for topic in (ONCE_TOPIC,) if chosen.exactly_once else (BATCH_TOPIC, STREAM_TOPIC):
            with interrupted_later():
                if create_topic(client, topic, chosen.partitions) and not chosen.keep:
                    stack.callback(delete_topic, client, topic)
            wait_for_topic(client, topic)
        if chosen.exactly_once:
            return _kill_and_count(client, chosen, options[SERVERS], own_broker=own_broker)
        runs = _write_and_read_back(client, options)
        print_report(runs, _next_steps(chosen, options[SERVERS], own_broker=own_broker))
        if chosen.keep and own_broker:
            _wait_for_ctrl_c(options[SERVERS])
    return 1 if any(min(run.found.records, run.in_spark) < run.rows for run in runs) else 0


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="quickstart",
        description="Write the flights of 2013 to Kafka, in batch and as a stream, and read them back: to the embedded broker, "
        "or to the cluster that --bootstrap-servers or --command-config names.",
    )
    add_connection(parser, default=None)
    parser.add_argument(
        "--secure", action="store_true", help="use TLS and a login by SCRAM-SHA-512 with the embedded broker"
    )
    parser.add_argument(
        "--exactly-once",
        action="store_true",
        help="write with exactlyOnceId instead, kill the query in the middle, and count the records that readers see",
    )
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the two topics (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the topics, and the embedded broker until Ctrl-C")
    chosen = parser.parse_args(given)
    if chosen.secure and (chosen.command_config or chosen.bootstrap_servers):
        parser.error("--secure is for the embedded broker: leave --command-config and --bootstrap-servers out")
    return chosen


def _start_broker(stack: contextlib.ExitStack) -> dict[str, str]:
    """Start the embedded broker, and return the options of the data source that connect to it."""
    with step("start the embedded broker"), interrupted_later():
        return {SERVERS: stack.enter_context(LocalBroker()).bootstrap_servers}


def _start_secured_broker(stack: contextlib.ExitStack) -> str:
    """Start the embedded broker with TLS and a user, and return the properties file that connects to it."""
    with step("start the embedded broker, with TLS and a login"), interrupted_later():
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyproducer-quickstart-")))
        broker, client = secured_broker(home)
        stack.enter_context(broker)
    console.print(f"  options of its clients: {client}", soft_wrap=True)
    return str(client)


def _kill_and_count(client: BlockingClient, chosen: argparse.Namespace, servers: str, *, own_broker: bool) -> int:
    """Replay the flights exactly once with a kill in the middle; return 1 if committed records are missing or duplicated."""
    connection = ["--command-config", str(chosen.command_config)] if chosen.command_config else []
    connection += ["--bootstrap-servers", servers] if own_broker or chosen.bootstrap_servers else []
    with contextlib.ExitStack() as stack:
        with interrupted_later():
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyproducer-quickstart-")))
        counts = KilledQuery(client, ONCE_TOPIC, ROWS, connection, scratch).play()
    print_counts(counts, ROWS)
    if chosen.keep and own_broker:
        _wait_for_ctrl_c(servers)
    return 0 if (counts[-1].committed, counts[-1].distinct) == (ROWS, ROWS) else 1


def _write_and_read_back(client: BlockingClient, options: Mapping[str, str]) -> list[Written]:
    with contextlib.ExitStack() as stack:
        with interrupted_later():
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyproducer-quickstart-")))
        files = scratch / "files"
        with step("unpack the flights"):
            rows = unpack_flights(files)
        with step("start Spark"):
            spark = stack.enter_context(quiet_session("quickstart", local=True))

        def batch(options: dict[str, str]) -> None:
            write_batch(spark, files, options)

        def replay(options: dict[str, str]) -> None:
            replay_months(spark, files, scratch / "checkpoint", options)

        return [
            _run("batch", batch, spark, client, {**options, "topic": BATCH_TOPIC}, rows),
            _run("stream", replay, spark, client, {**options, "topic": STREAM_TOPIC}, rows),
        ]


def _run(
    name: str,
    write: Callable[[dict[str, str]], None],
    spark: SparkSession,
    client: BlockingClient,
    options: dict[str, str],
    rows: int,
) -> Written:
    """Write and show the progress, then read the records after the previous end of the topic, without Spark and with it."""
    topic = options["topic"]
    starts = offsets(client, topic)
    with watch(settings_of(options), topic, rows, f"{name} write to {topic}"):
        begin = time.monotonic()
        write(options)
        seconds = time.monotonic() - begin
    with count_line(f"read {topic} back", rows) as on_count:
        found = read_back(client, topic, starts, on_count)
    with step(f"read {topic} with spark.read"):
        in_spark = count_in_spark(spark, options, starts)
    return Written(name, topic, rows, seconds, found, in_spark)


def _next_steps(chosen: argparse.Namespace, servers: str, *, own_broker: bool) -> list[tuple[str, str]]:
    """Return possible next steps with their commands or pages."""
    here = os.path.relpath(Path(sys.executable).with_name("pyproducer"))
    command = "pyproducer" if shutil.which("pyproducer") else here
    steps = [("see every option", f"{command} options"), ("use it in your own job", "README.md")]
    connection = f"--command-config {chosen.command_config} " if chosen.command_config else ""
    connection += f"--bootstrap-servers {servers} " if chosen.bootstrap_servers or not connection else ""
    again = "--secure " if chosen.secure else connection * (not own_broker)
    if chosen.keep:
        tail = f"{command} tail {BATCH_TOPIC} {connection}--from-beginning"
        steps.insert(0, ("read the records", tail))
    else:
        steps.insert(0, ("keep the topics to look into", f"make quickstart ARGS='{again}--keep'"))
    if own_broker:
        steps.insert(1, ("write to your own cluster", "make quickstart ARGS='--bootstrap-servers host:9092'"))
    return steps


def _wait_for_ctrl_c(servers: str) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        console.print(f"The embedded broker runs at [bold]{servers}[/] until Ctrl-C.")
        threading.Event().wait()


if __name__ == "__main__":
    end_in_order()
    try:
        sys.exit(main())
    except PyProducerError as error:
        sys.exit(f"quickstart: {error}")
    except KeyboardInterrupt:
        console.print("quickstart: stopped, everything is cleaned up")
        sys.exit(STOPPED)
