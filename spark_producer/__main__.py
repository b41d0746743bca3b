"""The command line: `pyproducer broker | tail | convert | options`, or `python -m spark_producer …`.

Owns: arguments, what is printed, exit codes. Must not know: how anything is done.

Exit codes: 0 done, or stopped by Ctrl-C where that is how a command ends, or by the reader of a pipe that has seen enough,
1 an error (one line on stderr), 2 bad arguments, 130 interrupted by Ctrl-C before it was done.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import select
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from spark_producer import __version__, archive_file, option_page
from spark_producer.broker import BrokerSettings, serve
from spark_producer.errors import PyProducerError
from spark_producer.kernel import CHOICE
from spark_producer.network import BlockingClient, parse_bootstrap_servers
from spark_producer.tail import TopicReader, format_record, format_reset

TIMEOUT = 30.0
"""Seconds that `tail` waits for an answer."""

STILL_TRYING = 2.0
"""Seconds without an answer after which `tail` says for whom it waits."""

SPARK_PACKAGES = ("pyspark", "pyspark-client", "pyspark-connect")

INTERRUPTED = 130
"""128 + SIGINT, as shells have it"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        chosen.run(chosen)
    except PyProducerError as error:
        _complain(str(error))
        return 1
    except KeyboardInterrupt:
        if chosen.run is not _convert:
            return 0
        _complain("interrupted; nothing was written")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe, `| head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyproducer", description="Tools around the PySpark data source that writes DataFrames to Kafka."
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the versions of what works together, and exit"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_broker(commands)
    _add_tail(commands)
    _add_convert(commands)
    options = commands.add_parser(
        "options", help="list every option with its default", description="List every option."
    )
    options.add_argument("--markdown", action="store_true", help="as a Markdown table, as in docs/options.md")
    options.set_defaults(run=_options)
    return parser


class _Version(argparse.Action):
    """What a report of a defect should name: kernel, Python, pyarrow, Spark."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        spark = next((one.version for one in distributions() if one.name in SPARK_PACKAGES), "not installed by pip")
        python = platform.python_version()
        kernel = CHOICE.describe()
        print(f"pyproducer {__version__} ({kernel}; Python {python}, pyarrow {pa.__version__}, Spark {spark})")
        parser.exit()


def _add_broker(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    broker = commands.add_parser(
        "broker",
        help="run the embedded broker: one node, for development and tests",
        description="Run the embedded broker until Ctrl-C. One node, no replication: for development, tests, small jobs. "
        "At most 1,000 connections, 256 MiB of requests and answers on their way, 50,000 partitions.",
    )
    broker.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    broker.add_argument("--port", type=_port, default=9092, help="0 takes a free one (default: %(default)s)")
    broker.add_argument(
        "--advertised", metavar="HOST:PORT", help="what clients are told to connect to; needed with --host 0.0.0.0"
    )
    broker.add_argument("--data-dir", help="keep topics there; without it they are gone at the end")
    broker.add_argument("--partitions", type=_positive, default=1, help="of topics made on first use (default: 1)")
    broker.set_defaults(run=_broker)


def _add_tail(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tail = commands.add_parser(
        "tail",
        help="print the records of a topic as they arrive",
        description="Print the records of a topic as they arrive, until Ctrl-C: partition:offset, time (UTC), key, value, "
        "headers. Bytes that are no text are printed as 0x….",
    )
    tail.add_argument("topic")
    tail.add_argument(
        "--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT,…", help="(default: %(default)s)"
    )
    tail.add_argument("--from-beginning", action="store_true", help="what is there already, too")
    tail.add_argument("--max-records", type=_positive, metavar="N", help="stop after N records")
    tail.add_argument("--partition", type=_natural, metavar="P", help="this partition only")
    tail.set_defaults(run=_tail)


def _add_convert(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    convert = commands.add_parser(
        "convert",
        help="write a log file anew in an older message format",
        description="Write a log, such as a broker's segment file, in a message format from before Kafka 0.11, and say "
        "what that format cannot hold. Reads every format and codec.",
    )
    convert.add_argument("log", type=Path, help="the file to read: a regular one that does not get shorter meanwhile")
    convert.add_argument("output", type=Path, help="the file to write; it must not exist, and does when it is whole")
    convert.add_argument(
        "--message-format-version", required=True, metavar="VERSION", help="of Kafka: 0.9.0 for V0, 0.10.2 for V1"
    )
    convert.add_argument(
        "--compression-type", default="none", metavar="CODEC", help="none, gzip, snappy or lz4 (default: %(default)s)"
    )
    convert.set_defaults(run=_convert)


def _broker(chosen: argparse.Namespace) -> None:
    settings = BrokerSettings(default_partitions=chosen.partitions)
    advertised = parse_bootstrap_servers(chosen.advertised)[0] if chosen.advertised else None

    def ready(servers: str, data_dir: Path) -> None:
        kept = "" if chosen.data_dir else " (removed at the end; --data-dir keeps it)"
        print(f"broker on {servers}, data in {data_dir}{kept}. Ctrl-C stops it.", flush=True)

    serve(chosen.host, chosen.port, chosen.data_dir, advertised=advertised, settings=settings, ready=ready)


def _tail(chosen: argparse.Namespace) -> None:
    _tolerant_output()
    partitions = None if chosen.partition is None else [chosen.partition]
    addresses = parse_bootstrap_servers(chosen.bootstrap_servers)
    left = chosen.max_records
    wait = _Wait()
    with BlockingClient(addresses, client_id="pyproducer-tail", timeout=TIMEOUT, on_wait=wait) as client:
        reader = TopicReader(
            client,
            chosen.topic,
            partitions=partitions,
            from_beginning=chosen.from_beginning,
            on_reset=lambda *reset: _complain(format_reset(*reset)),
        )
        while True:
            _stop_if_nobody_reads()
            for partition, record in reader.records():
                print(format_record(partition, record))
                if left is not None:
                    left -= 1
                    if left == 0:
                        sys.stdout.flush()
                        return
            sys.stdout.flush()


class _Wait:
    """What `tail` does while it waits for a broker: it says so once in each wait, and ends with the reader of its output."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, seconds: float, addresses: str) -> None:
        _stop_if_nobody_reads()
        if seconds >= STILL_TRYING and not self._told:
            _complain(f"still trying {addresses} … (for {TIMEOUT:g} s at most)")
        self._told = seconds >= STILL_TRYING


def _stop_if_nobody_reads() -> None:
    """A pipe whose reader has gone is not noticed before the next write, which may never come.

    Raises:
        BrokenPipeError: stdout is such a pipe.
    """
    if sys.stdout is None or not hasattr(select, "poll"):  # Windows has no poll
        return
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:  # not a file at all: a notebook's, a test's
        return
    watched = select.poll()
    watched.register(descriptor, 0)  # errors and hang-ups are always told
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in watched.poll(0)):
        raise BrokenPipeError


def _complain(text: str) -> None:
    print(f"pyproducer: {text}", file=sys.stderr, flush=True)


def _convert(chosen: argparse.Namespace) -> None:
    written, lost = archive_file.convert_file(
        chosen.log,
        chosen.output,
        message_format_version=chosen.message_format_version,
        compression_type=chosen.compression_type,
    )
    print(f"{written} bytes; lost: {lost}")


def _options(chosen: argparse.Namespace) -> None:
    _tolerant_output()
    if chosen.markdown:
        print(option_page.render_markdown(), end="")
        return
    width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 100))
    for name, default, doc in option_page.option_rows():
        print(f"{name}  ({default})")
        print(textwrap.fill(doc.replace("`", ""), width, initial_indent="    ", subsequent_indent="    "))


def _tolerant_output() -> None:
    """A terminal without Unicode gets escapes instead of an error."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _port(text: str) -> int:
    return _between(text, 0, 65_535)


def _positive(text: str) -> int:
    return _between(text, 1, 2**31 - 1)


def _natural(text: str) -> int:
    return _between(text, 0, 2**31 - 1)


def _between(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"a whole number from {low} to {high} is needed, not {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
