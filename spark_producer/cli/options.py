"""The command `pyproducer options`, which lists every option with its default."""

from __future__ import annotations

import argparse
import shutil
import textwrap

from spark_producer.cli.pages import pages_line
from spark_producer.config import docs_table


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    options = commands.add_parser("options", description="List every option of the data source with its default.")
    options.add_argument("--markdown", action="store_true", help="print a Markdown table, as in docs/options.md")
    options.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> None:
    if chosen.markdown:
        print(docs_table.render_markdown(), end="")
        return
    width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 100))
    for name, default, doc in docs_table.option_rows():
        print(f"{name}  ({default})")
        print(textwrap.fill(doc.replace("`", ""), width, initial_indent="    ", subsequent_indent="    "))
    if line := pages_line():
        print(f"\n{line}")
