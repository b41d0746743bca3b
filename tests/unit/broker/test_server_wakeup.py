"""Other threads wake the broker's thread: once for all their work until it looks."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Hashable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.server import Server
from spark_producer.broker.topic_store import TopicStore
from tests.fakes.memory_storage import MemoryStorage
from tests.unit.broker.handler_calls import context_of


class ServerHarness:
    """A server whose turns the test takes, with a topic of a hundred partitions on an engine that confirms on request."""

    def __init__(self, path: Path, life: ExitStack) -> None:
        self.settings = BrokerSettings()
        store = TopicStore(path, self.settings, self._open)
        life.callback(store.close)
        store.create("t", 100)
        self.server = Server(context_of(store, self.settings), socket.create_server(("127.0.0.1", 0)))
        self.server._selector.register(self.server._wake_receiver, selectors.EVENT_READ, self.server._woken)

    def _open(self, path: Path, settings: BrokerSettings) -> MemoryStorage:
        self.storage = MemoryStorage(path, settings, confirms_at_once=False)
        return self.storage

    def wakes(self) -> int:
        """Return the number of system calls that have woken it for its next turn."""
        return len(self.server._wake_receiver.recv(4096, socket.MSG_PEEK))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ServerHarness]:
    with ExitStack() as life:
        made = ServerHarness(tmp_path, life)
        yield made
        made.server._close()


def test_confirmations_of_many_partitions_wake_it_once_and_are_all_seen(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Hashable] = []
    monkeypatch.setattr(harness.server.clients, "changed", changes.append)
    for _ in range(2):
        harness.storage.confirm_all()
        harness.server._space_freed()
        assert harness.wakes() == 1
        harness.server._turn()
        assert changes == [("t", index) for index in range(100)]
        changes.clear()
