"""A TCP proxy between client and broker that breaks things on demand.

Owns: forwarding between one listening port and one target, and the faults: delay, pause, swallow, cut (reset or close),
half-close, injected bytes, refused connections, and the same aimed at requests of one Kafka API; copies of its requests too.
Must not know: which client or broker it connects; of the protocol it knows frame lengths, API keys and correlation ids.

Threads: one thread runs the event loop and owns every connection; the public methods may be called from any other.
"""

from __future__ import annotations

import asyncio
import enum
import random
import socket
import struct
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self

from tests.support.ports import free_ports
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
CONTROL_SECONDS = 10.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_LENGTH = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")  # API key, API version, correlation id
_MAX_FRAME = 256 * 1024 * 1024


class Direction(enum.Enum):
    """The direction of bytes."""

    TO_BROKER = "to broker"
    TO_CLIENT = "to client"


class Cut(enum.Enum):
    """The way in which a connection ends."""

    RESET = "RST"
    CLOSE = "FIN"


class FaultProxy:
    """Context manager: listens on `host`:`port` and forwards to the target, minus the faults that are switched on.

    With `frames` (the default) whole Kafka frames are forwarded and `requests` counts them by API key; without it any
    bytes are forwarded as they come (TLS, other protocols), and the faults that name an API do nothing. `received` counts
    bytes, whole frames of them.
    """

    def __init__(self, target_host: str = HOST, target_port: int = 0, *, frames: bool = True) -> None:
        self.target = (target_host, target_port)
        self.requests: Counter[int] = Counter()
        self.received: Counter[Direction] = Counter()
        self.copies: dict[int, list[bytes]] = {}
        self.accepted = 0
        self.frames = frames
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._listening: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        self.host, self.port = HOST, free_ports(1)[0]
        self.faults = _Faults()
        self._thread.start()
        self._call(self._listen)

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections that are forwarded now."""
        return len(self._connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and the thread. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._run(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONTROL_SECONDS)
        self._loop.close()

    def heal(self) -> None:
        """Switch every fault off; what was paused goes on, and no copies are kept any more."""

        async def reset() -> None:
            for flowing in self.faults.flowing.values():
                flowing.set()
            self.faults, self.copies = _Faults(), {}
            if self._listening is None:
                self._listen()

        self._run(reset())

    def delay(self, seconds: float, direction: Direction = Direction.TO_CLIENT) -> None:
        """Hold every frame (or chunk) back for a while, from now on."""
        self.faults.delay[direction] = seconds

    def pause(self, direction: Direction) -> None:
        """Stop forwarding; the sender's window fills. `resume` goes on where it stopped."""
        self._call(self.faults.flowing[direction].clear)

    def resume(self, direction: Direction) -> None:
        """End `pause`."""
        self._call(self.faults.flowing[direction].set)

    def swallow(self, direction: Direction) -> None:
        """Read and forget: connections stay, nothing arrives any more, until `heal`."""
        self.faults.swallowed.add(direction)

    def cut_after(self, count: int, direction: Direction, how: Cut = Cut.RESET) -> None:
        """Cut a connection, once, when `count` more bytes have gone in a direction (all connections together)."""
        self.faults.cut_after[direction] = (count, how)

    def cut(self, how: Cut = Cut.RESET) -> None:
        """Cut every open connection now."""
        self._for_each(lambda connection: connection.cut(how))

    def half_close(self, direction: Direction) -> None:
        """Send FIN in one direction of every open connection; the other direction goes on."""
        self._for_each(lambda connection: connection.half_close(direction))

    def inject(self, data: bytes, direction: Direction) -> None:
        """Write bytes of our own into every open connection, between two frames (or chunks)."""
        self._for_each(lambda connection: connection.inject(data, direction))

    def refuse(self) -> None:
        """Stop listening, so that new connections are refused; open ones stay. `heal` listens again."""
        self._call(self._stop_listening)

    def lose_response(self, api_key: int, times: int = 1, how: Cut = Cut.RESET) -> None:
        """Let the next `times` requests of an API through, and cut the connection when their response comes."""
        self.faults.lost_responses[api_key] = (times, how)

    def lose_request(self, api_key: int, times: int = 1, how: Cut = Cut.RESET) -> None:
        """Cut the connection instead of forwarding the next `times` requests of an API."""
        self.faults.lost_requests[api_key] = (times, how)

    def drop_response(self, api_key: int, times: int = 1) -> None:
        """Let the next `times` requests of an API through, and forget their responses; the connections stay."""
        self.faults.dropped_responses[api_key] = times

    def waiting_faults(self) -> dict[int, int]:
        """API → how often a loss is still to come that was asked for."""
        faults = self.faults
        waiting = Counter(faults.dropped_responses)
        for table in (faults.lost_requests, faults.lost_responses):
            waiting.update({api: times for api, (times, _) in table.items()})
        return dict(+waiting)

    def copy_requests(self, api_key: int) -> None:
        """Keep every request of an API in `copies`, from now on."""
        self.copies[api_key] = []

    def send_again(self, frame: bytes) -> bytes:
        """Send a copy of a request to the target, on a connection of its own; return the frame of its answer.

        So arrives a request late that some router has kept, when its sender does not wait for it any more.
        """
        with socket.create_connection(self.target, CONTROL_SECONDS) as connection, connection.makefile("rb") as answers:
            connection.sendall(frame)
            (length,) = _LENGTH.unpack(answers.read(_LENGTH.size))
            return answers.read(length)

    def cut_at_random(self, api_key: int, share: float, seed: int) -> None:
        """Cut the connection at this share of an API's requests, chosen and done at random: instead of the request, inside
        it, or instead of its response; by RST or FIN."""
        self.faults.at_random[api_key] = (share, random.Random(seed))

    def wait_for_requests(self, api_key: int, count: int, timeout: float = 30.0) -> None:
        """Wait until `count` requests of an API have come, since the start; raises TimeoutError."""
        self._wait_for(lambda: self.requests[api_key] >= count, timeout, f"{count} requests of API {api_key}")

    def wait_for_connections(self, count: int, timeout: float = 30.0) -> None:
        """Wait until exactly `count` connections are open; raises TimeoutError."""
        self._wait_for(lambda: len(self._connections) == count, timeout, f"{count} open connections")

    def wait_for_received(self, direction: Direction, count: int, timeout: float = 30.0) -> None:
        """Wait until `count` bytes came in one direction, passed on or not."""
        self._wait_for(lambda: self.received[direction] == count, timeout, f"{count} bytes {direction}")

    def _wait_for(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        wait_until(
            condition, what, seconds=timeout, pause=0.005, more=lambda: f"requests by API: {dict(self.requests)}"
        )

    def _for_each(self, action: Callable[[_Connection], None]) -> None:
        def act() -> None:
            for connection in list(self._connections):
                action(connection)

        self._call(act)

    def _call(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            action()

        self._run(act())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CONTROL_SECONDS)

    # Not asyncio.start_server: when it is closed, connections that it has just accepted are neither served nor closed.

    def _listen(self) -> None:
        self._listening = socket.create_server((self.host, self.port), backlog=100)
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._accept)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def _accept(self) -> None:
        """Accept one connection, and begin to forward it."""
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except OSError:  # the client has gone already
            return
        self.accepted += 1
        self._sockets.add(connection)
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shut_down(self) -> None:
        self._stop_listening()
        for connection in list(self._connections):
            connection.cut(Cut.RESET)
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for transport in list(self._transports):  # those too that still wait for a peer to read their last bytes
            transport.abort()
        await asyncio.sleep(0)  # the turn of the loop that closes them
        for accepted in list(self._sockets):  # those too whose task was cancelled before it began
            accepted.close()

    async def _serve(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted)
        self._transports.add(writer.transport)
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._transports.add(broker_writer.transport)
        connection = _Connection(self, writer, broker_writer)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                connection.pump(reader, Direction.TO_BROKER), connection.pump(broker_reader, Direction.TO_CLIENT)
            )
        except (OSError, asyncio.IncompleteReadError):
            connection.cut(Cut.RESET)
        finally:
            connection.cut(Cut.CLOSE)
            self._connections.discard(connection)


class _Faults:
    """The active faults; written by the public methods, read by the pumps."""

    def __init__(self) -> None:
        self.delay: dict[Direction, float] = {}
        self.swallowed: set[Direction] = set()
        self.cut_after: dict[Direction, tuple[int, Cut]] = {}
        self.lost_responses: dict[int, tuple[int, Cut]] = {}
        self.lost_requests: dict[int, tuple[int, Cut]] = {}
        self.dropped_responses: dict[int, int] = {}
        self.at_random: dict[int, tuple[float, random.Random]] = {}
        self.flowing = {direction: asyncio.Event() for direction in Direction}
        for flowing in self.flowing.values():
            flowing.set()


class _Connection:
    """One client connection and its twin to the broker."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._sinks = {Direction.TO_CLIENT: client, Direction.TO_BROKER: broker}
        self._lost_correlations: dict[int, Cut] = {}
        self._dropped_correlations: set[int] = set()
        self._half_closed: set[Direction] = set()

    def inject(self, data: bytes, direction: Direction) -> None:
        if direction not in self._half_closed:
            self._sinks[direction].write(data)

    def half_close(self, direction: Direction) -> None:
        sink = self._sinks[direction]
        if sink.can_write_eof() and not sink.is_closing():
            self._half_closed.add(direction)
            with suppress(OSError):  # the peer has reset the connection, which the loop has yet to see
                sink.write_eof()

    def cut(self, how: Cut) -> None:
        for sink in self._sinks.values():
            if how is Cut.RESET and not sink.is_closing():
                raw: socket.socket = sink.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                sink.transport.abort()
            else:
                sink.close()

    async def pump(self, source: asyncio.StreamReader, direction: Direction) -> None:
        """Forward one direction until its end, which is passed on as a half-close."""
        read = _read_frame if self._proxy.frames else _read_chunk
        while data := await read(source):
            self._proxy.received[direction] += len(data)
            faults = self._proxy.faults
            cut = self._aimed_fault(data, direction) if self._proxy.frames else None
            if cut is not None:
                return self.cut(cut)
            if direction in faults.delay:
                await asyncio.sleep(faults.delay[direction])  # the fault
            await faults.flowing[direction].wait()
            if direction in self._proxy.faults.swallowed or self._is_dropped(data, direction):
                continue
            if not await self._forward(data, direction):
                return None
        return self.half_close(direction)

    async def _forward(self, data: bytes, direction: Direction) -> bool:
        """Write as much as may pass; False when that was the end of the connection."""
        sink, limits = self._sinks[direction], self._proxy.faults.cut_after
        left, how = limits.get(direction, (len(data) + 1, Cut.RESET))
        if sink.is_closing() or direction in self._half_closed:
            return False
        sink.write(data[:left])
        if direction not in limits:
            await sink.drain()
        elif left > len(data):
            limits[direction] = (left - len(data), how)
            await sink.drain()
        else:
            del limits[direction]
            await _written_out(sink)
            self.cut(how)
            return False
        return True

    def _is_dropped(self, frame: bytes, direction: Direction) -> bool:
        """Return whether this is a response that is to be forgotten."""
        if not self._dropped_correlations or direction is Direction.TO_BROKER:
            return False
        (correlation,) = _LENGTH.unpack_from(frame, 4)
        found = correlation in self._dropped_correlations
        self._dropped_correlations.discard(correlation)
        return found

    def _aimed_fault(self, frame: bytes, direction: Direction) -> Cut | None:
        """Return how to cut the connection instead of forwarding this frame, or None; counts requests."""
        if len(frame) < 12:
            return None
        if direction is Direction.TO_CLIENT:
            (correlation,) = _LENGTH.unpack_from(frame, 4)
            return self._lost_correlations.pop(correlation, None)
        api_key, _, correlation = _REQUEST_START.unpack_from(frame, 4)
        self._proxy.requests[api_key] += 1
        if api_key in self._proxy.copies:
            self._proxy.copies[api_key].append(frame)
        faults = self._proxy.faults
        if faults.dropped_responses.get(api_key, 0):
            faults.dropped_responses[api_key] -= 1
            self._dropped_correlations.add(correlation)
        if api_key in faults.at_random:
            return self._random_fault(len(frame), correlation, *faults.at_random[api_key])
        lost_response = _take(faults.lost_responses, api_key)
        if lost_response is not None:
            self._lost_correlations[correlation] = lost_response
        return _take(faults.lost_requests, api_key)

    def _random_fault(self, size: int, correlation: int, share: float, choose: random.Random) -> Cut | None:
        """Choose a fault as `_aimed_fault` does, at random."""
        if choose.random() >= share:
            return None
        how, place = choose.choice(list(Cut)), choose.choice(("before", "inside", "after"))
        if place == "inside":
            self._proxy.faults.cut_after[Direction.TO_BROKER] = (choose.randrange(1, size), how)
        elif place == "after":
            self._lost_correlations[correlation] = how
        return how if place == "before" else None


def _take(table: dict[int, tuple[int, Cut]], api_key: int) -> Cut | None:
    times, how = table.get(api_key, (0, Cut.RESET))
    if times == 0:
        return None
    table[api_key] = (times - 1, how)
    return how


async def _read_chunk(source: asyncio.StreamReader) -> bytes:
    return await source.read(65_536)


async def _read_frame(source: asyncio.StreamReader) -> bytes:
    """One frame with its length; empty at the end of the stream."""
    try:
        start = await source.readexactly(4)
    except asyncio.IncompleteReadError as error:
        return error.partial
    (length,) = _LENGTH.unpack(start)
    if not 0 <= length <= _MAX_FRAME:
        raise OSError(f"this is no Kafka frame: length {length}")
    return start + await source.readexactly(length)


async def _written_out(sink: asyncio.StreamWriter) -> None:
    """Wait until the kernel has what was written, so that a cut comes after it and not instead of it."""
    while sink.transport.get_write_buffer_size() and not sink.is_closing():
        await asyncio.sleep(0.001)  # no event of asyncio says that the buffer is empty; `cut` ends it
