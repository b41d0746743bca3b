"""The read path over the engine's own write cache, index and entry logs, while its threads flush (RO1, RO2)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker, TopicSettings
from spark_producer.broker.memory.plan import plan_memory
from spark_producer.broker.memory.sizes import KIB, MIB
from spark_producer.broker.metrics.page import read_metrics_page
from spark_producer.broker.metrics.server import fetch_metrics_page
from spark_producer.broker.settings import with_memory
from spark_producer.broker.storage.base import Log
from spark_producer.broker.storage.tiered import TieredOptions, TieredStorage
from spark_producer.broker.storage.tiered.options import options_of
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import read_header
from tests.fakes.raw_client import RawClient
from tests.support.waiting import retry, wait_until
from tests.unit.broker.batches import filler_batch
from tests.unit.broker.test_cursors_of_groups import Peer

SECONDS = 60.0
SETTINGS = BrokerSettings(sync_on_close=False, storage_engine="tiered")


@contextmanager
def opened(path: Path, **options: int) -> Iterator[tuple[TieredStorage, Log]]:
    storage = TieredStorage(path, SETTINGS, options=TieredOptions(**options))  # type: ignore[arg-type]
    log = storage.create("t", 0, TopicSettings())
    try:
        yield storage, log
    finally:
        log.close(discard=True)
        storage.close()


def append(log: Log, size: int, number: int) -> bytes:
    """Admit a batch as soon as it fits, and wait until it may be read; return it as it is stored."""
    batch = filler_batch(2, size=size, timestamp=number)
    base = retry(lambda: log.admit(batch, read_header(batch)), BrokerError, "space for a batch", pause=0.001)
    wait_until(lambda: log.is_confirmed(base), "the batch may be read", pause=0.0001)
    return base.to_bytes(8, "big") + bytes(batch[8:12]) + bytes(4) + bytes(batch[16:])


@pytest.mark.covers("RO2")
def test_every_read_is_right_while_halves_swap_and_are_flushed_and_cleared(tmp_path: Path) -> None:
    chance = random.Random(1)
    with opened(tmp_path, write_cache_bytes=32 * KIB, read_cache_bytes=32 * KIB) as (storage, log):
        stored: list[bytes] = []
        for number in range(300):
            stored.append(append(log, chance.randrange(100, 2000), number))
            for _ in range(2):
                first = chance.randrange(max(len(stored) - 40, 0), len(stored)) if chance.random() < 0.8 else 0
                found = log.read(first * 2, 8000)
                assert found
                assert b"".join(stored[first:]).startswith(found), number
        counters = storage.engine.counters
        assert counters.served == counters.read.fetched
        assert counters.write_cache.swaps > 10
        assert 0 not in (counters.write_cache.hit_active, counters.read_cache.hit, counters.entrylog.read)


def test_the_tail_cache_expires_without_readers(tmp_path: Path) -> None:
    with opened(tmp_path) as (storage, log):
        storage.cursor_changed("t", 0, True)
        log.available(0, 1)
        append(log, 500, 0)
        counters = storage.engine.counters.tail
        wait_until(lambda: not counters.entries, "the entries are evicted")
        assert counters.evict_ttl == 1


def test_cursors_of_unknown_partitions_are_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as (storage, log):
        for exists in (True, False):
            storage.cursor_changed("unknown", 0, exists)
        append(log, 500, 0)
        cursor = storage.engine.counters.cursor
        assert cursor.active == cursor.inactive == 0


def test_a_broker_shows_its_tiers_its_journal_and_its_producers() -> None:
    plan = plan_memory(32 * MIB)
    assert options_of(plan).write_cache_bytes == plan.write_cache
    with LocalBroker(metrics_port=0, settings=with_memory(SETTINGS, plan)) as broker:
        assert broker.metrics_port
        broker.create_topic("t")
        page = fetch_metrics_page(broker.metrics_port)
        assert 'pyproducer_broker_info{engine="tiered"} 1\n' in page
        found = read_metrics_page(page)
        assert found["pyproducer_broker_journal_added_total"] == 0
        assert {"pyproducer_broker_tail_bytes", "pyproducer_broker_write_cache_bytes"} <= set(found)
        with RawClient(broker.port) as client:
            peer = Peer(client)
            for _ in range(3):
                peer.write()
        port = broker.metrics_port
        queue = "pyproducer_broker_journal_queue"
        wait_until(lambda: not read_metrics_page(fetch_metrics_page(port))[queue], "the journal's queue is empty")
        found = read_metrics_page(fetch_metrics_page(port))
        assert found["pyproducer_broker_journal_added_total"] == 3
        groups = [value for name, value in found.items() if name.startswith("pyproducer_broker_journal_flush_")]
        assert sum(groups) == 3, "each was answered before the next one came"
        assert found["pyproducer_broker_journal_memory"] == 0
        assert found["pyproducer_broker_write_cache_entries"] == 3
        assert found["pyproducer_broker_publish_pending_bytes"] == 0
