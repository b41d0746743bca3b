"""The ranges of a batch, as Spark's planner asks for them, against the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan

from spark_producer.broker import LocalBroker
from spark_producer.common import wait_warning
from spark_producer.common.cluster import TopicPartition
from spark_producer.datasource.read.driver import offset_resolution
from spark_producer.datasource.read.driver.batch_plan import plan_batch
from spark_producer.datasource.read.pushed_filters import PushedFilters
from spark_producer.errors import BrokersUnreachable, ConfigError, DataLoss, PyProducerError, TopicNotFound
from tests.unit.datasource.read.topics import FIRST_TIME, cut, fill, settings, short


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """`a`: 10 and 4 records, the first 3 of the first partition deleted. `ab`: 5 records. `empty`: none."""
    with LocalBroker(auto_create_topics=False) as made:
        for topic, partitions in (("a", 2), ("ab", 1), ("empty", 1)):
            made.create_topic(topic, partitions)
        fill(made, "a", {0: 10, 1: 4})
        cut(made, "a", 0, 3)
        fill(made, "ab", {0: 5})
        yield made


def planned(broker: LocalBroker, *filters: Filter, **options: str) -> dict[str, tuple[int, int]]:
    pushed = PushedFilters()
    pushed(filters)
    if not options.keys() & {"subscribe", "assign", "subscribePattern"}:
        options["subscribe"] = "a"
    tasks = plan_batch(settings(broker, **options), pushed)
    return short([each for task in tasks for each in task.ranges])


@pytest.mark.covers("RD8")
def test_a_task_knows_the_ids_of_its_topics(broker: LocalBroker) -> None:
    tasks = plan_batch(settings(broker, subscribe="a,ab"), PushedFilters())
    assert [{*task.topic_ids} for task in tasks] == [{"a"}, {"a"}, {"ab"}]
    [first, again, other] = [next(iter(task.topic_ids.values())) for task in tasks]
    assert first == again != other


def test_partitions_with_few_records_share_a_task_on_request(broker: LocalBroker) -> None:
    tasks = plan_batch(settings(broker, subscribe="a,ab", minRecordsPerPartition="8"), PushedFilters())
    assert [short([*task.ranges]) for task in tasks] == [{"a-0": (3, 10), "a-1": (0, 4)}, {"ab-0": (0, 5)}]
    assert [{*task.topic_ids} for task in tasks] == [{"a"}, {"ab"}]


@pytest.mark.covers("RD3")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {"a-0": (3, 10), "a-1": (0, 4)}),
        ({"subscribe": "ab, a,"}, {"a-0": (3, 10), "a-1": (0, 4), "ab-0": (0, 5)}),
        ({"subscribe": "empty"}, {}),
        ({"subscribePattern": "b"}, {"ab-0": (0, 5)}),
        ({"subscribePattern": "^nothing"}, {}),
        ({"assign": '{"a":[1]}'}, {"a-1": (0, 4)}),
        ({"startingOffsets": '{"a":{"0":5,"1":-2}}'}, {"a-0": (5, 10), "a-1": (0, 4)}),
        ({"endingOffsets": '{"a":{"0":5,"1":-1}}'}, {"a-0": (3, 5), "a-1": (0, 4)}),
        ({"startingOffsets": '{"a":{"0":10,"1":4}}'}, {}),
        ({"startingTimestamp": str(FIRST_TIME + 31)}, None),
        ({"startingTimestamp": "-2", "endingTimestamp": "-1"}, {"a-0": (3, 10), "a-1": (0, 4)}),
        ({"startingTimestamp": "-1"}, {}),
        ({"endingTimestamp": "-2"}, {}),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1,"1":-2}}'}, {"a-1": (0, 4)}),
        ({"startingOffsets": '{"a":{"0":5,"1":1},"a@JmAXcWyQQfCHBKDWt5TzrA":{}}'}, {"a-0": (5, 10), "a-1": (1, 4)}),
        (
            {"startingTimestamp": str(FIRST_TIME + 31), "startingOffsetsByTimestampStrategy": "latest"},
            {"a-0": (4, 10)},
        ),
        ({"endingTimestamp": str(FIRST_TIME + 31)}, {"a-0": (3, 4), "a-1": (0, 4)}),
        (
            {"startingOffsetsByTimestamp": f'{{"a":{{"0":{FIRST_TIME + 60},"1":{FIRST_TIME}}}}}'},
            {"a-0": (6, 10), "a-1": (0, 4)},
        ),
    ],
)
def test_where_a_batch_begins_and_ends(
    broker: LocalBroker, options: dict[str, str], wanted: dict[str, tuple[int, int]] | None
) -> None:
    if wanted is not None:
        assert planned(broker, **options) == wanted
        return
    with pytest.raises(
        ConfigError,
        match=r"startingTimestamp: no record in topic 'a', partition 1 is at or after 1000031 ms\. Choose an",
    ):
        planned(broker, **options)


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"subscribe": "empyt"}, TopicNotFound, r"topic 'empyt'.*did you mean 'empty'"),
        ({"assign": '{"a":[0,7]}'}, TopicNotFound, r"topic 'a' has no partition 7: it has 2"),
        (
            {"startingOffsets": '{"a":{"0":5}}'},
            ConfigError,
            r"startingOffsets lacks topic 'a', partition 1\. Name each",
        ),
        (
            {"endingOffsets": '{"a":{"0":5,"1":-1,"2":3}}'},
            ConfigError,
            r"endingOffsets names topic 'a', partition 2, which the subscription",
        ),
        (
            {"startingOffsetsByTimestamp": '{"b":{"0":5}}'},
            ConfigError,
            r"startingOffsetsByTimestamp lacks topic 'a', partitions 0, 1\.",
        ),
        (
            {"startingOffsets": '{"a":{"0":7,"1":-2}}', "endingOffsets": '{"a":{"0":5,"1":-1}}'},
            ConfigError,
            r"the read ends before it starts in topic 'a', partition 0: .* starts at offset 7 and ends at 5",
        ),
        (
            {"startingTimestamp": str(FIRST_TIME + 20), "endingOffsets": '{"a":{"0":5,"1":1}}'},
            ConfigError,
            r"the read ends before it starts in .*, partition 1 starts at offset 2 and ends at 1",
        ),
        (
            {"startingOffsets": '{"a":{"0":2,"1":-2}}'},
            DataLoss,
            r"startingOffsets has offset 2 for topic 'a', partition 0, whose log has the offsets 3 to 10\. What to do: give an",
        ),
        ({"startingOffsets": '{"a":{"0":11,"1":-2}}'}, DataLoss, r"startingOffsets has offset 11"),
        ({"endingOffsets": '{"a":{"0":11,"1":-1}}'}, DataLoss, r"endingOffsets has offset 11"),
    ],
)
def test_what_does_not_fit_is_one_error_on_the_driver(
    broker: LocalBroker, options: dict[str, str], error: type[PyProducerError], said: str
) -> None:
    with pytest.raises(error, match=said):
        planned(broker, **options)


@pytest.mark.covers("RD7")
def test_offsets_that_are_gone_are_a_warning_if_the_user_says_so(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "startingOffsets": '{"a":{"0":2,"1":9}}',
        "endingOffsets": '{"a":{"0":20,"1":-1}}',
        "failOnDataLoss": "false",
    }
    assert planned(broker, **given) == {"a-0": (3, 10)}
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 3
    assert all("since failOnDataLoss is false" in text for text in warnings)


def test_brokers_that_are_down(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(wait_warning, "WARN_AFTER_S", 0.1)
    short_waits = dict.fromkeys(("kafka.default.api.timeout.ms", "kafka.request.timeout.ms"), "500")
    with LocalBroker() as gone:
        servers = gone.bootstrap_servers
        given = settings(gone, subscribe="a", **short_waits, **{"kafka.fetch.max.wait.ms": "100"})
    with pytest.raises(BrokersUnreachable, match=servers):
        plan_batch(given, PushedFilters())
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning == f"still waiting for {servers}, at most 0.5 s (kafka.default.api.timeout.ms)"


@pytest.mark.covers("RD3")
def test_a_pattern_that_matches_nothing_is_a_warning(broker: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Spark's own source reads nothing in silence."""
    assert planned(broker, subscribePattern="^nothing") == {}
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("subscribePattern ^nothing matches no topic")
    caplog.clear()
    assert planned(broker, subscribePattern="^empty") == {}
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def at(millis: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)


@pytest.mark.covers("RD17")
@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([EqualTo(("partition",), 1)], {"a-1": (0, 4)}),
        ([EqualTo(("topic",), "b")], {}),
        ([GreaterThanOrEqual(("offset",), 2), LessThan(("offset",), 6)], {"a-0": (3, 6), "a-1": (2, 4)}),
        ([GreaterThanOrEqual(("offset",), 10)], {}),
        ([GreaterThanOrEqual(("timestamp",), at(FIRST_TIME + 20))], {"a-0": (3, 10), "a-1": (2, 4)}),
        ([EqualTo(("timestamp",), at(FIRST_TIME + 45))], {"a-0": (5, 10)}),
        ([GreaterThanOrEqual(("timestamp",), at(FIRST_TIME + 1000))], {}),
    ],
)
def test_what_cannot_pass_a_filter_is_not_fetched(
    broker: LocalBroker, filters: list[Filter], wanted: dict[str, tuple[int, int]]
) -> None:
    assert planned(broker, *filters) == wanted


@pytest.mark.covers("RD17")
def test_timestamps_in_disorder_lose_nothing(broker: LocalBroker) -> None:
    from spark_producer.producer import Producer

    broker.create_topic("disorder", 1)
    times = [500, 900, 100, 700, 300, 1100, 200]
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for millis in times:
            producer.send("disorder", b"", timestamp_ms=millis)
            producer.flush()
    for first in (100, 301, 600, 900, 901, 1100):
        ((start, end),) = planned(broker, GreaterThanOrEqual(("timestamp",), at(first)), subscribe="disorder").values()
        assert (start, end) == (next(i for i, millis in enumerate(times) if millis >= first), len(times))


def test_topic_partitions_in_messages() -> None:
    def named(*chosen: str) -> str:
        return offset_resolution.named([TopicPartition(each[0], int(each[1:])) for each in chosen])

    assert named("b0") == "topic 'b', partition 0"
    assert named("b0", "a1", "a0") == "topic 'a', partitions 0, 1, topic 'b', partition 0"
    assert named(*(f"a{number}" for number in range(8))) == "topic 'a', partitions 0, 1, 2, 3, 4 and 3 more"
