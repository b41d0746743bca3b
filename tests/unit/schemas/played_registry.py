"""A server that plays a Schema Registry: in the clear, or with TLS.

Owns: the one answer that it gives, and how it fails to give it. Must not know: what a test expects.
"""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Callable
from typing import Any, Self


class Played:
    """A server that gives one answer to all but the paths of `answers`, and keeps what it got; a context manager."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answer: tuple[int, bytes] = (200, b"{}")
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.respond: Callable[[str], tuple[int, bytes]] | None = None
        """Answers all paths instead."""
        self.asked: list[tuple[str, str | None]] = []
        self.bodies: list[bytes] = []
        self.hangs = threading.Event()
        self.free = threading.Event()
        self.drips = threading.Event()
        played = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                played.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                played.asked.append((self.path, self.headers.get("Authorization")))
                if played.hangs.is_set():
                    played.free.wait(60)
                path = self.path.partition("?")[0]
                status, body = played.respond(path) if played.respond else played.answers.get(path, played.answer)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) + 1000 * played.drips.is_set()))
                if 300 <= status < 400:
                    self.send_header("Location", f"{played.url}/elsewhere")
                self.end_headers()
                with contextlib.suppress(OSError):  # the client has left
                    while played.drips.is_set() and not played.free.wait(0.1):
                        self.wfile.write(b" ")
                    self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.free.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()
