"""The command `pyproducer write`, which writes the rows of files to a topic."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from spark_producer.cli.connection_args import add_connection
from spark_producer.cli.console import print_error, print_line
from spark_producer.cli.csv_reader import CsvForm
from spark_producer.cli.json_output import add_json, print_json
from spark_producer.cli.producer_args import add_producer, named_values, producer_options
from spark_producer.cli.progress import ProgressBar
from spark_producer.cli.row_numbers import FileRows
from spark_producer.cli.send import WARNING, send_all, wait_for_topic
from spark_producer.cli.table_files import FORMATS, Mapped, check_columns, kind_of, open_file
from spark_producer.config import parse_options
from spark_producer.errors import ConfigError, PyProducerError

CLIENT_ID = "pyproducer-write"

RFC4180 = "rfc4180"
DIALECTS = {RFC4180: ('"', ""), "spark": ('"', "\\")}
"""The quote and the escape character of each CSV dialect. Without an escape character quotes are doubled."""

_OF_CSV = ("--delimiter", "--dialect", "--quote", "--escape", "--infer-types")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    write = commands.add_parser(
        "write",
        description="Write the rows of Parquet, CSV, JSON lines, Arrow or text files, or of stdin (-), to a topic. All files are "
        "opened before the first row is sent. Options come before the files or after the topic.",
    )
    write.add_argument("files", nargs="+", metavar="FILE", help="a file, or - for stdin")
    write.add_argument("topic", metavar="TOPIC", help="an existing topic, or one that the brokers may create")
    add_connection(write)
    write.add_argument(
        "--format",
        choices=FORMATS,
        help="the format of all files (default: by their suffixes; text for stdin, whose lines are values)",
    )
    write.add_argument(
        "--delimiter",
        type=_delimiter,
        metavar="CHARACTER",
        help="delimiter of a CSV: a character, or tab (default: tab for .tsv, else a comma)",
    )
    write.add_argument(
        "--dialect",
        choices=DIALECTS,
        help="quotes within a quoted cell of a CSV are doubled (rfc4180, the default) or escaped by a backslash (spark)",
    )
    write.add_argument(
        "--quote",
        type=_quote,
        metavar="CHARACTER",
        help='quote character of a CSV; none if quotes are text (default: ")',
    )
    write.add_argument(
        "--escape",
        type=_quote,
        metavar="CHARACTER",
        help="escape character within quoted cells of a CSV; none if quotes are doubled (default: that of the dialect)",
    )
    write.add_argument(
        "--infer-types",
        action="store_true",
        help="infer the types of a CSV's columns from its first rows, so that 007 becomes 7 (default: cells are text)",
    )
    _add_columns(write)
    add_producer(write)
    add_json(write, "one JSON object at the end")
    write.set_defaults(run=_run, unfinished=WARNING)


def _add_columns(write: argparse.ArgumentParser) -> None:
    """Add the arguments that map columns to the parts of a record."""
    write.add_argument("--key", metavar="COLUMN", help="column of the key (default: no key)")
    write.add_argument(
        "--value", metavar="COLUMN", default="*", help="column of the value (default: *, a JSON object of all columns)"
    )
    write.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=COLUMN",
        help="a header and its column; may be given several times, with different names",
    )
    write.add_argument(
        "--timestamp",
        metavar="COLUMN",
        help="column of the timestamp: a time, ISO 8601 or milliseconds since 1970; rounded down to milliseconds (default: now)",
    )
    write.add_argument(
        "--keep-nulls",
        action="store_true",
        help="write null columns and fields into the JSON of a row (default: leave them out)",
    )
    write.add_argument(
        "--partition", metavar="COLUMN", help="column of the partition (default: by the key, as the producer does)"
    )


def _run(chosen: argparse.Namespace) -> None:
    config, _ = parse_options(producer_options(chosen, CLIENT_ID))
    headers = named_values(chosen.header, "--header")
    mapped = Mapped(chosen.key, chosen.value, headers, chosen.timestamp, chosen.partition, chosen.keep_nulls)
    form = _csv_form(chosen)
    with ExitStack() as stack:
        sources = [open_file(stack, name, chosen.format, form) for name in chosen.files]
        for source in sources:
            check_columns(source, mapped)
        wait_for_topic(config, chosen.topic, chosen.timeout)
        known = [source.rows for source in sources if source.rows is not None]
        bar = ProgressBar("writing", sum(known) if len(known) == len(sources) else None, " rows")
        rows, of_files = 0, FileRows(sources, mapped)

        def counted(count: int) -> None:
            nonlocal rows
            rows = count
            bar(count)

        try:
            sent = send_all(config, chosen.topic, of_files.batches(), counted)
        except PyProducerError as error:
            bar.end()
            if rows:
                print_error(f"{rows:,} rows were sent before this error; {WARNING}")
            located = of_files.with_file_row(error, chosen.topic)
            if located is error:
                raise
            raise located from error
        finally:
            bar.end()
    if not chosen.json:
        print_line(f"{chosen.topic}: {sent.line()}")
        return
    partitions = [
        {"partition": partition, "records": at.records, "first_offset": at.first, "last_offset": at.last}
        for (_, partition), at in sorted(sent.report.ranges.items())
    ]
    print_json({"topic": chosen.topic} | sent.fields() | {"partitions": partitions})


def _delimiter(text: str) -> str:
    """Return the delimiter, a tab for `tab`.

    Raises:
        argparse.ArgumentTypeError: it is not one ASCII character, or a quote or a line end.
    """
    delimiter = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise argparse.ArgumentTypeError(
            f"expected an ASCII character that is not a quote or line end, or tab, not {text!r}"
        )
    return delimiter


def _quote(text: str) -> str:
    """Return a quote or an escape character; empty for `none`.

    Raises:
        argparse.ArgumentTypeError: it is not one ASCII character, or a space.
    """
    if text == "none":
        return ""
    if len(text) != 1 or not text.isascii() or text.isspace() or text == "\0":
        raise argparse.ArgumentTypeError(f"expected an ASCII character that is not a space, or none, not {text!r}")
    return text


def _csv_form(chosen: argparse.Namespace) -> CsvForm:
    """Return the form of CSV files from the arguments.

    Raises:
        ConfigError: there are such arguments but no CSV file, or they contradict each other.
    """
    given = [name for name in _OF_CSV if getattr(chosen, name.lstrip("-").replace("-", "_")) not in (None, False)]
    if given and all((chosen.format or kind_of(name)) != "csv" for name in chosen.files):
        raise ConfigError(f"{given[0]} is for CSV, and no file is a CSV. Set the format with --format")
    quote, escape = DIALECTS[chosen.dialect or RFC4180]
    quote = quote if chosen.quote is None else chosen.quote
    escape = escape if chosen.escape is None else chosen.escape
    if escape and not quote:
        raise ConfigError("--escape is for quoted cells, and --quote none turns quotes off. Leave one of them out")
    form = CsvForm(chosen.delimiter, chosen.infer_types, quote, "" if escape == quote else escape)
    characters = [character for character in form.dialect() if character]
    if len(set(characters)) < len(characters):
        raise ConfigError(f"--delimiter, --quote and --escape must be different characters, not {characters}")
    return form
