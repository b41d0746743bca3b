"""The cost of TLS: `python -m benchmarks.tls_transport` prints what a sender's CPU takes for a byte, plain and encrypted.

The peer is a process of its own that reads and forgets, so only the sender is counted. Plain and encrypted rounds take turns, and
the fastest round of each counts, since other work of the machine can only make a round slower.
"""

from __future__ import annotations

import argparse
import multiprocessing
import selectors
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from spark_producer.errors import ConnectionFailed
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.tls_transport import TlsConnector
from spark_producer.network.transport import ResolvedAddress, TcpTransport, Transport, resolve
from spark_producer.security import Store, TlsSettings
from spark_producer.security.contexts import server_context
from tests.support.certificates import Certificates

MAX_REQUESTS = 100_000
"""Maximum requests of a round: enough for small ones."""
HEADER_BYTES = 120
"""About what a Produce request has beside its batches."""
SETTINGS = ConnectionSettings(())

Open = Callable[[ResolvedAddress, ConnectionSettings], Transport]


class Cost(NamedTuple):
    """The costs of one round: nanoseconds of the sender's CPU for each byte, and megabytes per second."""

    cpu: float
    rate: float


def serve(listener: socket.socket, certificate: str) -> None:
    """Read and forget what each connection sends; one that begins with TLS is decrypted."""
    context = server_context(certificate, certificate)
    space = bytearray(1 << 20)
    while True:
        accepted, _ = listener.accept()
        encrypted = accepted.recv(1, socket.MSG_PEEK) == b"\x16"
        with suppress(OSError), context.wrap_socket(accepted, server_side=True) if encrypted else accepted as peer:
            while peer.recv_into(space):
                continue


def measure(open_transport: Open, address: ResolvedAddress, request: int, total: int) -> Cost:
    """Send `total` bytes in requests of a header and a batch of `request` bytes."""
    transport = open_transport(address, SETTINGS)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(transport.fileno(), transport.wants)
            while not transport.finish_connect():
                selector.modify(transport.fileno(), transport.wants)
                selector.select(10)
            selector.modify(transport.fileno(), selectors.EVENT_WRITE)
            header, batch = bytes(HEADER_BYTES), bytearray(request)
            cpu, wall, sent = time.process_time_ns(), time.perf_counter_ns(), 0
            while sent < min(total, MAX_REQUESTS * request):
                done = transport.write([header, batch])
                while not done:
                    selector.select(10)
                    done = transport.flush()
                sent += HEADER_BYTES + request
            cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    finally:
        with suppress(ConnectionFailed):
            transport.close()
    return Cost(cpu / sent, sent * 1000 / wall)


def compare(requests: list[int], total: int, rounds: int) -> dict[int, tuple[Cost, Cost]]:
    """Return for each size of a request what it costs plain and encrypted."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        made = Certificates(Path(folder))
        made.issue("broker")
        peer = multiprocessing.get_context("spawn").Process(
            target=serve, args=(listener, str(made.file("broker.pem"))), daemon=True
        )
        peer.start()
        try:
            address = resolve(*listener.getsockname())[0]
            tls = TlsConnector(TlsSettings(trust=Store(location=str(made.ca))))
            found = {}
            for request in requests:
                turns = [[measure(way, address, request, total) for way in (TcpTransport, tls)] for _ in range(rounds)]
                plain, encrypted = (min(costs) for costs in zip(*turns, strict=True))
                found[request] = plain, encrypted
            return found
        finally:
            peer.terminate()
            peer.join()


def main(given: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls_transport", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400, help="sent in each round")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(given)
    print("| request | plain, ns/B | TLS, ns/B | more, ns/B | plain, MB/s | TLS, MB/s |\n|--:|--:|--:|--:|--:|--:|")
    sizes = [1_000_000, 100_000, 16_384, 1_000]
    for size, (plain, tls) in compare(sizes, chosen.megabytes * 1_000_000, chosen.rounds).items():
        more = tls.cpu - plain.cpu
        print(f"| {size:,} | {plain.cpu:.3f} | {tls.cpu:.3f} | {more:.3f} | {plain.rate:,.0f} | {tls.rate:,.0f} |")


if __name__ == "__main__":
    main()
