"""A server on loopback that does to its clients what a test's script says, and nothing else.

Owns: the listening socket, one thread for each connection, a deadline on every wait.
Must not know: the client under test.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from spark_producer.protocol import (
    API_VERSIONS,
    APIS,
    FrameReader,
    RequestFrame,
    ResponseBody,
    decode_request,
    encode_response,
    messages,
)

DEADLINE = 20.0
ALL_VERSIONS = messages.ApiVersionsResponse(
    api_keys=tuple(messages.ApiVersion(api.key, api.min_version, api.max_version) for api in APIS.values())
)

Script = Callable[["Peer"], None]


class Peer:
    """One client, as a script sees it. Every wait has a deadline."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._frames = FrameReader()
        self._waiting: list[RequestFrame[Any, Any]] = []

    def read(self) -> RequestFrame[Any, Any]:
        """The next request; `EOFError` when the client has closed."""
        while not self._waiting:
            count = self.socket.recv_into(self._frames.space())
            if not count:
                raise EOFError
            self._waiting += [decode_request(frame) for frame in self._frames.received(count)]
        return self._waiting.pop(0)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Take a TLS handshake; what follows is encrypted."""
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def answer(self, request: RequestFrame[Any, ResponseBody], body: ResponseBody) -> None:
        self.send(b"".join(encode_response(request.api, request.version, request.correlation_id, body)))

    def negotiate(self, body: messages.ApiVersionsResponse = ALL_VERSIONS) -> RequestFrame[Any, Any]:
        """Answer ApiVersions; returns the request."""
        request = self.read()
        assert request.api is API_VERSIONS
        self.answer(request, body)
        return request

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def wait_for_close(self) -> None:
        """Return when the client has closed; whatever it still sends is thrown away."""
        while self.socket.recv(65_536):
            pass


class ScriptedServer:
    """Context manager. The first connection gets the first script, and so on; the last script serves all further ones.

    A script that raises fails the test when the context ends; a client that closes (EOFError, OSError) does not.
    """

    def __init__(self, *scripts: Script, host: str = "127.0.0.1", receive_buffer_bytes: int | None = None) -> None:
        self._scripts: Sequence[Script] = scripts
        self._listener = socket.socket()
        if receive_buffer_bytes is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._listener.bind((host, 0))
        self._listener.listen()
        self._listener.settimeout(DEADLINE)
        self.host, self.port = self._listener.getsockname()
        self.address = (self.host, self.port)
        self.accepted = 0
        self._failures: list[BaseException] = []
        self._peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept, name="scripted-server", daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._threads[0].join(DEADLINE)
        for peer in self._peers:
            try:
                peer.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # gone already
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive(), f"{thread.name} is stuck"
        for peer in self._peers:
            peer.socket.close()
        self._listener.close()
        if self._failures:
            raise self._failures[0]

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            connected.settimeout(DEADLINE)
            peer = Peer(connected)
            self._peers.append(peer)
            script = self._scripts[min(self.accepted, len(self._scripts) - 1)]
            thread = threading.Thread(target=self._run, args=(script, peer), name="scripted-peer", daemon=True)
            self._threads.append(thread)
            self.accepted += 1
            thread.start()

    def _run(self, script: Script, peer: Peer) -> None:
        try:
            script(peer)
        except (EOFError, OSError):
            pass  # the client, or the test's end, closed it
        except BaseException as failure:
            self._failures.append(failure)
        finally:
            peer.socket.close()
