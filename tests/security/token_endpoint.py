"""An endpoint that gives tokens for a client's id and secret (RFC 6749, 4.4), over HTTP on the loopback.

Owns: one client's id and secret, the thread. Must not know: who asks.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.security.ways import TOKEN_SECONDS, unsigned_token

CLIENT_ID, CLIENT_SECRET = "the-client", "client-secret-81c2"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        wanted = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self.headers["Authorization"] != f"Basic {wanted}":
            self._answer(401, {"error": "invalid_client", "error_description": "who is that?"})
        elif form["grant_type"] != ["client_credentials"]:
            self._answer(400, {"error": "unsupported_grant_type"})
        else:
            token, _ = unsigned_token()
            self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": TOKEN_SECONDS})

    def _answer(self, status: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the standard library writes a line for each request."""


class TokenEndpoint:
    """Context manager: listens at `url`."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        """Where to ask for tokens."""
        return f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
