"""A client of the broker's tests that sends just what a test gives it: raw frames, half frames, nothing at all."""

import socket
import struct
from typing import Any

from spark_producer.protocol import Api, RequestBody, ResponseBody, decode_response, encode_request

DEADLINE = 20.0


class RawClient:
    """One blocking connection; every wait ends after `DEADLINE` seconds with TimeoutError."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self._correlation = 0

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self, api: Api[RequestBody, Any], body: RequestBody, version: int | None = None) -> bytes:
        self._correlation += 1
        return b"".join(
            encode_request(api, api.max_version if version is None else version, self._correlation, "raw", body)
        )

    def send(self, api: Api[RequestBody, Any], body: RequestBody, version: int | None = None) -> int:
        self.socket.sendall(self.frame(api, body, version))
        return self._correlation

    def receive(self, api: Api[Any, ResponseBody], version: int | None = None) -> tuple[int, ResponseBody]:
        """(correlation id, body)."""
        return decode_response(api, api.max_version if version is None else version, memoryview(self.receive_frame()))

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def ask(self, api: Api[RequestBody, ResponseBody], body: RequestBody, version: int | None = None) -> ResponseBody:
        sent = self.send(api, body, version)
        got, answer = self.receive(api, version)
        assert got == sent
        return answer

    def is_closed_by_peer(self) -> bool:
        """Wait for the broker to close; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError(f"the broker closed after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)
