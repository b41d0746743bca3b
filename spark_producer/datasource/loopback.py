"""The connection of this Python worker to its JVM, and the moments at which it must not hold back an acknowledgement.

Owns: which socket it is. Must not know: what is done to it (`network.quick_ack`).

Spark and its Python workers talk over loopback TCP, and the JVM writes in small pieces: it waits for the acknowledgement of
the last one, which Linux delays by 40 ms. With `spark.python.unix.domain.socket.enabled` there is nothing to delay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import TypeVar

from spark_producer.network import acknowledge_at_once

Batch = TypeVar("Batch")

_WORKER = "pyspark.worker"
"""Spark's module whose `main(infile, outfile)` runs a task."""


class JvmConnection:
    """What the task that calls reads its rows from.

    No socket is searched for or recognised: it is the one that Spark's `main(infile, outfile)` reads from, taken out of the
    frame of that call, which is among our callers while a task runs: so do Spark 4.1 to 4.3 run their tasks. Where there is
    no such caller, or it reads from something else, nothing is touched; also where Spark runs without its daemon, since its
    file for both directions names no descriptor. A write never fails by this.
    """

    def __init__(self) -> None:
        frame = _main_of_spark(sys._getframe(1))
        self._infile = None if frame is None else frame.f_locals.get("infile")

    def answer_at_once(self) -> bool:
        """Acknowledge at once what the JVM sends now; whether that could be done."""
        if self._infile is None:
            return False
        try:
            return acknowledge_at_once(self._infile.fileno())
        except Exception:  # another Spark, or a file that was closed: it only saves time, and no row may be lost for it
            return False

    def answered(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same, and the JVM is answered at once whenever one is asked for. None is held while the next is read."""
        self.answer_at_once()
        for batch in batches:
            yield batch
            del batch
            self.answer_at_once()


def _main_of_spark(frame: FrameType | None) -> FrameType | None:
    """The nearest caller that is `main` of Spark's worker. Run with -m, its module has the name `__main__`."""
    while frame is not None:
        if frame.f_code.co_name == "main" and getattr(frame.f_globals.get("__spec__"), "name", None) == _WORKER:
            return frame
        frame = frame.f_back
    return None
