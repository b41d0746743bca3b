"""The TCP connection of this Python worker to its JVM, with immediate acknowledgements where they matter.

Spark and its Python workers talk over loopback TCP, and the JVM writes in small pieces: it waits for the acknowledgement of
the last piece, which Linux delays by 40 ms. With `spark.python.unix.domain.socket.enabled` there is no such delay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import TypeVar

from spark_producer.network import set_quickack

Batch = TypeVar("Batch")

_WORKER = "pyspark.worker"
"""Spark's module whose `main(infile, outfile)` runs a task."""


class JvmConnection:
    """The connection from which the calling task reads its rows.

    Its socket is an argument of Spark's `main(infile, outfile)`, found in the frame of that call, which is among the callers
    while a task of Spark 4.1 to 4.3 runs. This class changes nothing if there is no such caller, if `infile` is no socket, or if
    Spark runs without its daemon: then one file without a descriptor serves both directions. No task fails because of this class.
    """

    def __init__(self) -> None:
        frame = _main_of_spark(sys._getframe(1))
        self._infile = None if frame is None else frame.f_locals.get("infile")

    def answer_at_once(self) -> bool:
        """Acknowledge the JVM's next segments at once. Return whether that was possible."""
        if self._infile is None:
            return False
        try:
            return set_quickack(self._infile.fileno())
        except Exception:  # another Spark, or a closed file: this only saves time, and must not fail a task
            return False

    def answered(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield `batches`, and acknowledge at once before each is read. No batch stays in memory while the next is read."""
        self.answer_at_once()
        for batch in batches:
            yield batch
            del batch
            self.answer_at_once()


def _main_of_spark(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame of `main` of Spark's worker, whose module is `__main__`, since it is run with -m."""
    while frame is not None:
        if frame.f_code.co_name == "main" and getattr(frame.f_globals.get("__spec__"), "name", None) == _WORKER:
            return frame
        frame = frame.f_back
    return None
