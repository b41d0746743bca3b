"""An embedded broker in a process of its own, whose work does not count as that of the process which measures."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

from spark_producer.broker import LocalBroker


def _serve(pipe: Connection) -> None:
    with LocalBroker(default_partitions=4) as broker:
        pipe.send(broker.bootstrap_servers)
        pipe.recv()


@contextlib.contextmanager
def broker_elsewhere() -> Iterator[str]:
    """Run an embedded broker in a process of its own, and yield its bootstrap servers."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # otherwise its end would stay open if the process dies
    try:
        if not ours.poll(60):
            raise SystemExit("the embedded broker did not start within 60 s")
        yield ours.recv()
    finally:
        with contextlib.suppress(BrokenPipeError):
            ours.send("end")
        process.join(20)
        process.kill()
