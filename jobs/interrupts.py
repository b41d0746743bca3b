"""The handling of Ctrl-C and SIGTERM: they end a job in order, so that its files, topics and processes are removed."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

AGAIN_AFTER = 0.05
"""Seconds after which an interrupt is sent again; Python's finalizers take microseconds."""


@contextlib.contextmanager
def interrupted_later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM take effect at the end of the body.

    The body creates a resource and registers its removal: an interrupt between the two would leave the resource.

    Raises:
        KeyboardInterrupt: at the end, if one of them came meanwhile.
    """
    seen = threading.Event()
    # A job in the background of a script ignores Ctrl-C, and still does so here.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda *_: seen.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if seen.is_set():
            raise KeyboardInterrupt


def end_in_order() -> None:
    """Treat SIGTERM like Ctrl-C from now on, and lose neither when it arrives in a finalizer.

    Python drops exceptions there, such as KeyboardInterrupt in the callbacks by which py4j frees objects of the JVM.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    usual = sys.unraisablehook

    def again(found: sys.UnraisableHookArgs) -> None:
        if not issubclass(found.exc_type, KeyboardInterrupt):
            usual(found)
            return
        arguments = (threading.main_thread().ident, signal.SIGTERM)
        timer = threading.Timer(AGAIN_AFTER, signal.pthread_kill, arguments)  # raised in here it would be dropped too
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again
