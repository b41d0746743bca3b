"""The output of commands for scripts: `--json`. A document is one line of stdout; notices and errors stay text on stderr."""

from __future__ import annotations

import argparse
import json
import sys

from spark_producer.cli.console import print_line


def add_json(command: argparse._ActionsContainer, form: str) -> None:
    """Add `--json` to `command`; `form` says what it prints."""
    command.add_argument("--json", action="store_true", help=f"print {form}; the keys are in docs/command_line.md")


def print_json(value: object) -> None:
    """Print `value` as JSON on one line of stdout, as `print_line` does."""
    print_line(as_json(value))


def as_json(value: object) -> str:
    """Return `value` as JSON on one line.

    Characters that could control a terminal are escaped (\\u009b); JSON itself escapes only the first 32. If stdout is not in
    UTF-8, all characters beyond ASCII are, because it would replace some by escapes that are not those of JSON.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = json.dumps(value, ensure_ascii=not encoding.lower().startswith("utf"))
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)
