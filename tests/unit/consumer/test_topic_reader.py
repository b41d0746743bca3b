"""Reading a topic: leaders that move, logs that were cut, brokers that send nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.cli.record_text import format_reset
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.protocol.messages import FetchAbortedTransaction, FetchPartitionResponse
from spark_producer.record.control import ControlType
from tests.fakes.scripted_logs import ScriptedLogs
from tests.unit.record.control_batches import batch as transactional
from tests.unit.record.control_batches import marker
from tests.unit.record.test_reading import foreign_batch

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
NOT_LEADER, OUT_OF_RANGE, NOT_AUTHORIZED = 6, 1, 29


def reader_of(client: ScriptedLogs, pause: Callable[[float], None] = lambda _: None, **arguments: Any) -> TopicReader:
    return TopicReader(cast(BlockingClient, client), "t", pause=pause, **arguments)


def fetched(partition: int, records: bytes | None = None, error: int = 0) -> FetchPartitionResponse:
    decoded = None if records is None else memoryview(records)
    return FetchPartitionResponse(partition_index=partition, error_code=error, records=decoded)


def test_from_now_and_from_the_beginning() -> None:
    assert reader_of(ScriptedLogs()).positions == {0: 9, 1: 3}
    assert reader_of(ScriptedLogs(), from_beginning=True).positions == {0: 5, 1: 0}
    assert reader_of(ScriptedLogs(), partitions=[1, 1]).positions == {1: 3}


def test_records_before_the_position_are_left_out() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0])
    client.batches = [[fetched(0, foreign_batch([(None, b"a", []), (None, b"b", [])], base_offset=8))]]
    assert [(partition, record.offset, record.value) for partition, record in reader.records()] == [(0, 9, b"b")]
    assert reader.positions == {0: 10}


def test_only_the_first_leader_is_waited_for_once_something_came() -> None:
    client = ScriptedLogs()
    reader = reader_of(client)
    client.batches = [[fetched(0)], [fetched(1, foreign_batch([(None, b"a", [])], base_offset=3))]]
    assert [each.topic_partition.partition for each in reader.fetch()] == [1]
    assert client.fetched == [[(0, 9)], [(1, 3)]]
    assert reader.positions == {0: 9, 1: 4}


def test_a_partition_whose_batch_did_not_fit_is_asked_for_first() -> None:
    client = ScriptedLogs()
    client.leaders = {("t", 0): 10, ("t", 1): 10}
    reader = reader_of(client)
    batch = foreign_batch([(None, b"a" * 100, [])], base_offset=3)
    client.batches = [[fetched(0), fetched(1, batch[:80])], [fetched(1, batch), fetched(0)]]
    assert reader.fetch() == []
    assert len(reader.fetch()) == 1
    assert client.fetched == [[(0, 9), (1, 3)], [(1, 3), (0, 9)]]


def test_a_first_partition_without_a_whole_batch_is_corrupt() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0])
    client.batches = [[fetched(0, foreign_batch([(None, b"a", [])])[:30])]]
    with pytest.raises(
        CorruptRecord, match="reading topic 't', partition 0 failed at offset 9: 30 bytes without a whole batch"
    ):
        reader.fetch()


def test_garbage_names_the_place() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0])
    client.batches = [[fetched(0, b"x" * 300)]]
    with pytest.raises(CorruptRecord, match=r"reading topic 't', partition 0 failed at offset 9: .*magic"):
        reader.fetch()


def test_a_damaged_batch_names_the_place() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0])
    damaged = bytearray(foreign_batch([(None, b"value", [])], base_offset=9))
    damaged[-3] ^= 1
    client.batches = [[fetched(0, bytes(damaged))]]
    with pytest.raises(CorruptRecord, match=r"reading topic 't', partition 0 failed at offset 9: .*CRC"):
        list(reader.records())


def test_a_leader_that_moved_is_found_after_a_pause() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, lambda _: client.leaders.update({("t", 0): 12}), partitions=[0])
    client.batches = [[fetched(0, error=NOT_LEADER)], [fetched(0, foreign_batch([(None, b"a", [])], base_offset=9))]]
    assert reader.fetch() == []
    assert len(reader.fetch()) == 1  # the fake checks that node 12 was asked


def test_a_log_that_retention_cut_is_read_from_its_start() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0])
    reader.positions[0] = 2
    client.batches = [[fetched(0, error=OUT_OF_RANGE)]]
    assert reader.fetch() == []
    assert reader.positions == {0: 5}


@pytest.mark.parametrize(
    ("position", "reason"),
    [(2, "offsets 2 to 4 were deleted from the log"), (70, "offset 70 is not in the log: the topic was recreated")],
)
def test_a_reset_is_reported(position: int, reason: str) -> None:
    client, reported = ScriptedLogs(), list[str]()
    reader = reader_of(client, partitions=[0], on_reset=lambda *reset: reported.append(format_reset(*reset)))
    reader.positions[0] = position
    client.batches = [[fetched(0, error=OUT_OF_RANGE)]]
    assert reader.fetch() == []
    [line] = reported
    assert line.startswith(f"partition 0: {reason}")
    assert line.endswith("Reading continues at 5")


def test_a_refusal_is_raised() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0])
    client.batches = [[fetched(0, error=NOT_AUTHORIZED)]]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        reader.fetch()


def test_what_was_not_asked_for_is_not_read() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0])
    record = foreign_batch([(None, b"a", [])], base_offset=9)
    client.batches = [[fetched(7, record), fetched(1, error=OUT_OF_RANGE), fetched(0, record)]]
    assert [each.topic_partition.partition for each in reader.fetch()] == [0]
    assert reader.positions == {0: 10}


@pytest.mark.parametrize("isolation", IsolationLevel)
def test_both_kinds_of_requests_ask_with_the_isolation_level(isolation: IsolationLevel) -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0], isolation=isolation)
    client.batches = [[fetched(0)]]
    assert list(reader.records()) == []
    assert [body.isolation_level for _, _, body in client.sent] == [isolation, isolation]


def test_records_of_aborted_transactions_are_left_out_and_passed() -> None:
    client = ScriptedLogs()
    reader = reader_of(client, partitions=[0], isolation=IsolationLevel.READ_COMMITTED)
    log = transactional(9, 1) + transactional(10, 2) + marker(11, 1, ABORT) + marker(12, 2, COMMIT)
    client.batches = [
        [fetched(0, log)._replace(aborted_transactions=(FetchAbortedTransaction(producer_id=1, first_offset=9),))]
    ]
    assert [record.offset for _, record in reader.records()] == [10]
    assert reader.positions == {0: 13}


def test_leaders_that_moved_are_found_with_one_question_after_one_pause() -> None:
    client, pauses = ScriptedLogs(), list[float]()
    client.leaders = {("t", 0): 10, ("t", 1): 10}
    reader = reader_of(client, pauses.append)
    client.batches = [[fetched(0, error=NOT_LEADER), fetched(1, error=NOT_LEADER)]]
    before = client.lookups
    assert reader.fetch() == []
    assert (len(pauses), client.lookups - before) == (1, 1)


def test_a_start_of_the_log_that_is_not_in_the_log_is_asked_for_with_pauses() -> None:
    client, pauses, reported = ScriptedLogs(), list[float](), list[object]()
    reader = reader_of(
        client, pauses.append, partitions=[0], from_beginning=True, on_reset=lambda *reset: reported.append(reset)
    )
    client.batches = [[fetched(0, error=OUT_OF_RANGE)], [fetched(0, error=OUT_OF_RANGE)]]
    assert [reader.fetch(), reader.fetch()] == [[], []]
    assert (len(pauses), reported) == (2, [])
    assert pauses[0] <= 0.12 < 0.16 <= pauses[1], "they grow"
