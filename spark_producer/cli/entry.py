"""From arguments to an exit code.

Owns: the list of commands, `--version`, exit codes. Must not know: what a command does.

Exit codes: 0 done, or stopped by Ctrl-C where that is how a command ends, or by the reader of a pipe that has seen enough,
1 an error (one line on stderr), 2 bad arguments, 130 interrupted by Ctrl-C before it was done.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from typing import NoReturn

import pyarrow as pa

from spark_producer import __version__
from spark_producer.cli import broker, convert, options, tail
from spark_producer.cli.terminal import complain
from spark_producer.errors import PyProducerError
from spark_producer.kernel import CHOICE

SPARK_PACKAGES = ("pyspark", "pyspark-client", "pyspark-connect")

INTERRUPTED = 130
"""128 + SIGINT, as shells have it"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        chosen.run(chosen)
    except PyProducerError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        if chosen.unfinished is None:
            return 0
        complain(f"interrupted; {chosen.unfinished}")
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
    parser.set_defaults(unfinished=None)  # what Ctrl-C leaves behind, of a command that has an end of its own
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (broker, tail, convert, options):
        command.add(commands)
    return parser


class _Version(argparse.Action):
    """What a report of a defect should name: kernel, Python, pyarrow, Spark."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        spark = next((one.version for one in distributions() if one.name in SPARK_PACKAGES), "not installed by pip")
        python = platform.python_version()
        kernel = CHOICE.describe()
        print(f"pyproducer {__version__} ({kernel}; Python {python}, pyarrow {pa.__version__}, Spark {spark})")
        parser.exit()
