"""The HTTP server of the metrics page, on the loopback address and read-only.

One thread handles one request after the other. Each has a second for all of its bytes, and 8 KiB of them at most: a client that
sends nothing, or one byte at a time, costs the next client a second and the broker nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

from spark_producer.broker.metrics.page import CONTENT_TYPE
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConnectionFailed

logger = escaping_logger(__name__)

HOST: Final = "127.0.0.1"
PATH: Final = "/metrics"
REQUEST_TIMEOUT_S: Final = 1.0
"""Maximum time in seconds to receive a request, and to send its response."""
MAX_REQUEST_BYTES: Final = 8192
MAX_PAGE_BYTES: Final = 1024 * 1024
CLOSE_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.1


class _Limited(io.RawIOBase):
    """The bytes of a request: at most `MAX_REQUEST_BYTES`, before a deadline. A longer or later request gets no response."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + REQUEST_TIMEOUT_S
        self._left = MAX_REQUEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request was not complete in time")
        if not self._left:
            raise ConnectionAbortedError("the request is too large")
        self._connection.settimeout(left)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "pyproducer"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Limited(self.connection))

    def do_GET(self) -> None:
        """Respond with the page, or with 404 for another path."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"the metrics are at {PATH}")
            return
        body = self.server.page().encode()
        self.connection.settimeout(REQUEST_TIMEOUT_S)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, form: str, *values: object) -> None:
        logger.debug("metrics page: " + form, *values)


class _Server(HTTPServer):
    request_queue_size = 5

    def __init__(self, port: int, page: Callable[[], str]) -> None:
        self.page = page
        super().__init__((HOST, port), _Handler)

    def handle_error(self, _request: object, _client_address: object) -> None:
        if isinstance(sys.exception(), OSError):
            logger.debug("a client of the metrics page has gone, or was too slow", exc_info=True)
        else:
            logger.exception("the metrics page failed, which is a bug in the broker; it goes on")


@contextlib.contextmanager
def metrics_server(port: int, page: Callable[[], str]) -> Iterator[int]:
    """Serve the page at http://127.0.0.1:`port`/metrics during the `with` block, whose value is the port; 0 takes a free one.

    `page` is called by the server's thread.

    Raises:
        ConnectionFailed: the port is taken.
    """
    try:
        server = _Server(port, page)
    except OSError as error:
        raise ConnectionFailed(
            f"cannot listen on {HOST}:{port} for metrics: {error.strerror or error}. Use another port"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="broker-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join(CLOSE_TIMEOUT_S)
        server.server_close()


def fetch_metrics_page(port: int) -> str:
    """Return the page that a broker on this machine serves at `port`.

    Raises:
        ConnectionFailed: no broker serves one there.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=CLOSE_TIMEOUT_S)
    try:
        connection.request("GET", PATH)
        response = connection.getresponse()
        page = response.read(MAX_PAGE_BYTES).decode("utf-8", errors="replace")
        if response.status != HTTPStatus.OK:
            raise ConnectionFailed(
                f"{HOST}:{port}{PATH} is not a metrics page: it responded with status {response.status}"
            )
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionFailed(
            f"no metrics page at {HOST}:{port}{PATH}: {error}. Start the broker with --metrics-port {port}"
        ) from error
    finally:
        connection.close()
    return page
