"""Ctrl-C while something is made that must be removed again.

Owns: when an interrupt takes effect. Must not know: what is made.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupted_later() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the body.

    For the few lines that make a thing and say who removes it: an interrupt between the two would leave it behind.

    Raises:
        KeyboardInterrupt: at the end, if Ctrl-C came meanwhile.
    """
    seen = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: seen.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen.is_set():
            raise KeyboardInterrupt
