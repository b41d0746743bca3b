"""A broker on an engine that confirms on request of the test, as one with a journal does when the disk has a batch."""

from __future__ import annotations

from pathlib import Path

from spark_producer.broker import BrokerSettings
from spark_producer.protocol import PRODUCE, messages
from tests.fakes.memory_storage import MemoryStorage
from tests.unit.broker.batches import make_batch
from tests.unit.broker.connections.test_lifecycle import SETTINGS, Broker, Peer


class UnconfirmedBroker:
    """A broker whose batches the test confirms, and its clients; the test takes its turns."""

    def __init__(self, path: Path, settings: BrokerSettings = SETTINGS, *, writes_at_once: bool = True) -> None:
        self._writes_at_once = writes_at_once
        self.broker = Broker(path, self._open, settings)
        # in place of the server, which notifies delayed requests
        clients = self.broker.clients
        self.broker.store.watch(lambda topic, index: clients.changed((topic, index)), clients.space_freed)
        self._peers: list[Peer] = []
        self.producer, self.consumer = self.connect(2)

    def connect(self, count: int) -> list[Peer]:
        """Return `count` more clients."""
        fresh = [Peer(self.broker) for _ in range(count)]
        self._peers += fresh
        return fresh

    def _open(self, path: Path, settings: BrokerSettings) -> MemoryStorage:
        self.storage = MemoryStorage(path, settings, confirms_at_once=False, writes_at_once=self._writes_at_once)
        return self.storage

    def close(self) -> None:
        self.broker.close()
        for peer in self._peers:
            peer.socket.close()


def produce(*partitions: int, acks: int = -1, timeout_ms: int = 1000, sequence: int = 0) -> messages.ProduceRequest:
    data = tuple(
        messages.ProducePartition(index, make_batch(2, producer_id=5, epoch=0, sequence=sequence))
        for index in partitions
    )
    return messages.ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=(messages.ProduceTopic("t", partition_data=data),)
    )


def results(peer: Peer) -> list[tuple[int, int]]:
    return [
        (result.error_code, result.base_offset) for result in peer.response(PRODUCE).responses[0].partition_responses
    ]
