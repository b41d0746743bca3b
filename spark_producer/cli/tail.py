"""The command `pyproducer tail`, which prints the records of a topic as they arrive."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

from spark_producer.admin import BlockingClient
from spark_producer.admin.missing_topics import suggest_topic, suggest_topic_on_not_found
from spark_producer.admin.offsets import offsets
from spark_producer.admin.topics import is_missing, wait_for_creation
from spark_producer.cli.arg_types import natural, offset, positive
from spark_producer.cli.connection_args import add_connection, connection_options, settings_of
from spark_producer.cli.console import print_error, raise_if_pipe_closed
from spark_producer.cli.json_output import add_json
from spark_producer.cli.lso_notice import OpenTransactionNotifier
from spark_producer.cli.progress import WaitNotice
from spark_producer.cli.record_text import format_open_transaction, format_record, format_reset, record_json
from spark_producer.cli.schema_view import Viewer, add_view, decoded, take_registry, viewer
from spark_producer.cli.tail_end import positions_at, records_until
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import LATEST
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.record.reading import ConsumerRecord

CLIENT_ID = "pyproducer-tail"

TIMEOUT = 30.0
"""Maximum seconds that `tail` waits for a response, unless `--timeout` is shorter."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    tail = commands.add_parser(
        "tail",
        description="Print the records of a topic as they arrive, until Ctrl-C: partition:offset, timestamp (UTC), key, value, "
        "headers. Bytes that are not UTF-8 are printed as 0x…. A topic that does not exist yet is waited for, and printed from "
        "its first record; with --until-end it is an error.",
    )
    tail.add_argument("topic", metavar="TOPIC")
    add_connection(tail)
    begin = tail.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_true", help="begin at the first record (default: at the end)")
    begin.add_argument(
        "--offset",
        type=offset,
        metavar="N",
        help="begin at this offset of each partition, or at its end if that is earlier; -N: N records before its end",
    )
    tail.add_argument("-e", "--until-end", action="store_true", help="stop at the end of the topic as it is now")
    tail.add_argument(
        "--timeout",
        type=positive,
        metavar="SECONDS",
        help="stop after this time without a record; also the maximum wait for brokers and for the topic",
    )
    add_json(tail, "each record as a JSON object on a line")
    tail.add_argument(
        "--grep", type=_pattern, metavar="REGEX", help="print only records whose key, value or headers match"
    )
    tail.add_argument("--max-records", type=positive, metavar="N", help="stop after N records")
    tail.add_argument("--partition", type=natural, metavar="P", help="print only this partition")
    tail.add_argument(
        "--isolation-level",
        choices=[level.name.lower() for level in IsolationLevel],
        default=IsolationLevel.READ_UNCOMMITTED.name.lower(),
        help="read_committed leaves out records of open and aborted transactions (default: read_uncommitted)",
    )
    add_view(tail)
    tail.set_defaults(run=_run, unfinished=None)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def _run(chosen: argparse.Namespace) -> None:
    options = {"kafka.client.id": CLIENT_ID} | connection_options(chosen)
    registry = take_registry(options)
    settings = settings_of(options)
    timeout = TIMEOUT if chosen.timeout is None else min(TIMEOUT, chosen.timeout)
    with (
        viewer(chosen, options, registry) as view,
        BlockingClient(settings, timeout=timeout, on_wait=WaitNotice(timeout, raise_if_pipe_closed)) as client,
        suggest_topic_on_not_found(client, chosen.topic),
    ):
        _print(chosen, client, view)


def _print(chosen: argparse.Namespace, client: BlockingClient, view: Viewer | None) -> None:
    left = chosen.max_records
    raise_if_pipe_closed()
    for records in _batches(chosen, client):
        for partition, read in records:
            record = decoded(read, view)
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
    isolation = IsolationLevel.of(chosen.isolation_level)
    is_new = not chosen.until_end and _wait_until_created(client, chosen.topic, chosen.timeout)
    reader = TopicReader(
        client,
        chosen.topic,
        partitions=partitions,
        from_beginning=chosen.from_beginning or is_new,
        isolation=isolation,
        on_reset=lambda *reset: print_error(format_reset(*reset)),
    )
    read = list(reader.positions)  # without partitions that are added later
    if chosen.offset is not None:
        reader.positions = positions_at(client, chosen.topic, chosen.offset, read, isolation)
    ends = None
    begins_at_end = chosen.offset is None and not chosen.from_beginning and not is_new
    if chosen.until_end:
        ends = offsets(client, chosen.topic, LATEST, read, isolation_level=isolation)
        if begins_at_end:
            print_error(
                "nothing is printed: tail begins at the end, and --until-end stops there. Add --from-beginning, or "
                "--offset -10 for ten records"
            )
    elif begins_at_end and sys.stderr is not None and sys.stderr.isatty():
        print_error(f"waiting for new records of {chosen.topic!r}. Add --from-beginning for the existing ones")
    found = records_until(reader, ends=ends, quiet=chosen.timeout)
    if isolation is IsolationLevel.READ_UNCOMMITTED:
        return found

    def notify(*blocked: int) -> None:
        print_error(format_open_transaction(chosen.topic, *blocked))

    return _with_notices(found, OpenTransactionNotifier(client, chosen.topic, lambda: reader.positions, notify))


def _with_notices(
    found: Iterator[list[tuple[int, ConsumerRecord]]], notifier: OpenTransactionNotifier
) -> Iterator[list[tuple[int, ConsumerRecord]]]:
    """Yield the batches of `found`, and report, between them and at the end, partitions that open transactions block."""
    for records in found:
        yield records
        notifier.check_periodically()
    notifier.check()


def _wait_until_created(client: BlockingClient, topic: str, timeout: float | None) -> bool:
    """Wait until a topic exists and has leaders; return whether it was missing at first, so that all its records are new.

    A line on stderr reports the wait, and names a topic with a similar name. `timeout` is in seconds; None: until Ctrl-C.

    Raises:
        TopicNotFound: it was not created within `timeout`. BrokenPipeError: the reader of stdout has closed it. And as
        `BlockingClient.metadata`.
    """
    if not is_missing(client, topic):
        return False
    similar = suggest_topic(client, topic)
    hint = f" Did you mean {similar!r}?" if similar else ""
    print_error(f"topic {topic!r} does not exist yet: waiting for its first write, or until it is created.{hint}")
    wait_for_creation(client, topic, timeout, raise_if_pipe_closed)
    return True
