"""What the commands share of the terminal: output, complaints, a reader of a pipe that has gone.

Owns: stdout and stderr. Must not know: any command.
"""

from __future__ import annotations

import io
import select
import sys


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"pyproducer: {text}", file=sys.stderr, flush=True)


def stop_if_nobody_reads() -> None:
    """A pipe whose reader has gone is not noticed before the next write, which may never come.

    Raises:
        BrokenPipeError: stdout is such a pipe.
    """
    if sys.stdout is None or not hasattr(select, "poll"):  # Windows has no poll
        return
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:  # not a file at all: a notebook's, a test's
        return
    watched = select.poll()
    watched.register(descriptor, 0)  # errors and hang-ups are always told
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in watched.poll(0)):
        raise BrokenPipeError


def tolerant_output() -> None:
    """A terminal without Unicode gets escapes instead of an error."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
