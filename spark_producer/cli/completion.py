"""The script with which a shell completes commands, arguments, their choices, and files.

It is made from the parsers of all commands, and complete in itself: a shell that completes with it starts no Python.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_producer.errors import ConfigError


def completion_script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the script of a shell for a parser that has the arguments of all commands.

    Raises:
        ConfigError: shtab is not installed.
    """
    try:
        shtab: Any = importlib.import_module("shtab")
    except ImportError as error:
        raise ConfigError(
            "no completion script can be made: shtab is not installed. Run pip install 'pyproducer[completion]'"
        ) from error
    for action in _actions(parser):
        if kind := _kind_of_path(action):
            action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]
    script: str = shtab.complete(parser, shell)
    return script


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of all its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _kind_of_path(action: argparse.Action) -> str | None:
    """Return shtab's name for what an argument completes to, if it names files or directories."""
    name = str(action.metavar or "")
    if name.startswith("DIR"):
        return "DIRECTORY"
    return "FILE" if name.startswith("FILE") or action.type is Path else None
