"""The producer id and epoch of an idempotent producer (KIP-98, KIP-360), and the requests for them."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.accumulator import NO_IDENTITY, ProducerIdAndEpoch, RecordAccumulator
from spark_producer.protocol.messages import InitProducerIdRequest

LAST_EPOCH = 0x7FFF
"""Maximum producer epoch, a signed 16-bit integer."""


class ProducerIdentity:
    """The producer id and epoch of this producer. Only the I/O thread uses it.

    `enabled` is false without idempotence (`enable.idempotence`): then no id is needed. `backoff(failures)` returns the seconds
    before the next request for an id.
    """

    def __init__(self, accumulator: RecordAccumulator, backoff: Callable[[int], float], *, enabled: bool) -> None:
        self.enabled = enabled
        self.current = NO_IDENTITY
        self._drainer = accumulator.drainer
        self._backoff = backoff
        self._in_flight = False
        self._not_before = 0.0
        self._attempts = 0

    @property
    def needed(self) -> bool:
        """Whether the producer lacks an id, without which nothing may be sent."""
        return self.enabled and self.current is NO_IDENTITY

    def due_at(self) -> float | None:
        """Return the time of the next request for an id; None if none is needed, or one is in flight."""
        return self._not_before if self.needed and not self._in_flight else None

    def request(self) -> InitProducerIdRequest:
        """Return the request for an id, and record that it is in flight."""
        self._in_flight = True
        return InitProducerIdRequest()

    def received(self, producer_id: int, epoch: int) -> None:
        """Use the id and epoch of a response."""
        self._in_flight, self._attempts = False, 0
        self._adopt(ProducerIdAndEpoch(producer_id, epoch))

    def on_failure(self, now: float) -> None:
        """Schedule another request after the backoff, because the last one failed with a retriable error."""
        self._in_flight = False
        self._not_before = now + self._backoff(self._attempts)
        self._attempts += 1

    def bump(self) -> None:
        """Use the next epoch; after the last epoch a new id is needed."""
        epoch = self.current.epoch
        self._adopt(NO_IDENTITY if epoch >= LAST_EPOCH else self.current._replace(epoch=epoch + 1))

    def _adopt(self, identity: ProducerIdAndEpoch) -> None:
        self.current = self._drainer.current_identity = identity
