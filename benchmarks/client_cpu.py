"""The CPU time of the Python side of a columnar write: `python -m benchmarks.client_cpu`.

It measures each stage alone, and a whole write to an embedded broker in another process. The rest is what the stages do
not explain. It writes docs/benchmarks_client_cpu.md. Spark, whose JVM is the greater part of a client, plays no part.
"""

from __future__ import annotations

import argparse
import io
import resource
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from benchmarks.broker_elsewhere import broker_elsewhere
from benchmarks.machine import kernel_facts
from spark_producer import Producer, kernel
from spark_producer.producer import parts_of
from spark_producer.record.columns import CheckedColumns, read_columns

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks_client_cpu.md"
ROWS = 10_000
VALUE_BYTES = 100
PARTITIONS = 4
BATCH_BYTES = 1_000_000


class Stage(NamedTuple):
    """One stage: its name, and its work for `ROWS` records."""

    name: str
    work: Callable[[], object]


class Whole(NamedTuple):
    """The cost of a write: CPU nanoseconds a record in the task's thread and the I/O thread, page faults a million records."""

    task: float
    io: float
    faults: float


def arrow_batch() -> pa.RecordBatch:
    """Return a batch of keys that differ, and values of `VALUE_BYTES`."""
    keys = pa.array([b"k%08d" % number for number in range(ROWS)], pa.binary())
    return pa.record_batch({"key": keys, "value": pa.array([b"x" * VALUE_BYTES] * ROWS, pa.binary())})


def as_stream(batch: pa.RecordBatch, count: int) -> bytes:
    """Return the stream by which Spark sends the batch to a worker, `count` times."""
    sink: Any = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(count):
            writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def opened(stream: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the batches that a worker reads. As from a socket, Arrow copies the bytes from a Python file into its memory."""
    yield from pa.ipc.open_stream(pa.PythonFile(io.BytesIO(stream), mode="r"))


def stages(sending: socket.socket) -> list[Stage]:
    """Return the stages in the order in which a record passes them."""
    batch = arrow_batch()
    stream = as_stream(batch, 1)
    columns = _again(batch)
    key = columns.records.key
    assert key is not None
    slots = (kernel.murmur2(key) % np.uint32(PARTITIONS)).astype(np.int32)
    rows, bounds = kernel.group_rows(slots, PARTITIONS)
    arranged = kernel.ArrangedRows(columns.records, rows)
    outs = [np.empty(BATCH_BYTES, dtype=np.uint8).data for _ in range(PARTITIONS)]
    ends = [0] * PARTITIONS

    def encode() -> None:
        for place, out in enumerate(outs):
            first, stop = int(bounds[place]), int(bounds[place + 1])
            ends[place] = kernel.encode_v2(arranged, first, stop, 0, 1_700_000_000_000, out, 61, BATCH_BYTES)[1]

    encode()
    encoded = [out[:end] for out, end in zip(outs, ends, strict=True)]
    return [
        Stage("read Arrow IPC", lambda: list(opened(stream))),
        Stage("check columns and sizes", lambda: _again(batch)),
        Stage("hash keys (murmur2)", lambda: kernel.murmur2(key)),
        Stage("group rows by partition", lambda: kernel.group_rows(slots, PARTITIONS)),
        Stage("encode records", encode),
        Stage("CRC-32C", lambda: [crc32c(data) for data in encoded]),
        Stage("send to the socket", lambda: _send(sending, encoded)),
    ]


def _send(sending: socket.socket, encoded: Sequence[memoryview]) -> None:
    for data in encoded:
        sending.sendall(data)


def _again(batch: pa.RecordBatch) -> CheckedColumns:
    return read_columns(batch, topic="t", now_ms=1_700_000_000_000).or_raise()


def nanoseconds(stage: Stage, calls: int) -> float:
    """Return the CPU nanoseconds of this thread for a record."""
    began = time.thread_time()
    for _ in range(calls):
        stage.work()
    return (time.thread_time() - began) / (calls * ROWS) * 1e9


def measure_stages(rounds: int, calls: int) -> dict[str, float]:
    """Return medians of nanoseconds a record. The peer of the socket reads everything."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        receiving, _ = server.accept()
        drain = threading.Thread(target=_drain, args=(receiving,), daemon=True)
        drain.start()
        found: dict[str, list[float]] = {}
        every = stages(ours)
        for _ in range(rounds):
            for stage in every:
                found.setdefault(stage.name, []).append(nanoseconds(stage, calls))
        ours.shutdown(socket.SHUT_WR)
        drain.join(20)
    return {name: statistics.median(values) for name, values in found.items()}


def _drain(receiving: socket.socket) -> None:
    space = bytearray(1 << 20)
    with receiving:
        while receiving.recv_into(space):
            continue


def measure_whole(servers: str, rounds: int, batches: int) -> Whole:
    """Return medians over writes of `batches` Arrow batches each; the first write does not count."""
    stream = as_stream(arrow_batch(), batches)
    found: list[Whole] = []
    with Producer({"bootstrap.servers": servers}) as producer:
        thread = parts_of(producer).io_thread.ident
        assert thread is not None
        io_clock = time.pthread_getcpuclockid(thread)
        for _ in range(rounds + 1):
            task, network = time.thread_time(), time.clock_gettime(io_clock)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for batch in opened(stream):
                producer.send_batch(batch, topic="cpu")
            producer.flush()
            records = batches * ROWS
            found.append(
                Whole(
                    (time.thread_time() - task) / records * 1e9,
                    (time.clock_gettime(io_clock) - network) / records * 1e9,
                    (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / records * 1e6,
                )
            )
    return Whole(*(statistics.median(values) for values in zip(*found[1:], strict=True)))


def page(parts: dict[str, float], whole: Whole, rounds: int) -> str:
    """Return the whole page."""
    everything = whole.task + whole.io
    rest = everything - sum(parts.values())
    rows = [
        f"| {name} | {spent:.0f} | {spent / everything:.0%} |" for name, spent in (*parts.items(), ("the rest", rest))
    ]
    text = [
        "# Where the client's CPU goes", "",
        "| stage | ns a record | of the whole |", "|---|--:|--:|", *rows,
        f"| the whole: task {whole.task:.0f}, I/O thread {whole.io:.0f} | {everything:.0f} | 100% |", "",
        "* *Read Arrow IPC* is a cost of any Python sink.",
        "* *Encode* and *send* move every byte once each, and the CRC reads it once: that is memory, not Python.",
        "* *The rest* is the interpreter's work for each Arrow batch, batch, request and response, cold caches, switches between "
        f"threads, and {whole.faults:,.0f} page faults in a million records.",
        "",
        f"The Python side of a write of records with keys of 9 and values of {VALUE_BYTES} bytes to {PARTITIONS} partitions. "
        f"Medians of {rounds} rounds. The stages run alone, with warm caches; the whole is a producer that writes to a broker in "
        "another process. Made by `python -m benchmarks.client_cpu`; do not edit.", "", *kernel_facts(), "",
    ]  # fmt: skip
    return "\n".join(text)


def main(given: list[str]) -> None:
    """Run and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_cpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (%(default)s)")
    parser.add_argument("--calls", type=int, default=100, help="of each stage in a round (%(default)s)")
    parser.add_argument("--batches", type=int, default=100, help="Arrow batches of a write (%(default)s)")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    options = parser.parse_args(given)
    parts = measure_stages(options.rounds, options.calls)
    with broker_elsewhere() as servers:
        whole = measure_whole(servers, options.rounds, options.batches)
    found = page(parts, whole, options.rounds)
    print(found)
    options.out.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
