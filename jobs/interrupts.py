"""Ctrl-C and SIGTERM end a job in order: what it made is removed again.

Owns: when an interrupt takes effect. Must not know: what is made.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

AGAIN_AFTER = 0.05
"""Seconds; Python's finalizers take microseconds."""


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


def end_in_order() -> None:
    """From here on SIGTERM is as Ctrl-C, and a Ctrl-C that arrives in a finalizer is not lost.

    Python drops what is raised there, such as KeyboardInterrupt in the callbacks by which py4j frees objects of the JVM.
    """
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    usual = sys.unraisablehook

    def again(found: sys.UnraisableHookArgs) -> None:
        if not issubclass(found.exc_type, KeyboardInterrupt):
            usual(found)
            return
        arguments = (threading.main_thread().ident, signal.SIGINT)
        timer = threading.Timer(AGAIN_AFTER, signal.pthread_kill, arguments)  # not in here: it would be dropped as well
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again
