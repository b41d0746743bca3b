"""The command `pyproducer tail`, which prints the records of a topic as they arrive."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import LATEST, offsets
from spark_producer.admin.topic_suggestion import nearest_named
from spark_producer.cli.arg_types import natural, offset, positive
from spark_producer.cli.avro_view import add_view, take_registry, viewed, viewer
from spark_producer.cli.connection_args import add_connection, connection_options, settings_of
from spark_producer.cli.console import print_error, raise_if_pipe_closed
from spark_producer.cli.lso_notice import OpenTransactionNotifier
from spark_producer.cli.nosuch import wait_until_created
from spark_producer.cli.progress import WaitNotice
from spark_producer.cli.record_text import format_held, format_record, format_reset, record_json
from spark_producer.cli.tail_end import positions_at, records_until
from spark_producer.cli.topic_reader import Isolation, TopicReader
from spark_producer.record.reading import ConsumerRecord
from spark_producer.schemas.avro_viewer import AvroViewer

CLIENT_ID = "pyproducer-tail"

TIMEOUT = 30.0
"""Seconds that `tail` waits for an answer, unless `--timeout` says less."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    tail = commands.add_parser(
        "tail",
        description="Print the records of a topic as they arrive, until Ctrl-C: partition:offset, time (UTC), key, value, "
        "headers. Bytes that are not UTF-8 are printed as 0x…. tail waits for a topic that does not exist yet, and prints it "
        "from its first record on; with --until-end that is an error.",
    )
    tail.add_argument("topic")
    add_connection(tail)
    begin = tail.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_true", help="begin with the records that are there already")
    begin.add_argument(
        "--offset",
        type=offset,
        metavar="N",
        help="begin at this offset of each partition, or at its end if that is earlier; -N: so many before its end",
    )
    tail.add_argument("-e", "--until-end", action="store_true", help="stop at the records that are the last ones now")
    tail.add_argument(
        "--timeout",
        type=positive,
        metavar="SECONDS",
        help="stop when no record came for so long; also the maximum wait for brokers and for the topic",
    )
    tail.add_argument("--json", action="store_true", help="print each record as a JSON object")
    tail.add_argument(
        "--grep", type=_pattern, metavar="REGEX", help="print records whose line has a match, in key, value or headers"
    )
    tail.add_argument("--max-records", type=positive, metavar="N", help="stop after N records")
    tail.add_argument("--partition", type=natural, metavar="P", help="print this partition only")
    tail.add_argument(
        "--isolation-level",
        choices=[level.name.lower() for level in Isolation],
        default=Isolation.READ_UNCOMMITTED.name.lower(),
        help="whether records of open and aborted transactions are printed (default: read_uncommitted)",
    )
    add_view(tail)
    tail.set_defaults(run=_run, unfinished=None)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _run(chosen: argparse.Namespace) -> None:
    options = {"kafka.client.id": CLIENT_ID} | connection_options(chosen)
    registry = take_registry(options)
    settings = settings_of(options)
    patience = TIMEOUT if chosen.timeout is None else min(TIMEOUT, chosen.timeout)
    with (
        viewer(chosen, options, registry) as view,
        BlockingClient(settings, timeout=patience, on_wait=WaitNotice(patience, raise_if_pipe_closed)) as client,
        nearest_named(client, chosen.topic),
    ):
        _print(chosen, client, view)


def _print(chosen: argparse.Namespace, client: BlockingClient, view: AvroViewer | None) -> None:
    left = chosen.max_records
    raise_if_pipe_closed()
    for records in _batches(chosen, client):
        for partition, read in records:
            record = viewed(read, view)
            text = "" if chosen.json and chosen.grep is None else format_record(partition, record)
            if chosen.grep is not None and not chosen.grep.search(text.split("  ", 2)[-1]):
                continue
            print(record_json(partition, record) if chosen.json else text)
            if left is not None:
                left -= 1
                if left == 0:
                    sys.stdout.flush()
                    return
        sys.stdout.flush()
        raise_if_pipe_closed()


def _batches(chosen: argparse.Namespace, client: BlockingClient) -> Iterator[list[tuple[int, ConsumerRecord]]]:
    partitions = None if chosen.partition is None else [chosen.partition]
    isolation = Isolation[chosen.isolation_level.upper()]
    is_new = not chosen.until_end and wait_until_created(client, chosen.topic, chosen.timeout)
    reader = TopicReader(
        client,
        chosen.topic,
        partitions=partitions,
        from_beginning=chosen.from_beginning or is_new,
        isolation=isolation,
        on_reset=lambda *reset: print_error(format_reset(*reset)),
    )
    read = list(reader.positions)  # a partition that is added meanwhile is not among them
    if chosen.offset is not None:
        reader.positions = positions_at(client, chosen.topic, chosen.offset, read, isolation)
    ends = None
    begins_at_end = chosen.offset is None and not chosen.from_beginning and not is_new
    if chosen.until_end:
        ends = offsets(client, chosen.topic, LATEST, read, isolation_level=isolation)
        if begins_at_end:
            print_error(
                "it begins at the end, and --until-end stops there: add --from-beginning, or --offset -10 for the last ten"
            )
    elif begins_at_end and sys.stderr is not None and sys.stderr.isatty():
        print_error(f"waiting for new records of {chosen.topic!r}; --from-beginning shows those that are there already")
    found = records_until(reader, ends=ends, quiet=chosen.timeout)
    if isolation is Isolation.READ_UNCOMMITTED:
        return found

    def tell(*held: int) -> None:
        print_error(format_held(chosen.topic, *held))

    return _and_tell(found, OpenTransactionNotifier(client, chosen.topic, lambda: reader.positions, tell))


def _and_tell(
    found: Iterator[list[tuple[int, ConsumerRecord]]], held: OpenTransactionNotifier
) -> Iterator[list[tuple[int, ConsumerRecord]]]:
    """Yield what is found, and say meanwhile and at the end which partitions are held back."""
    for records in found:
        yield records
        held.look_now_and_then()
    held.look()
