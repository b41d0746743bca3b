"""The functions for stdout and stderr that all commands share."""

from __future__ import annotations

import io
import os
import select
import sys


def complain(text: str) -> None:
    """Print one line on stderr."""
    print(f"pyproducer: {text}", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Print one line on stdout. If nobody reads it any more, nothing more is printed: a deed that is half done goes on."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        hush()


def hush() -> None:
    """Print into nothing from now on, since the reader of the pipe has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stop_if_nobody_reads() -> None:
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


def tolerant_output() -> None:
    """Write escapes for the characters that the terminal cannot show, instead of failing with an error."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
