"""A broker keeps new batches in its tail cache for the members of groups, and for no other client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.storage.tiered import TieredOptions, TieredStorage
from spark_producer.broker.storage.tiered.counters import TierCounters
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    DELETE_TOPICS,
    FETCH,
    JOIN_GROUP,
    LEAVE_GROUP,
    PRODUCE,
    SYNC_GROUP,
    messages,
)
from tests.fakes.raw_client import RawClient
from tests.unit.broker.batches import make_batch
from tests.unit.broker.coordinator.group_requests import assignment, join_request

MIB = 1024 * 1024


class Peer:
    """A client that writes to partition 0 of topic `t`, reads it, and can be a member of a group."""

    def __init__(self, client: RawClient, counters: TierCounters | None = None) -> None:
        self.client = client
        self.counters = counters or TierCounters()
        self._member_id = ""

    def join(self) -> None:
        joined = self.client.ask(JOIN_GROUP, join_request(), 3)
        self._member_id = joined.member_id
        shares = (messages.SyncGroupRequestAssignment(self._member_id, assignment({"t": (0, 9)})),)
        request = messages.SyncGroupRequest(
            "g", joined.generation_id, self._member_id, None, "consumer", "range", shares
        )
        assert self.client.ask(SYNC_GROUP, request).error_code == Code.NONE

    def leave(self) -> None:
        assert self.client.ask(LEAVE_GROUP, messages.LeaveGroupRequest("g", self._member_id), 2).error_code == Code.NONE

    def write(self) -> int:
        """Write a batch; return its offset."""
        partition = (messages.ProducePartition(0, make_batch(1)),)
        topics = (messages.ProduceTopic("t", partition_data=partition),)
        response = self.client.ask(PRODUCE, messages.ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=topics))
        (result,) = response.responses[0].partition_responses
        assert result.error_code == Code.NONE
        return result.base_offset

    def read(self, offset: int) -> int:
        """Return the number of bytes from `offset` on, however many there are now."""
        partition = messages.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MIB)
        request = messages.FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=MIB,
            session_id=0,
            topics=(messages.FetchTopic("t", partitions=(partition,)),),
        )
        (result,) = self.client.ask(FETCH, request, 11).responses[0].partitions
        assert result.error_code == Code.NONE
        return len(result.records or b"")

    def write_and_read(self) -> tuple[int, int]:
        """Write, and read at the end; return how many entries went into the tail cache, and how many came from it."""
        tail = self.counters.tail
        before = tail.insert, tail.hit
        offset = self.write()
        assert self.read(offset) > 0
        assert self.read(offset + 1) == 0
        return tail.insert - before[0], tail.hit - before[1]


@contextmanager
def serving(path: Path) -> Iterator[tuple[LocalBroker, Peer]]:
    engines: list[TieredStorage] = []

    def opened(directory: Path, settings: BrokerSettings) -> TieredStorage:
        engines.append(TieredStorage(directory, settings, options=TieredOptions(tail_ttl_ms=3_600_000)))
        return engines[0]

    with LocalBroker(path, open_storage=opened, settings=BrokerSettings(sync_on_close=False)) as broker:
        broker.create_topic("t")
        with RawClient(broker.port) as client:
            yield broker, Peer(client, engines[0].engine.counters)


def test_the_tail_cache_takes_batches_only_while_a_member_owns_their_partition(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, peer):
        peer.read(0)
        assert peer.write_and_read() == (0, 0), "a reader without a group"
        peer.join()
        peer.read(1)
        assert peer.write_and_read() == (1, 1)
        assert peer.write_and_read() == (1, 1)
        assert peer.counters.cursor.active == 1
        peer.leave()
        assert peer.write_and_read() == (0, 0)
        assert peer.counters.cursor.active == peer.counters.cursor.inactive == 0
        peer.join()
        peer.read(4)
        assert peer.write_and_read() == (1, 1)


def test_a_member_keeps_its_cursor_in_a_topic_that_is_created_again(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, peer):
        peer.join()
        peer.read(0)
        assert peer.write_and_read() == (1, 1)
        deleted = peer.client.ask(DELETE_TOPICS, messages.DeleteTopicsRequest(topic_names=("t",), timeout_ms=9000), 5)
        assert deleted.responses[0].error_code == Code.NONE
        assert peer.counters.cursor.active == 0
        broker.create_topic("t", 2)
        peer.read(0)
        assert peer.write_and_read() == (1, 1)
        peer.leave()
        assert peer.write_and_read() == (0, 0)
        deleted = peer.client.ask(DELETE_TOPICS, messages.DeleteTopicsRequest(topic_names=("t",), timeout_ms=9000), 5)
        broker.create_topic("t")
        peer.read(0)
        assert peer.write_and_read() == (0, 0), "no member has it any more"
