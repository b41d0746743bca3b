"""The functions for stdout and stderr that all commands share."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Sequence
from typing import TextIO

from spark_producer.cli.given_secrets import GivenSecrets
from spark_producer.common.escape import for_log

_given = GivenSecrets()


def hide_given_secrets(arguments: Sequence[str]) -> None:
    """Hide from now on, in all messages, the probable secrets among the arguments of the command line."""
    global _given
    _given = GivenSecrets(arguments)


def without_given_secrets(text: str) -> str:
    """Return a message in which the secrets among the arguments are hidden."""
    return _given.without(text)


def print_error(text: str) -> None:
    """Print one line on stderr, if there is one. What could control a terminal in it is escaped."""
    text = without_given_secrets(text)
    if sys.stderr is None:
        return
    try:
        print(f"pyproducer: {for_log(text, limit=None)}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it any more, or its disk is full, and there is nobody else to tell
        _discard(sys.stderr)


def print_line(text: str) -> None:
    """Print one line on stdout, as `print_error` does. If stdout is closed, the command keeps working."""
    try:
        print(for_log(text, limit=None), flush=True)
    except BrokenPipeError:
        silence_stdout()


def is_interactive() -> bool:
    """Whether stdin is a terminal, where a question finds somebody."""
    return sys.stdin is not None and sys.stdin.isatty()


def silence_stdout() -> None:
    """Print into nothing from now on, since the reader of the pipe has closed it, or its disk is full."""
    if sys.stdout is not None:
        _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Let a stream lead nowhere. What it still holds would fail once more when the interpreter ends."""
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # it is not a file, as in a notebook or a test
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)


def raise_if_pipe_closed() -> None:
    """Raise an error if stdout is a pipe whose reader has gone.

    Otherwise that would not be noticed before the next write, which may never come.

    Raises:
        BrokenPipeError: stdout is such a pipe.
    """
    if sys.stdout is None or not hasattr(select, "poll"):  # Windows has no poll
        return
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:  # stdout is not a file, as in a notebook or a test
        return
    watched = select.poll()
    watched.register(descriptor, 0)  # poll reports errors and hang-ups in any case
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in watched.poll(0)):
        raise BrokenPipeError


def escape_unencodable() -> None:
    """Write escapes for the characters that the terminal cannot show, instead of failing with an error."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
