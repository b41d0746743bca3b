"""Distance between client and broker: a process that forwards every byte some time later, without slowing the bytes after it.

A `FaultProxy` holds one frame at a time back, which bounds the rate to one frame per delay. Here frames travel one after the
other, as over a long line. Windows of TCP are not part of it: both connections are on the loopback.

Owns: forwarding with a delay, the process. Must not know: Kafka, or who connects.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event

from tests.support.ports import free_ports

HOST = "127.0.0.1"
CHUNK = 1 << 18
START_SECONDS = 30.0


@contextmanager
def far_away(target: int, round_trip: float, port: int | None = None) -> Iterator[int]:
    """Yield a port (that, or a free one) whose bytes reach `target`, and whose answers come back, `round_trip` seconds later."""
    port = free_ports(1)[0] if port is None else port
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_serve, args=(port, target, round_trip / 2, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(START_SECONDS):
            raise TimeoutError(f"nothing listens at port {port} within {START_SECONDS:g} s")
        yield port
    finally:
        process.kill()
        process.join()


def _serve(port: int, target: int, delay: float, ready: Event) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(HOST, target, limit=CHUNK)
            await asyncio.gather(_pump(reader, there_writer, delay), _pump(there_reader, writer, delay))
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(connected, HOST, port, limit=CHUNK)
        ready.set()
        await server.serve_forever()

    asyncio.run(serve())


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay: float) -> None:
    """Forward one direction until its end. What is under way waits in memory: clients bound it by what they have in flight."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    raw: socket.socket = sink.get_extra_info("socket")
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def take() -> None:
        data = b"-"
        while data:
            try:
                data = await source.read(CHUNK)
            except OSError:
                data = b""
            under_way.put_nowait((loop.time() + delay, data))

    taking = asyncio.create_task(take())
    try:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(due - loop.time())  # the distance
            if not data:
                break
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        taking.cancel()
        sink.close()
