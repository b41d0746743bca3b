"""The producer id and epoch under which sequences count (KIP-98, KIP-360), and when to ask the brokers for them."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.accumulator import NO_IDENTITY, ProducerIdAndEpoch, RecordAccumulator
from spark_producer.protocol.messages import InitProducerIdRequest

LAST_EPOCH = 0x7FFF


class ProducerIdentity:
    """The producer id and epoch by which the brokers know this producer. Only the I/O thread uses it.

    `enabled` says whether the producer needs an id (`enable.idempotence`). `backoff` gives the pause in seconds after a number
    of failed requests for an id.
    """

    def __init__(self, accumulator: RecordAccumulator, backoff: Callable[[int], float], *, enabled: bool) -> None:
        self.enabled = enabled
        self.current = NO_IDENTITY
        self._drainer = accumulator.drainer
        self._backoff = backoff
        self._asking = False
        self._not_before = 0.0
        self._attempts = 0

    @property
    def needed(self) -> bool:
        """Whether the producer needs an id, so that nothing may be sent before the broker gives one."""
        return self.enabled and self.current is NO_IDENTITY

    def due_at(self) -> float | None:
        """Return when to ask for an id; None if none is needed, or an answer is awaited."""
        return self._not_before if self.needed and not self._asking else None

    def request(self) -> InitProducerIdRequest:
        """Return the request for an id, and note that it is sent now."""
        self._asking = True
        return InitProducerIdRequest()

    def received(self, producer_id: int, epoch: int) -> None:
        """Take over the id that the broker gave."""
        self._asking, self._attempts = False, 0
        self._adopt(ProducerIdAndEpoch(producer_id, epoch))

    def on_failure(self, now: float) -> None:
        """Plan to ask again after a pause, because no answer came, or one with an error that passes."""
        self._asking = False
        self._not_before = now + self._backoff(self._attempts)
        self._attempts += 1

    def bump(self) -> None:
        """Go to the next epoch; after the last epoch a new id is needed."""
        epoch = self.current.epoch
        self._adopt(NO_IDENTITY if epoch >= LAST_EPOCH else self.current._replace(epoch=epoch + 1))

    def _adopt(self, identity: ProducerIdAndEpoch) -> None:
        self.current = self._drainer.current_identity = identity
