"""A partition of a topic that refuses single records, as Kafka does: before it looks at sequences, and one kind at a time.

Owns: its log and the sequences that it knows. Must not know: what is asserted.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from spark_producer.errors import ConnectionFailed
from spark_producer.protocol.messages import BatchIndexAndErrorMessage, ProducePartitionResponse, ProduceResponse
from spark_producer.protocol.messages import ProduceTopicResponse as TopicResponse
from spark_producer.record.batch_v2 import read_header
from spark_producer.sender import ClientRequest
from tests.fakes.accumulator_fakes import values_in
from tests.fakes.sender_fakes import TOPIC, SenderFakes, metadata_of

INVALID_RECORD, INVALID_TIMESTAMP, TOO_LARGE, OUT_OF_ORDER, STALE_EPOCH = 87, 32, 10, 45, 47
IN_FLIGHT = 5


@dataclass
class ChoosyPartition:
    """Refuses values that begin with `n` (no key), then those with `t` (timestamp), and batches above its size, if given."""

    largest: int = 1 << 30
    log: list[bytes] = field(default_factory=list)
    epoch: int = -1
    expected: int = 0
    remembered: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def take(self, data: memoryview | bytes) -> ProducePartitionResponse:
        """Append a batch, or say why not."""
        values, header = [value or b"" for value in values_in(data)], read_header(data)
        if len(data) > self.largest:
            return ProducePartitionResponse(0, TOO_LARGE)
        for letter, code in ((b"n", INVALID_RECORD), (b"t", INVALID_TIMESTAMP)):
            bad = [index for index, value in enumerate(values) if value[:1] == letter]
            if bad:
                reported = tuple(BatchIndexAndErrorMessage(index, f"{letter.decode()}: bad") for index in bad)
                return ProducePartitionResponse(0, code, record_errors=reported)
        if header.producer_id < 0:
            return self._append(values)
        for epoch, first, count, offset in self.remembered:
            if (epoch, first, count) == (header.producer_epoch, header.base_sequence, len(values)):
                return ProducePartitionResponse(0, 0, offset)
        if header.producer_epoch < self.epoch:
            return ProducePartitionResponse(0, STALE_EPOCH)
        if header.base_sequence != (self.expected if header.producer_epoch == self.epoch else 0):
            return ProducePartitionResponse(0, OUT_OF_ORDER)
        self.epoch, self.expected = header.producer_epoch, header.base_sequence + len(values)
        self.remembered.append((self.epoch, header.base_sequence, len(values), len(self.log)))
        return self._append(values)

    def _append(self, values: list[bytes]) -> ProducePartitionResponse:
        self.log += values
        return ProducePartitionResponse(0, 0, len(self.log) - len(values))


def carry_out(
    made: SenderFakes, partition: ChoosyPartition, choose: random.Random | None = None, lost: float = 0.0
) -> None:
    """Send everything, and answer in order, until all has ended. With `choose` more than one request may fly, and get lost."""
    flying: deque[tuple[ClientRequest, bytes]] = deque()
    for _ in range(5000):
        if made.fakes.incomplete.idle and not flying:
            return
        made.network.unready = {1} if len(flying) >= IN_FLIGHT else set()
        step = made.step()
        for request in step.requests:
            if request.batches:
                flying.append((request, bytes(request.batches[0].data)))
            else:
                made.complete(request, metadata_of({TOPIC: (1, 1, 2)}))
        if flying and (not step.requests or choose is None or choose.random() < 0.4):
            request, data = flying.popleft()
            if choose is not None and choose.random() < lost:
                if choose.random() < 0.5:
                    partition.take(data)
                made.complete(request, error=ConnectionFailed("cut"))
                made.sender.on_disconnect()
            else:
                made.complete(
                    request, ProduceResponse((TopicResponse(TOPIC, partition_responses=(partition.take(data),)),))
                )
        elif not step.requests:
            made.fakes.clock.advance(0.05)
    raise AssertionError("batches are left")
