"""Producer id and epoch, under which sequences count (KIP-98, KIP-360): when to ask the brokers for them, and the next epoch."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.accumulator import NO_IDENTITY, Identity, RecordAccumulator
from spark_producer.protocol.messages import InitProducerIdRequest

LAST_EPOCH = 0x7FFF


class ProducerIdentity:
    """Who this producer is to the brokers. Of the I/O thread's alone.

    `enabled`: whether it is anybody (`enable.idempotence`). `backoff`: seconds after so many failed requests for an id.
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
        """Whether nothing may be sent before the broker gave an id."""
        return self.enabled and self.current is NO_IDENTITY

    def due_at(self) -> float | None:
        """When to ask for an id; None if there is one, or an answer is awaited."""
        return self._not_before if self.needed and not self._asking else None

    def request(self) -> InitProducerIdRequest:
        """The question, which is sent now."""
        self._asking = True
        return InitProducerIdRequest()

    def received(self, producer_id: int, epoch: int) -> None:
        """The broker gave an id."""
        self._asking, self._attempts = False, 0
        self._adopt(Identity(producer_id, epoch))

    def on_failure(self, now: float) -> None:
        """There was no answer, or an error that passes: ask again after a pause."""
        self._asking = False
        self._not_before = now + self._backoff(self._attempts)
        self._attempts += 1

    def bump(self) -> None:
        """One epoch further; beyond the last one a new id is needed."""
        epoch = self.current.epoch
        self._adopt(NO_IDENTITY if epoch >= LAST_EPOCH else self.current._replace(epoch=epoch + 1))

    def _adopt(self, identity: Identity) -> None:
        self.current = self._drainer.current_identity = identity
