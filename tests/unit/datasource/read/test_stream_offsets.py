"""The offsets of a stream, called as Spark's long-lived process calls them, against the embedded broker."""

from __future__ import annotations

import inspect
import json
import pickle
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from spark_producer.admin.partition_offsets import FoundTopics
from spark_producer.broker import LocalBroker
from spark_producer.common.cluster import TopicPartition
from spark_producer.config import SourceOptions
from spark_producer.config.subscription import SubscribePattern
from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.read.columns import default_columns
from spark_producer.datasource.read.driver import stream_offsets
from spark_producer.datasource.read.driver.assignment import assigned
from spark_producer.datasource.read.driver.stream_offsets import StreamOffsets
from spark_producer.datasource.read.stream_readers import LimitedStreamReader, UnlimitedStreamReader
from spark_producer.errors import ConfigError, DataLoss, TopicNotFound
from spark_producer.protocol import OFFSET_FETCH
from spark_producer.protocol.messages import NO_UUID, OffsetFetchRequest, OffsetFetchRequestTopic
from tests.unit.datasource.read.topics import client_of, cut, delete, fill, grow, settings, short

Reader = LimitedStreamReader
pytestmark = pytest.mark.usefixtures("free_pauses")

SCHEMA = default_columns(SourceOptions(subscribe="t"))


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """Topic `t` with 10 and 4 records."""
    with LocalBroker(auto_create_topics=False) as made:
        made.create_topic("t", 2)
        fill(made, "t", {0: 10, 1: 4})
        yield made


@pytest.fixture
def start(broker: LocalBroker) -> Iterator[Callable[..., Reader]]:
    """Make readers, which are stopped at the end."""
    made = list[Reader]()

    def make(**options: str) -> Reader:
        if not options.keys() & {"subscribe", "subscribePattern", "assign"}:
            options["subscribe"] = "t"
        reader = Reader(settings(broker, **{"startingOffsets": "earliest"} | options), SCHEMA)
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.stop()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_offsets, "LOOKUP_SECONDS", 0.01)


def ranges(reader: Reader, begin: Any, end: Any) -> dict[str, tuple[int, int]]:
    return short([each for task in reader.partitions(begin, end) for each in task.ranges])  # type: ignore[attr-defined]


def latest(reader: Reader, begin: Any, limit: ReadLimit | None = None) -> Any:
    """As Spark does it: through JSON."""
    limit = reader.getDefaultReadLimit() if limit is None else limit
    return json.loads(json.dumps(reader.latestOffset(json.loads(json.dumps(begin)), limit)))


def plain(offsets: Any) -> Any:
    """Offsets of the offset log without the ids of topics: the form of Spark's source."""
    return {topic: partitions for topic, partitions in offsets.items() if partitions}


@pytest.mark.covers("RD3")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {"t": {"0": 0, "1": 0}}),
        ({"startingOffsets": "latest"}, {"t": {"0": 10, "1": 4}}),
        ({"startingOffsets": '{"t":{"0":-1,"1":2}}'}, {"t": {"0": 10, "1": 2}}),
        ({"startingTimestamp": "1000030"}, {"t": {"0": 3, "1": 3}}),
        ({"subscribePattern": "^x"}, {}),
        ({"assign": '{"t":[1]}'}, {"t": {"1": 0}}),
    ],
)
def test_where_a_query_begins(start: Callable[..., Reader], options: dict[str, str], wanted: Any) -> None:
    assert plain(start(**options).initialOffset()) == wanted


def test_a_pattern_that_matches_nothing_yet_is_one_warning(
    start: Callable[..., Reader], caplog: pytest.LogCaptureFixture
) -> None:
    reader = start(subscribePattern="^nothing")
    at = reader.initialOffset()
    for _ in range(3):
        at = latest(reader, at)
    assert caplog.text.count("subscribePattern ^nothing matches no topic") == 1


def test_the_latest_offset_is_the_default_of_a_stream(broker: LocalBroker) -> None:
    reader = Reader(settings(broker, subscribe="t"), SCHEMA)
    assert plain(reader.initialOffset()) == {"t": {"0": 10, "1": 4}}
    reader.stop()


@pytest.mark.covers("RD2")
def test_a_query_whose_beginning_is_not_there(start: Callable[..., Reader]) -> None:
    with pytest.raises(DataLoss, match=r"startingOffsets has offset 11 for topic 't', partition 0"):
        start(startingOffsets='{"t":{"0":11,"1":2}}').initialOffset()
    with pytest.raises(TopicNotFound, match="topic 'nope'"):
        start(subscribe="nope").initialOffset()


def test_micro_batches_follow_each_other(broker: LocalBroker, start: Callable[..., Reader]) -> None:
    reader = start()
    first = reader.initialOffset()
    assert reader.reportLatestOffset() is None
    end = latest(reader, first)
    assert plain(end) == reader.reportLatestOffset() == {"t": {"0": 10, "1": 4}}
    assert ranges(reader, first, end) == {"t-0": (0, 10), "t-1": (0, 4)}
    assert json.dumps(latest(reader, end)) == json.dumps(end), "Spark compares texts"
    fill(broker, "t", {1: 3})
    assert ranges(reader, end, latest(reader, end)) == {"t-1": (4, 7)}


@pytest.mark.covers("RD10")
def test_limits_of_a_micro_batch(broker: LocalBroker, start: Callable[..., Reader]) -> None:
    reader = start(maxOffsetsPerTrigger="7")
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    first = reader.initialOffset()
    assert plain(latest(reader, first)) == {"t": {"0": 5, "1": 2}}
    assert plain(latest(reader, first, ReadAllAvailable())) == {"t": {"0": 10, "1": 4}}, "trigger once reads all"
    assert reader.reportLatestOffset() == {"t": {"0": 10, "1": 4}}
    waiting = start(minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    assert waiting.getDefaultReadLimit() == ReadMinRows(5)
    end = latest(waiting, first)
    fill(broker, "t", {1: 4})
    assert latest(waiting, end) == end
    fill(broker, "t", {1: 1})
    assert plain(latest(waiting, end)) == {"t": {"0": 10, "1": 9}}
    assert start().getDefaultReadLimit() == ReadAllAvailable()


@pytest.mark.covers("RD10")
def test_available_now_ends_at_the_offsets_of_its_start(broker: LocalBroker, start: Callable[..., Reader]) -> None:
    reader = start(maxOffsetsPerTrigger="8", minOffsetsPerTrigger="8")
    reader.prepareForTriggerAvailableNow()
    at = reader.initialOffset()
    ends = []
    for _ in range(4):
        at = latest(reader, at)
        ends.append(plain(at))
        fill(broker, "t", {0: 10})
    assert ends == [{"t": {"0": 5, "1": 2}}, *[{"t": {"0": 10, "1": 4}}] * 3], "a rest below the minimum is read too"


@pytest.mark.covers("RD8")
def test_new_partitions_and_topics_begin_at_their_first_record(
    broker: LocalBroker, start: Callable[..., Reader]
) -> None:
    reader = start(subscribePattern="^t", maxOffsetsPerTrigger="1000")
    end = latest(reader, reader.initialOffset())
    grow(broker, "t", 3)
    broker.create_topic("tt", 1)
    broker.create_topic("other", 1)
    for topic, partition in (("t", 2), ("tt", 0), ("other", 0)):
        fill(broker, topic, {partition: 5})
    then = latest(reader, end)
    assert plain(then) == {"t": {"0": 10, "1": 4, "2": 5}, "tt": {"0": 5}}
    assert ranges(reader, end, then) == {"t-2": (0, 5), "tt-0": (0, 5)}


@pytest.mark.covers("RD8")
def test_a_new_partition_that_has_lost_records_already(broker: LocalBroker, start: Callable[..., Reader]) -> None:
    reader, tolerant = start(subscribePattern="^t"), start(subscribePattern="^t", failOnDataLoss="false")
    end = latest(reader, reader.initialOffset())
    broker.create_topic("tt", 1)
    fill(broker, "tt", {0: 5})
    cut(broker, "tt", 0, 2)
    then = latest(reader, end)
    with pytest.raises(DataLoss, match=r"topic 'tt', partition 0 is new, but its log begins at offset 2 instead of 0"):
        reader.partitions(end, then)
    assert ranges(tolerant, end, then) == {"tt-0": (2, 5)}


@pytest.mark.covers("RD8")
@pytest.mark.parametrize("count", [3, 10, 25], ids=["fewer", "as many", "more"])
def test_a_topic_that_is_created_again(broker: LocalBroker, start: Callable[..., Reader], count: int) -> None:
    """The topic id shows it, even where the new log is longer than the earlier one."""
    strict, tolerant = start(assign='{"t":[0]}'), start(assign='{"t":[0]}', failOnDataLoss="false")
    end = latest(strict, strict.initialOffset())
    assert plain(latest(tolerant, tolerant.initialOffset())) == plain(end) == {"t": {"0": 10}}
    delete(broker, "t")
    broker.create_topic("t", 1)
    fill(broker, "t", {0: count})
    with pytest.raises(DataLoss, match=r"topic 't' was deleted and created again since records of it were read"):
        latest(strict, end)
    read, at = list[int](), end
    for _ in range(3):
        then = latest(tolerant, at)
        for first, last in ranges(tolerant, at, then).values():
            read += range(first, last)
        at = then
    assert read == list(range(count)), "each record of the new topic once"


@pytest.mark.covers("RD8")
def test_a_task_knows_the_ids_of_its_topics(start: Callable[..., Reader]) -> None:
    reader = start(subscribe="t")
    first = reader.initialOffset()
    tasks = reader.partitions(first, latest(reader, first))
    assert tasks
    assert [[*task.topic_ids] for task in tasks] == [["t"]] * len(tasks)  # type: ignore[attr-defined]


@pytest.mark.covers("RD8")
def test_offsets_that_went_backwards_while_no_query_ran(broker: LocalBroker, start: Callable[..., Reader]) -> None:
    end = {"t": {"0": 20, "1": 4}}
    with pytest.raises(
        DataLoss,
        match=r"offsets of topic 't', partition 0 went backwards.*read up to offset 20, and its log ends at 10",
    ):
        latest(start(), end)
    tolerant = start(failOnDataLoss="false")
    then = latest(tolerant, end)
    assert plain(then) == {"t": {"0": 10, "1": 4}}
    assert ranges(tolerant, end, then) == {"t-0": (0, 10)}
    assert ranges(start(failOnDataLoss="false"), end, then) == {"t-0": (0, 10)}, "a batch that is run again"
    with pytest.raises(DataLoss, match="went backwards"):
        start().partitions(end, then)


@pytest.mark.covers("RD8")
def test_a_topic_that_is_gone(
    broker: LocalBroker, start: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("u", 1)
    strict, tolerant = start(subscribe="t,u"), start(subscribe="t,u", failOnDataLoss="false")
    end = latest(strict, strict.initialOffset())
    latest(tolerant, end)
    delete(broker, "u")
    with pytest.raises(
        DataLoss, match=r"unread records of topic 'u', partition 0 are gone: deleted, or not in the subscription"
    ):
        latest(strict, end)
    monkeypatch.setattr(stream_offsets, "MISSING_SECONDS", 0.0)
    then = latest(tolerant, end)
    assert plain(then) == {"t": {"0": 10, "1": 4}}
    assert ranges(tolerant, end, then) == {}


@pytest.mark.covers("RD8")
@pytest.mark.parametrize("is_another", [False, True], ids=["the same", "created again"])
def test_a_topic_that_is_gone_for_a_while_is_not_read_again(
    broker: LocalBroker,
    start: Callable[..., Reader],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_another: bool,
) -> None:
    """A broker that has just started knows no topics for some seconds. Only a topic with another id is read from its start."""
    reader = start(failOnDataLoss="false", subscribePattern="^t", maxOffsetsPerTrigger="1000")
    at = latest(reader, reader.initialOffset())
    with monkeypatch.context() as patched:
        nothing = unittest.mock.Mock(return_value=FoundTopics({}, {}))
        patched.setattr(stream_offsets, "assigned", nothing)
        for _ in range(3):
            then = latest(reader, at)
            assert (then, ranges(reader, at, then)) == (at, {})
            at = then
    assert caplog.text.count("unread records of topic 't', partitions 0, 1 are gone") == 1
    assert nothing.call_count == stream_offsets.LOOKUP_ATTEMPTS + 2, "only the first micro-batch waits"
    if is_another:
        delete(broker, "t")
        broker.create_topic("t", 2)
    fill(broker, "t", {0: 12})
    reader = start(failOnDataLoss="false", subscribePattern="^t")  # the checkpoint has the offsets that it needs
    assert ranges(reader, at, latest(reader, at)) == {"t-0": (0, 12) if is_another else (10, 22)}


@pytest.mark.covers("RD8", "RD10")
def test_a_restart_notices_that_a_topic_was_created_again(broker: LocalBroker, start: Callable[..., Reader]) -> None:
    """The log of the new topic is longer than what was read of the earlier one, and the driver was killed in between."""
    first = start()
    begin = first.initialOffset()
    end = latest(first, begin)
    delete(broker, "t")
    broker.create_topic("t", 2)
    fill(broker, "t", {0: 25, 1: 25})
    for _ in range(2):
        with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
            latest(start(), end)
    again = start().partitions(begin, end)
    assert [each.topic_ids for each in again] == [first.partitions(begin, end)[0].topic_ids] * 2  # type: ignore[attr-defined]
    then = latest(start(failOnDataLoss="false"), end)
    for _ in range(2):  # the batch is in the offset log, and is run again
        assert ranges(start(failOnDataLoss="false"), end, then) == {"t-0": (0, 25), "t-1": (0, 25)}
        with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
            start().partitions(end, then)


@pytest.mark.covers("RD10")
def test_a_checkpoint_of_sparks_source_has_no_ids_and_needs_none(
    broker: LocalBroker, start: Callable[..., Reader]
) -> None:
    reader, theirs = start(), {"t": {"0": 10, "1": 4}}
    assert latest(reader, theirs) == theirs, "ids alone make no micro-batch"
    fill(broker, "t", {1: 3})
    end = latest(reader, theirs)
    [topic_id] = set(end) - {"t"}
    assert (topic_id.partition("@")[0], len(topic_id), end[topic_id]) == ("t", 24, {})
    assert ranges(reader, theirs, end) == {"t-1": (4, 7)}


@pytest.mark.covers("RD8")
def test_brokers_without_ids_are_not_waited_for(start: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint has ids, and a query that moves to such a cluster has nothing new to read."""
    reader = start()
    end = latest(reader, reader.initialOffset())
    calls = list[FoundTopics]()

    def without_ids(*given: Any, **named: Any) -> FoundTopics:
        found = assigned(*given, **named)
        calls.append(found._replace(topic_ids=dict.fromkeys(found.topic_ids, NO_UUID)))
        return calls[-1]

    monkeypatch.setattr(stream_offsets, "assigned", without_ids)
    assert latest(reader, end) == end
    assert len(calls) == 1


@pytest.mark.covers("RD8")
def test_a_broker_that_does_not_know_a_topic_yet_loses_nothing(
    broker: LocalBroker, start: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata spreads slowly: one broker knows a new topic, and the next one that is asked does not."""
    reader, tolerant = start(subscribePattern="^t"), start(subscribePattern="^t", failOnDataLoss="false")
    first = reader.initialOffset()
    fill(broker, "t", {0: 1})
    answers = [FoundTopics({}, {})] * 2

    def lagging(*given: Any, **named: Any) -> FoundTopics:
        return answers.pop() if answers else assigned(*given, **named)

    monkeypatch.setattr(stream_offsets, "assigned", lagging)
    end = latest(reader, first)
    assert plain(end) == {"t": {"0": 11, "1": 4}}
    found = assigned(client, SubscribePattern("^t")) if (client := reader.stream._client) else None
    assert found is not None
    answers.append(found._replace(topic_ids={"t": b"e" * 16}))
    assert latest(reader, end) == end, "one that knows an earlier topic of this name"
    answers += [FoundTopics({}, {})] * 2
    assert ranges(tolerant, {}, end) == {"t-0": (0, 11), "t-1": (0, 4)}
    answers += [FoundTopics({}, {})] * 100
    assert ranges(tolerant, {}, end) == {}
    with pytest.raises(DataLoss, match=r"unread records of topic 't', partitions 0, 1 are gone"):
        reader.partitions({}, end)


@pytest.mark.covers("RD18")
def test_finished_offsets_are_committed_to_the_group(broker: LocalBroker, start: Callable[..., Reader]) -> None:
    """When Spark asks for the next batch: it calls `commit` a batch later, and not after the last one."""
    reader = start(commitGroup="lag", maxOffsetsPerTrigger="7")
    at = reader.initialOffset()
    for wanted in ([(0, 0), (1, 0)], [(0, 5), (1, 2)], [(0, 10), (1, 4)]):
        reader.commit(at)  # nothing happens
        at = latest(reader, at)
        assert committed(broker) == wanted


def committed(broker: LocalBroker) -> list[tuple[int, int]]:
    """The offsets of the group `lag` by partition of `t`."""
    with client_of(broker) as client:
        body = OffsetFetchRequest("lag", (OffsetFetchRequestTopic("t", (0, 1)),))
        of_one_group = OFFSET_FETCH._replace(max_version=7)
        rows = client.request(of_one_group, body).topics[0].partitions
    return [(row.partition_index, row.committed_offset) for row in rows]


@pytest.mark.covers("RD18")
def test_a_commit_that_fails_is_a_warning(
    broker: LocalBroker, start: Callable[..., Reader], caplog: pytest.LogCaptureFixture
) -> None:
    start(commitGroup="lag").stream.commit({TopicPartition("nope", 0): 7})
    assert "could not be committed to commitGroup lag" in caplog.text
    caplog.clear()
    start().stream.commit({TopicPartition("nope", 0): 7})
    assert not caplog.records


def test_what_spark_pickles_has_no_connection(start: Callable[..., Reader]) -> None:
    reader = start()
    reader.initialOffset()
    sent = pickle.loads(pickle.dumps(reader))
    assert (sent._stream, sent.settings, sent.schema) == (None, reader.settings, reader.schema)


def test_offsets_of_another_source(start: Callable[..., Reader]) -> None:
    for value in (
        {"logOffset": 3},
        7,
        {"t": {"x": 1}},
        {"t": [1]},
        {"t": {"0": -1}},
        {"t": {"0": 1.5}},
        {"t": {"0": "1"}},
        {"t": {"0": 1}, "t@x": {}},
        {"t": {"0": 1}, "t@x@y": {}},
    ):
        with pytest.raises(ConfigError, match="the checkpoint has offsets of another source"):
            start().latestOffset(value, ReadAllAvailable())  # type: ignore[arg-type]  # as it may be in a file


@pytest.mark.covers("RD2")
def test_a_wrong_option_is_the_error_of_the_first_call(broker: LocalBroker) -> None:
    """Raised where the reader is made, Spark's process would replace it by an error of its own."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t", "endingOffsets": "latest"}
    refused: Any = pickle.loads(pickle.dumps(PyProducerDataSource(given).streamReader(SCHEMA)))
    assert inspect.signature(refused.latestOffset).parameters
    assert refused.getDefaultReadLimit() == ReadAllAvailable()
    calls: list[Callable[[], Any]] = [
        refused.initialOffset, lambda: refused.latestOffset({}, ReadAllAvailable()), lambda: refused.partitions({}, {})
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ConfigError, match="a stream has no end"):
            call()
    refused.stop()


@pytest.mark.covers("RD16")
def test_spark_4_0_asks_for_the_latest_offset_without_a_start(broker: LocalBroker) -> None:
    given = settings(broker, subscribe="t", startingOffsets="earliest", commitGroup="lag")
    reader = UnlimitedStreamReader(given, SCHEMA)
    try:
        first, end = reader.initialOffset(), reader.latestOffset()
        assert (plain(first), plain(end)) == ({"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 4}})
        assert len(reader.partitions(first, end)) == 2
        assert reader.latestOffset() == end
        reader.commit({"t": {"0": 10, "1": 4}})
        assert committed(broker) == [(0, 10), (1, 4)]
    finally:
        reader.stop()


def test_connections_are_kept_and_closed(broker: LocalBroker) -> None:
    stream = StreamOffsets(settings(broker, subscribe="t"))
    stream.close()
    first = stream.initial()
    client = stream._client
    stream.next_ends(first, limited=True)
    assert stream._client is client
    stream.close()
