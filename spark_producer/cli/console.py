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
    """Hide the probable secrets among `arguments` in all messages from now on."""
    global _given
    _given = GivenSecrets(arguments)


def without_given_secrets(text: str) -> str:
    """Return a message without the secrets among the arguments of the command line."""
    return _given.without(text)


def print_error(text: str) -> None:
    """Print one line on stderr, if that is open, with the characters escaped that could control a terminal."""
    text = without_given_secrets(text)
    if sys.stderr is None:
        return
    try:
        print(f"pyproducer: {for_log(text, limit=None)}", file=sys.stderr, flush=True)
    except OSError:  # its reader has closed it, or the disk is full, and there is no other place for the message
        _discard(sys.stderr)


def print_line(text: str) -> None:
    """Print one line on stdout, as `print_error` does. If stdout is closed, the command keeps working."""
    try:
        print(for_log(text, limit=None), flush=True)
    except BrokenPipeError:
        silence_stdout()


def is_interactive() -> bool:
    """Return whether stdin is a terminal, so that a question can be answered."""
    return sys.stdin is not None and sys.stdin.isatty()


def silence_stdout() -> None:
    """Discard all later output, because the reader of the pipe has closed it or the disk is full."""
    if sys.stdout is not None:
        _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Redirect a stream to the null device, or its buffered text would raise again when the interpreter ends."""
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # not a file, as in a notebook or a test
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)


def raise_if_pipe_closed() -> None:
    """Raise an error if stdout is a pipe whose reader has gone.

    Otherwise only the next write would fail, which may never come.

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
