"""The command `pyproducer tail`, which prints the records of a topic as they arrive."""

from __future__ import annotations

import argparse
import sys

from spark_producer.cli.connecting import add_connection, connection_options, settings_of
from spark_producer.cli.numbers import natural, positive
from spark_producer.cli.terminal import complain, stop_if_nobody_reads, tolerant_output
from spark_producer.cli.waiting import Wait
from spark_producer.tools import BlockingClient
from spark_producer.tools.record_text import format_record, format_reset
from spark_producer.tools.tail import Isolation, TopicReader

CLIENT_ID = "pyproducer-tail"

TIMEOUT = 30.0
"""Seconds that `tail` waits for an answer."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    tail = commands.add_parser(
        "tail",
        help="print the records of a topic as they arrive",
        description="Print the records of a topic as they arrive, until Ctrl-C: partition:offset, time (UTC), key, value, "
        "headers. Bytes that are no text are printed as 0x….",
    )
    tail.add_argument("topic")
    add_connection(tail)
    tail.add_argument("--from-beginning", action="store_true", help="begin with the records that are there already")
    tail.add_argument("--max-records", type=positive, metavar="N", help="stop after N records")
    tail.add_argument("--partition", type=natural, metavar="P", help="print this partition only")
    tail.add_argument(
        "--isolation-level",
        choices=[level.name.lower() for level in Isolation],
        default=Isolation.READ_UNCOMMITTED.name.lower(),
        help="whether records of open and aborted transactions are printed (default: read_uncommitted)",
    )
    tail.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> None:
    tolerant_output()
    partitions = None if chosen.partition is None else [chosen.partition]
    settings = settings_of({"kafka.client.id": CLIENT_ID} | connection_options(chosen))
    left = chosen.max_records
    wait = Wait(TIMEOUT, stop_if_nobody_reads)
    with BlockingClient(settings, timeout=TIMEOUT, on_wait=wait) as client:
        reader = TopicReader(
            client,
            chosen.topic,
            partitions=partitions,
            from_beginning=chosen.from_beginning,
            isolation=Isolation[chosen.isolation_level.upper()],
            on_reset=lambda *reset: complain(format_reset(*reset)),
        )
        while True:
            stop_if_nobody_reads()
            for partition, record in reader.records():
                print(format_record(partition, record))
                if left is not None:
                    left -= 1
                    if left == 0:
                        sys.stdout.flush()
                        return
            sys.stdout.flush()
