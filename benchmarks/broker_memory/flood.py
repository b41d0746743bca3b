"""Producers that never wait: each sends one Produce after the other as long as the broker takes bytes, and counts the answers."""

from __future__ import annotations

import select
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from benchmarks.broker_validation import batch_of
from spark_producer.common.error_codes import Code
from spark_producer.protocol import PRODUCE, decode_response, encode_request, messages
from spark_producer.record.codecs import Codec

BATCHES_WAIT_MS: Final = 600_000
"""A Produce may wait so long for its confirmation: it is not the client that gives up."""
CONNECT_S: Final = 30.0
TURN_S: Final = 0.02
_SIZE: Final = struct.Struct(">i")


def frame_of(topic: str, partition: int, records: int) -> tuple[bytes, int]:
    """Return the frame of a Produce with one batch of records of 100 bytes, and the size of the batch."""
    batch = batch_of(records, Codec.NONE)
    data = messages.ProduceTopic(topic, partition_data=(messages.ProducePartition(partition, batch),))
    request = messages.ProduceRequest(acks=-1, timeout_ms=BATCHES_WAIT_MS, topic_data=(data,))
    return b"".join(encode_request(PRODUCE, PRODUCE.max_version, 1, "flood", request)), len(batch)


@dataclass
class Producer:
    """One connection, which sends `frame` again and again."""

    peer: socket.socket
    frame: bytes
    rest: bytes = b""
    received: bytearray = field(default_factory=bytearray)

    def send(self) -> int:
        """Send what the broker takes; return how many bytes."""
        self.rest = self.rest or self.frame
        count = 0
        with suppress(BlockingIOError):
            count = self.peer.send(self.rest)
        self.rest = self.rest[count:]
        return count

    def answers(self) -> list[int]:
        """Return the error codes of the answers that have come."""
        with suppress(BlockingIOError):
            self.received += self.peer.recv(65536)
        codes = []
        while len(self.received) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(self.received)[0]
            if len(self.received) < end:
                break
            _, answer = decode_response(
                PRODUCE, PRODUCE.max_version, memoryview(bytes(self.received[_SIZE.size : end]))
            )
            del self.received[:end]
            codes += [each.error_code for topic in answer.responses for each in topic.partition_responses]
        return codes


class Flood:
    """Some producers, each with a partition of its own.

    accepted: when the broker had acknowledged how many bytes of batches. refused: batches that it has not taken.
    """

    def __init__(self, port: int, topic: str, producers: int, records: int) -> None:
        self.sent = self.refused = 0
        self.accepted: list[tuple[float, int]] = [(time.monotonic(), 0)]
        self._producers: dict[socket.socket, Producer] = {}
        for partition in range(producers):
            frame, self.batch_bytes = frame_of(topic, partition, records)
            self.frame_bytes = len(frame)
            peer = socket.create_connection(("127.0.0.1", port), CONNECT_S)
            peer.setblocking(False)
            self._producers[peer] = Producer(peer, frame)

    def run(self, seconds: float) -> None:
        """Send for some seconds."""
        end, peers = time.monotonic() + seconds, list(self._producers)
        while time.monotonic() < end:
            readable, writable, _ = select.select(peers, peers, [], TURN_S)
            codes = [code for peer in readable for code in self._producers[peer].answers()]
            taken = sum(code == Code.NONE for code in codes)
            self.refused += len(codes) - taken
            if taken:
                self.accepted.append((time.monotonic(), self.accepted[-1][1] + taken * self.batch_bytes))
            self.sent += sum(self._producers[peer].send() for peer in writable)
            if not writable:
                time.sleep(0.001)  # answers come one by one: others need the processor

    def accepted_by(self, moment: float) -> int:
        """Return how many bytes were acknowledged at a time of the monotonic clock."""
        return max((size for at, size in self.accepted if at <= moment), default=0)

    def close(self) -> None:
        """Close all connections."""
        for peer in self._producers:
            peer.close()
