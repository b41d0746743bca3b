"""Clients that send odd requests, many at a time, and say which of them was not answered.

Owns: pipelining over a few connections, waiting with a deadline. Must not know: what is in the requests.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence

from spark_producer.protocol import FrameReader, decode_response
from tests.faults.odd_requests import OddRequest

DEADLINE = 60.0
MAX_RESPONSE_BYTES = 2**31 - 1


class _Pipeline:
    """One connection with its requests, sent one after the other, and their responses."""

    def __init__(self, port: int, requests: Sequence[OddRequest]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self.socket.setblocking(False)
        self._requests = requests
        self._unsent = memoryview(b"".join(request.frame for request in requests))
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._answered = 0

    @property
    def done(self) -> bool:
        return self._answered == len(self._requests)

    @property
    def events(self) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def unanswered(self) -> str:
        return f"request {self._answered} of {len(self._requests)} was not answered: {self._requests[self._answered]}"

    def step(self, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            count = self.socket.recv_into(self._reader.space()) if events & selectors.EVENT_READ else None
        except ConnectionError as error:
            raise AssertionError(f"the broker closed; {self.unanswered()}") from error
        assert count != 0, f"the broker closed; {self.unanswered()}"
        for frame in self._reader.received(count or 0):
            request = self._requests[self._answered]
            correlation_id, _ = decode_response(request.api, request.version, frame)
            assert correlation_id == int.from_bytes(request.frame[8:12], "big"), self.unanswered()
            self._answered += 1


def all_answered(port: int, shares: Sequence[Sequence[OddRequest]]) -> None:
    """Send each share over a connection of its own, all at once; every request must get its answer, well-formed."""
    pipelines = [_Pipeline(port, share) for share in shares if share]
    deadline = time.monotonic() + DEADLINE
    with selectors.DefaultSelector() as selector:
        try:
            for pipeline in pipelines:
                selector.register(pipeline.socket, pipeline.events, pipeline)
            while not all(pipeline.done for pipeline in pipelines):
                for key, events in selector.select(1.0):
                    key.data.step(events)
                    selector.modify(key.fileobj, key.data.events, key.data)
                late = [pipeline.unanswered() for pipeline in pipelines if not pipeline.done]
                assert time.monotonic() < deadline, f"after {DEADLINE:g} s: {late}"
        finally:
            for pipeline in pipelines:
                pipeline.socket.close()


def send_alone(port: int, request: OddRequest) -> None:
    """Send it over a connection of its own and no more; the broker must close then, after an answer or without one."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE) as client:
        try:
            client.sendall(request.frame)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                continue
        except TimeoutError:
            raise AssertionError(f"the broker neither answered nor closed: {request}") from None
        except OSError:  # closed before it had read everything
            return
