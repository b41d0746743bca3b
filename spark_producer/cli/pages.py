"""Finds the pages that the help and errors call `docs/…`: in a checkout, or where a wheel has installed them."""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path
from typing import NoReturn

from spark_producer.cli.console import without_given_secrets

INSTALLED = Path("share", "doc", "pyproducer")
"""The folder of a wheel's data files below the prefix of an environment (pyproject.toml, tool.setuptools.data-files)."""


def find_pages(package: Path | None = None, prefix: str | None = None) -> Path | None:
    """Return the folder with the pages, or None if there is none, as after `--py-files`.

    `package` is the folder of this package and `prefix` that of the environment; None: those of this process.
    """
    above = (package or Path(__file__).parents[1]).parent
    for folder in (above / "docs", Path(prefix or sysconfig.get_path("data")) / INSTALLED, above / INSTALLED):
        if (folder / "index.md").is_file():
            return folder
    return None


def pages_line() -> str:
    """Return a sentence with the folder of the pages; empty if there are none."""
    folder = find_pages()
    return "" if folder is None else f"The pages docs/… are in {folder}."


class HelpfulParser(argparse.ArgumentParser):
    """A parser whose help ends with the folder of the pages, if it refers to any."""

    def error(self, message: str) -> NoReturn:
        """Exit with the usage and the message, without secrets among the arguments."""
        super().error(without_given_secrets(message))

    def format_help(self) -> str:
        """Return the help."""
        text = super().format_help()
        line = pages_line() if "docs/" in text else ""
        return f"{text}\n{line}\n" if line else text
