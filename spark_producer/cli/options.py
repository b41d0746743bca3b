"""The command `pyproducer options`, which lists every option with its default."""

from __future__ import annotations

import argparse
import shutil
import textwrap

from spark_producer.cli.json_output import add_json, print_json
from spark_producer.cli.pages import pages_line
from spark_producer.config import docs_table


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    options = commands.add_parser("options", description="List every option of the data source with its default.")
    form = options.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown tables, as in docs/options.md")
    add_json(form, "a JSON object for each option on a line")
    options.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> None:
    if chosen.markdown:
        print(docs_table.render_markdown(), docs_table.render_reads(), sep="\n", end="")
        return
    if chosen.json:
        for fields in docs_table.option_fields():
            print_json(fields)
        return
    width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 100))
    _print(docs_table.option_rows(), width)
    shared = (
        "kafka.bootstrap.servers and other options of connections, kafka.security.protocol, kafka.ssl.…, kafka.sasl.…"
    )
    print("\n" + textwrap.fill(f"Options of reads. They take these of the above, too: {shared}", width) + "\n")
    _print(docs_table.read_rows(), width)
    if line := pages_line():
        print(f"\n{line}")


def _print(rows: list[tuple[str, str, str]], width: int) -> None:
    for name, default, doc in rows:
        print(f"{name}  ({default})")
        print(textwrap.fill(doc.replace("`", ""), width, initial_indent="    ", subsequent_indent="    "))
