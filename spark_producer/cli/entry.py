"""The entry of the command line, which turns the arguments into an exit code.

The exit codes are: 0, the command is done, or was stopped by Ctrl-C where that is its usual end, or the reader of its output has
closed the pipe; 1, an error (one line on stderr), or a `check` that
found one; 2, bad arguments; 130, Ctrl-C interrupted the command before it was done.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distributions
from typing import NoReturn

import pyarrow as pa

from spark_producer import __version__
from spark_producer.cli import bench, broker, check, convert, options, tail, topics, txn, write
from spark_producer.cli.terminal import complain, hush
from spark_producer.errors import PyProducerError
from spark_producer.kernel import LOADED
from spark_producer.kernel.loading import LoadedKernel

SPARK_PACKAGES = ("pyspark", "pyspark-client", "pyspark-connect")

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 + SIGINT, as in shells."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help()
        return 0
    chosen = parser.parse_args(arguments)
    try:
        code: int = chosen.run(chosen) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # a pipe that nobody reads any more is told here, and not by a traceback at the end
        return code
    except PyProducerError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        if chosen.unfinished is None:
            return 0
        complain(f"interrupted; {chosen.unfinished}")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe, such as `| head`, has closed it
        hush()
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyproducer", description="Tools around the PySpark data source that writes DataFrames to Kafka."
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        help="show the versions of pyproducer and of what it runs on, and exit",
    )
    parser.set_defaults(unfinished=None)  # a command that ends by itself says here what Ctrl-C leaves behind
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (check, write, tail, topics, bench, txn, convert, options, broker):
        command.add(commands)
    return parser


class _Version(argparse.Action):
    """Prints the versions that a report of a defect should name: those of the kernel, Python, pyarrow and Spark."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(version_line(LOADED, distributions()))
        parser.exit()


def version_line(kernel: LoadedKernel, installed: Iterable[Distribution]) -> str:
    """Return the versions of this package and of what it works with."""
    spark = next((one.version for one in installed if one.name in SPARK_PACKAGES), "not installed by pip")
    python = platform.python_version()
    return f"pyproducer {__version__} ({kernel.describe()}; Python {python}, pyarrow {pa.__version__}, Spark {spark})"
