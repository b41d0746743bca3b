"""Start and end of reading, in the responses of a client that a test scripts."""

from __future__ import annotations

from typing import cast

from spark_producer.admin import BlockingClient
from spark_producer.cli.tail_end import positions_at, records_until
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.protocol.messages import FetchPartitionResponse
from tests.fakes.fake_clock import FakeClock
from tests.fakes.scripted_logs import ScriptedLogs
from tests.unit.record.test_reading import foreign_batch

EMPTY = FetchPartitionResponse(partition_index=0)


def reader_of(client: ScriptedLogs) -> TopicReader:
    return TopicReader(cast(BlockingClient, client), "t", partitions=[0], from_beginning=True)


def fetched(first: int, count: int) -> FetchPartitionResponse:
    records = foreign_batch([(None, b"%d" % number, []) for number in range(count)], base_offset=first)
    return FetchPartitionResponse(partition_index=0, records=memoryview(records))


def test_records_after_the_end_are_left_out_and_end_the_reading() -> None:
    client = ScriptedLogs()
    reader = reader_of(client)  # at 5
    client.batches = [[fetched(5, 2)], [EMPTY], [fetched(7, 10)]]
    found = list(records_until(reader, ends={0: 9}))
    assert [[record.offset for _, record in records] for records in found] == [[5, 6], [], [7, 8]]
    assert list(records_until(reader, ends={0: 9})) == [], "it is there already, and sends no request"


def test_a_quiet_time_ends_the_reading_and_records_restart_it() -> None:
    client, clock = ScriptedLogs(), FakeClock()
    client.batches = [[EMPTY], [fetched(5, 1)], [EMPTY]]
    seen = []
    for records in records_until(reader_of(client), quiet=10, clock=clock):
        seen.append(len(records))
        clock.advance(6)
    assert seen == [0, 1, 0], "the record has restarted the time"


def test_where_to_begin() -> None:
    client = cast(BlockingClient, ScriptedLogs())  # 5 to 9, and 0 to 3
    both = IsolationLevel.READ_UNCOMMITTED
    assert positions_at(client, "t", 2, None, both) == {0: 5, 1: 2}
    assert positions_at(client, "t", -2, None, both) == {0: 7, 1: 1}
    assert positions_at(client, "t", -100, [1], both) == {1: 0}
    assert positions_at(client, "t", 6, None, both) == {0: 6, 1: 3}, "at the end of the shorter one, not at its start"
