"""Reading a topic: leaders that move, logs that were cut, brokers that send nonsense; and how records are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from spark_producer.errors import BrokerError, CorruptRecord, TopicNotFound
from spark_producer.protocol import FETCH, LIST_OFFSETS, Api
from spark_producer.protocol.messages import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_producer.record.reading import Record
from spark_producer.tools import BlockingClient
from spark_producer.tools.tail import (
    EARLIEST,
    LATEST,
    TopicReader,
    format_bytes,
    format_record,
    format_reset,
    format_timestamp,
    offsets,
)
from tests.unit.record.test_reading import foreign_batch

NOT_LEADER, OUT_OF_RANGE, NOT_AUTHORIZED = 6, 1, 29


class FakeCluster:
    """Two partitions of topic `t`, one leader each; answers are set by the test, requests are kept."""

    def __init__(self) -> None:
        self.leaders = {0: 10, 1: 11}
        self.starts, self.ends = {0: 5, 1: 0}, {0: 9, 1: 3}
        self.fetched: list[list[tuple[int, int]]] = []
        self.answers: list[list[FetchPartitionResponse]] = []
        self.list_errors: list[int] = []
        self.by_time: dict[int, int] = {}
        self.asked_times: list[int] = []

    def metadata(self, topics: Sequence[str], *, allow_auto_topic_creation: bool = False) -> MetadataResponse:
        assert not allow_auto_topic_creation
        rows = tuple(MetadataResponsePartition(partition_index=each) for each in sorted(self.leaders, reverse=True))
        known = (MetadataResponseTopic(name="t", partitions=rows),) if list(topics) == ["t"] else ()
        return MetadataResponse(topics=known)

    def leader_of(self, topic: str, partition: int) -> int:
        return self.leaders[partition]

    def request(self, api: Api, body: Any, *, node: int) -> Any:
        if api is LIST_OFFSETS:
            return self._list_offsets(body)
        assert api is FETCH
        self.fetched.append([(each.partition, each.fetch_offset) for each in body.topics[0].partitions])
        assert {self.leaders[partition] for partition, _ in self.fetched[-1]} == {node}
        return FetchResponse(responses=(FetchTopicResponse("t", tuple(self.answers.pop(0))),))

    def _list_offsets(self, body: Any) -> ListOffsetsResponse:
        error = self.list_errors.pop(0) if self.list_errors else 0
        known = {EARLIEST: self.starts, LATEST: self.ends}
        self.asked_times += [each.timestamp for each in body.topics[0].partitions]
        rows = tuple(
            ListOffsetsPartitionResponse(
                each.partition_index, error, offset=known.get(each.timestamp, self.by_time)[each.partition_index]
            )
            for each in body.topics[0].partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse("t", rows),))


def reader_of(cluster: FakeCluster, pause: Callable[[float], None] = lambda _: None, **arguments: Any) -> TopicReader:
    return TopicReader(cast(BlockingClient, cluster), "t", pause=pause, **arguments)


def fetched(partition: int, records: bytes | None = None, error: int = 0) -> FetchPartitionResponse:
    return FetchPartitionResponse(partition_index=partition, error_code=error, records=records)


def test_from_now_and_from_the_beginning() -> None:
    assert reader_of(FakeCluster()).positions == {0: 9, 1: 3}
    assert reader_of(FakeCluster(), from_beginning=True).positions == {0: 5, 1: 0}
    assert reader_of(FakeCluster(), partitions=[1, 1]).positions == {1: 3}


def test_records_before_the_position_are_left_out() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster, partitions=[0])
    cluster.answers = [[fetched(0, foreign_batch([(None, b"a", []), (None, b"b", [])], base_offset=8))]]
    assert [(partition, record.offset, record.value) for partition, record in reader.records()] == [(0, 9, b"b")]
    assert reader.positions == {0: 10}


def test_only_the_first_leader_is_waited_for_once_something_came() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster)
    cluster.answers = [[fetched(0)], [fetched(1, foreign_batch([(None, b"a", [])], base_offset=3))]]
    assert [partition for partition, _ in reader.fetch()] == [1]
    assert cluster.fetched == [[(0, 9)], [(1, 3)]]
    assert reader.positions == {0: 9, 1: 4}


def test_a_partition_whose_batch_did_not_fit_is_asked_for_first() -> None:
    cluster = FakeCluster()
    cluster.leaders = {0: 10, 1: 10}
    reader = reader_of(cluster)
    batch = foreign_batch([(None, b"a" * 100, [])], base_offset=3)
    cluster.answers = [[fetched(0), fetched(1, batch[:80])], [fetched(1, batch), fetched(0)]]
    assert reader.fetch() == []
    assert len(reader.fetch()) == 1
    assert cluster.fetched == [[(0, 9), (1, 3)], [(1, 3), (0, 9)]]


def test_a_first_partition_without_a_whole_batch_is_corrupt() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster, partitions=[0])
    cluster.answers = [[fetched(0, foreign_batch([(None, b"a", [])])[:30])]]
    with pytest.raises(CorruptRecord, match="topic 't', partition 0, offset 9: 30 bytes hold no whole batch"):
        reader.fetch()


def test_garbage_names_the_place() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster, partitions=[0])
    cluster.answers = [[fetched(0, b"x" * 300)]]
    with pytest.raises(CorruptRecord, match=r"topic 't', partition 0, offset 9: .*magic"):
        reader.fetch()


def test_a_damaged_batch_names_the_place() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster, partitions=[0])
    damaged = bytearray(foreign_batch([(None, b"value", [])], base_offset=9))
    damaged[-3] ^= 1
    cluster.answers = [[fetched(0, bytes(damaged))]]
    with pytest.raises(CorruptRecord, match=r"topic 't', partition 0: .*offset 9: CRC"):
        list(reader.records())


def test_a_leader_that_moved_is_found_after_a_pause() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster, lambda _: cluster.leaders.update({0: 12}), partitions=[0])
    cluster.answers = [[fetched(0, error=NOT_LEADER)], [fetched(0, foreign_batch([(None, b"a", [])], base_offset=9))]]
    assert reader.fetch() == []
    assert len(reader.fetch()) == 1  # the fake checks that node 12 was asked


def test_a_log_that_retention_cut_is_read_from_its_start() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster, partitions=[0])
    reader.positions[0] = 2
    cluster.answers = [[fetched(0, error=OUT_OF_RANGE)]]
    assert reader.fetch() == []
    assert reader.positions == {0: 5}


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (2, "partition 0: offsets 2 to 4 were removed from the log, and are skipped; reading on at 5"),
        (70, "partition 0: offset 70 is not in the log: the topic was made anew, or its end was lost; reading on at 5"),
    ],
)
def test_reading_on_elsewhere_is_told(position: int, said: str) -> None:
    cluster, told = FakeCluster(), list[str]()
    reader = reader_of(cluster, partitions=[0], on_reset=lambda *reset: told.append(format_reset(*reset)))
    reader.positions[0] = position
    cluster.answers = [[fetched(0, error=OUT_OF_RANGE)]]
    assert reader.fetch() == []
    assert told == [said]


def test_a_refusal_is_raised() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster, partitions=[0])
    cluster.answers = [[fetched(0, error=NOT_AUTHORIZED)]]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        reader.fetch()


def test_offsets_are_asked_for_again_while_a_new_topic_gets_its_leaders() -> None:
    cluster, pauses = FakeCluster(), list[float]()
    cluster.list_errors = [NOT_LEADER, NOT_LEADER]
    assert offsets(cast(BlockingClient, cluster), "t", pause=pauses.append) == {0: 9, 1: 3}
    assert len(pauses) == 1


def test_offsets_of_leaders_that_never_appear() -> None:
    cluster = FakeCluster()
    cluster.list_errors = [NOT_LEADER] * 1000
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        offsets(cast(BlockingClient, cluster), "t", pause=lambda _: None)


def test_a_time_after_the_last_record_is_the_end_of_the_log() -> None:
    """Brokers answer -1 then; to fetch from there would begin at the start."""
    cluster = FakeCluster()
    cluster.by_time = {0: -1, 1: 2}
    asked = offsets(cast(BlockingClient, cluster), "t", 5000)
    assert asked == {0: 9, 1: 2}
    assert cluster.asked_times == [-1, -1, 5000, 5000], "the end first: nothing that comes in between is left out"


def test_offsets_that_may_not_be_known() -> None:
    cluster = FakeCluster()
    cluster.list_errors = [NOT_AUTHORIZED]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        offsets(cast(BlockingClient, cluster), "t", pause=lambda _: None)


def test_a_topic_that_is_not_there() -> None:
    with pytest.raises(TopicNotFound, match="'nope'"):
        offsets(cast(BlockingClient, FakeCluster()), "nope")


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (None, "null"),
        (b"", ""),
        ("grün 🚀".encode(), "grün 🚀"),
        (b'{"a": 1}', '{"a": 1}'),
        (b"line\nline\ttab", "line\\nline\\ttab"),
        (b"\x1b[2Jharmless text", "\\x1b[2Jharmless text"),
        (b"\x00\x01\x02\x03", "0x00010203"),
        (b"\xff\xfe", "0xfffe"),
        ("\u202e".encode() + b"reversed", "\\u202ereversed"),
    ],
)
def test_bytes_as_people_read_them(content: bytes | None, shown: str) -> None:
    assert format_bytes(content) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1356998400123, "2013-01-01T00:00:00.123Z"),
        (-1, "no-time"),
        (-1500, "1969-12-31T23:59:58.500Z"),
        (2**62, f"{2**62}ms"),
        (-(2**62), f"{-(2**62)}ms"),
    ],
)
def test_timestamps_as_people_read_them(milliseconds: int, shown: str) -> None:
    assert format_timestamp(milliseconds) == shown


def test_a_record_is_one_line() -> None:
    record = Record(7, 0, b"UA1545", None, (("trace", b"\x00"), ("na\nme", None)))
    assert format_record(3, record) == (
        "3:7  1970-01-01T00:00:00.000Z  key=UA1545  value=null  headers={trace: 0x00, na\\nme: null}"
    )


def test_what_was_not_asked_for_is_not_read() -> None:
    cluster = FakeCluster()
    reader = reader_of(cluster, partitions=[0])
    record = foreign_batch([(None, b"a", [])], base_offset=9)
    cluster.answers = [[fetched(7, record), fetched(1, error=OUT_OF_RANGE), fetched(0, record)]]
    assert [partition for partition, _ in reader.fetch()] == [0]
    assert reader.positions == {0: 10}


def test_a_partition_whose_offset_is_left_out_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    real, empty = cluster._list_offsets, [True, True]

    def forgetful(body: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse() if empty and empty.pop() else real(body)

    monkeypatch.setattr(cluster, "_list_offsets", forgetful)
    assert offsets(cast(BlockingClient, cluster), "t", LATEST, pause=lambda _: None) == {0: 9, 1: 3}
    monkeypatch.setattr(cluster, "_list_offsets", lambda _: ListOffsetsResponse())
    with pytest.raises(BrokerError, match=r"NETWORK_EXCEPTION.*partition 0"):
        offsets(cast(BlockingClient, cluster), "t", LATEST, pause=lambda _: None)
