"""Old names of arguments: they work as before, are missing in the help, and warn once on stderr."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from spark_producer.cli.console import print_error


def warn_renamed(old: str, new: str) -> None:
    """Say on stderr that `old` is deprecated in favour of `new`."""
    print_error(f"{old} is deprecated. Use {new}")


def add_old_name(command: argparse.ArgumentParser, old: str, argument: argparse.Action) -> None:
    """Let `command` take `old` as another name of its own `argument`."""
    settings: dict[str, Any] = {"type": argument.type} if argument.type is not None else {}
    command.add_argument(
        old,
        action=_OldName,
        argument=argument,
        dest=argument.dest,
        nargs=argument.nargs,
        choices=argument.choices,
        metavar=argument.metavar,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
        **settings,
    )


class _OldName(argparse.Action):
    """Gives its value to the argument that has the new name, with a warning at the first use."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, argument: argparse.Action, **settings: Any) -> None:
        super().__init__(option_strings, dest, **settings)
        self._argument = argument
        self._has_warned = False

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_renamed(self.option_strings[0], self._argument.option_strings[0])
        self._argument(parser, namespace, values, option_string)
