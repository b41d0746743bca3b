"""A token endpoint on the loopback, with or without TLS, that answers as a test says and keeps what it was asked."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import NamedTuple

SECONDS = 20


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: str


class Reply(NamedTuple):
    """One answer. Pieces after the headers are sent one by one."""

    code: int = 200
    body: Iterable[bytes] = ()
    headers: tuple[tuple[str, str], ...] = ()


def token_reply(text: str = "token", **more: object) -> Reply:
    """A token that lives for an hour, unless `more` says otherwise."""
    said = {"access_token": text, "expires_in": 3600, "token_type": "Bearer"} | more
    return Reply(body=(json.dumps({name: value for name, value in said.items() if value is not None}).encode(),))


class TokenEndpoint:
    """Serves `answer` until it is closed. An answer whose pieces never end is ended by its reader, or with the server."""

    def __init__(self, answer: Callable[[Asked], Reply], context: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.closing = Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = SECONDS

            def do_POST(self) -> None:
                endpoint._serve(self, answer)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # peers may go away
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if context else 'http'}://localhost:{self.port}/oauth2/token"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def _serve(self, handler: BaseHTTPRequestHandler, answer: Callable[[Asked], Reply]) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
        asked = Asked(handler.command, handler.path, dict(handler.headers.items()), body)
        self.asked.append(asked)
        reply = answer(asked)
        handler.send_response_only(reply.code)
        for name, value in reply.headers:
            handler.send_header(name, value)
        handler.end_headers()
        for piece in reply.body:
            if self.closing.is_set():
                return
            handler.wfile.write(piece)
            handler.wfile.flush()

    def close(self) -> None:
        """End the server and all that it serves."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(SECONDS)

    def __enter__(self) -> TokenEndpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
