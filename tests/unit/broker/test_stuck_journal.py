"""A hanging disk under the journal of a broker that does not wait for syncs: all other requests have their response."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.common.error_codes import Code
from spark_producer.protocol import FETCH, METADATA, messages
from tests.fakes.small_tiers import JOURNAL_FILES, KIB, SMALL_TIERS, settle
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.connections.test_lifecycle import SETTINGS, Broker, Peer, fetch
from tests.unit.broker.test_pipelined import one
from tests.unit.broker.unconfirmed_broker import results

SIZE = 5000
MAX_MEMORY_BYTES = 16 * KIB
"""Bytes that may wait for the journal."""


class Stuck:
    """A broker on a simulated disk, whose journal begins a new file for each batch; turns are taken by hand."""

    def __init__(self, path: Path) -> None:
        self.disk = SimulatedDisk()
        settings = replace(SETTINGS, storage_engine="tiered", topic=TopicSettings())
        self.broker = Broker(path, self._open, settings)
        self._changed: SimpleQueue[tuple[str, int] | None] = SimpleQueue()
        self.broker.store.watch(lambda *partition: self._changed.put(partition), lambda: self._changed.put(None))
        self.producers = [Peer(self.broker) for _ in range(5)]
        self.other = Peer(self.broker)

    def _open(self, path: Path, settings: BrokerSettings) -> TieredStorage:
        journal = replace(
            SMALL_TIERS.journal, max_file_bytes=1, max_memory_bytes=MAX_MEMORY_BYTES, unsynced_force_ms=3_600_000
        )
        options = replace(SMALL_TIERS, journal=journal)
        self.storage = TieredStorage(Path("/data"), settings, options=options, files=self.disk)
        return self.storage

    @property
    def waiting(self) -> int:
        """The bytes that wait for the journal."""
        return self.storage.engine.journal.waiting_bytes

    def hear(self) -> None:
        """Process the notifications of the journal's threads, as the server's thread does."""
        settle(self.storage)
        while not self._changed.empty():
            partition = self._changed.get()
            if partition is None:
                self.broker.clients.space_freed()
            else:
                self.broker.clients.changed(partition)
        self.broker.turns()

    def close(self) -> None:
        self.broker.close()
        for peer in (*self.producers, self.other):
            peer.socket.close()


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Stuck]:
    made = Stuck(tmp_path)
    yield made
    made.close()


@contextmanager
def next_file_held(stuck: Stuck, call: str) -> Iterator[None]:
    """The first batch is in a file; the next one needs another file, for which the disk does not do `call`."""
    stuck.producers[0].send(one(size=SIZE))
    assert results(stuck.producers[0]) == [(Code.NONE, 0)], "written at once"
    came = stuck.disk.script.count(call, JOURNAL_FILES)
    with stuck.disk.script.blocked(call, JOURNAL_FILES):
        for producer in stuck.producers:
            producer.send(one(size=SIZE))
        stuck.broker.turns()
        stuck.disk.script.wait_for(call, JOURNAL_FILES, count=came + 1)
        yield


@pytest.mark.parametrize("call", ["force", "truncate", "open"])
def test_a_journal_that_cannot_begin_its_next_file_keeps_only_producers_waiting(stuck: Stuck, call: str) -> None:
    with next_file_held(stuck, call):
        assert SIZE < stuck.waiting <= MAX_MEMORY_BYTES, "what waits for the disk is bounded"
        assert not any(producer.has_response() for producer in stuck.producers)
        stuck.other.ask(METADATA, messages.MetadataRequest(()))
        assert stuck.other.response(METADATA).topics == ()
        stuck.other.ask(FETCH, fetch())
        fetched = stuck.other.response(FETCH).responses[0].partitions[0]
        assert (fetched.error_code, fetched.high_watermark) == (Code.NONE, 1)
    for _ in range(len(stuck.producers)):
        stuck.hear()
    assert sorted(results(producer)[0] for producer in stuck.producers) == [(Code.NONE, at) for at in range(1, 6)]
    assert stuck.waiting == 0
