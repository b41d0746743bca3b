"""The command `pyproducer downconvert`, which rewrites a log file in an older message format."""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_producer.cli.json_output import add_json, print_json
from spark_producer.legacy_formats.files import convert_file


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    downconvert = commands.add_parser(
        "downconvert",
        description="Rewrite a log, such as a broker's segment file, in a message format from before Kafka 0.11, and print "
        "what that format cannot hold. All formats and codecs can be read.",
    )
    downconvert.add_argument(
        "log", type=Path, help="the file to read; it must be a regular file, and not shrink meanwhile"
    )
    downconvert.add_argument(
        "output", type=Path, help="the file to write; it must not exist, and appears when it is complete"
    )
    downconvert.add_argument(
        "--message-format-version",
        required=True,
        metavar="VERSION",
        help="a Kafka version with the format to write: 0.9.0 for V0, 0.10.2 for V1",
    )
    downconvert.add_argument(
        "--compression-type", default="none", metavar="CODEC", help="none, gzip, snappy or lz4 (default: %(default)s)"
    )
    add_json(downconvert, "one JSON object")
    downconvert.set_defaults(run=_run, unfinished="nothing was written")


def _run(chosen: argparse.Namespace) -> None:
    written, lost = convert_file(
        chosen.log,
        chosen.output,
        message_format_version=chosen.message_format_version,
        compression_type=chosen.compression_type,
    )
    if chosen.json:
        print_json({"output": str(chosen.output), "bytes": written, "lost": lost._asdict()})
    else:
        print(f"{written} bytes; lost: {lost}")
