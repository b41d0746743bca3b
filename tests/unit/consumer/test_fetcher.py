"""The fetcher's requests, and its handling of responses: leaders, followers, retries, progress, memory."""

from __future__ import annotations

import itertools
import re
import sys

import pytest

from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.consumer.fetcher import AHEAD, Fetcher
from spark_producer.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    CorruptRecord,
    KafkaTimeout,
    UnsupportedVersion,
    broker_error,
)
from spark_producer.protocol import FETCH, FETCH_BY_ID, METADATA
from spark_producer.protocol.messages import (
    NO_UUID,
    FetchResponse,
    FetchTopicResponse,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.unit.consumer.fetcher_harness import BOOTSTRAP, TOPIC, TOPIC_ID, FetcherHarness, batch, of, positions, row

NOT_LEADER, OUT_OF_RANGE, NOT_AUTHORIZED, CORRUPT_MESSAGE, NO_SUCH_CODEC = 6, 1, 29, 2, 76


def test_a_range_is_fetched_from_its_leader_with_the_leader_epoch_until_its_end() -> None:
    harness = FetcherHarness(of(0, 5, 9), client_rack="a", isolation=IsolationLevel.READ_COMMITTED)
    request = harness.next_fetch()
    assert (request.node, positions(request)) == (1, [(0, 5)])
    body = request.body
    assert (body.topics[0].partitions[0].current_leader_epoch, body.rack_id, body.isolation_level) == (7, "a", 1)
    assert harness.step() == [], "one Fetch at a time goes to a broker"
    [first] = harness.fetched(request, row(0, batch(5, 2)))
    assert (first.start, first.end, first.next_offset) == (5, 9, 7)
    request = harness.next_fetch()
    assert positions(request) == [(0, 7)]
    harness.fetched(request, row(0, batch(7, 2)))
    assert harness.fetcher.done
    assert harness.step() == []


def test_the_broker_never_waits_for_more_than_one_byte() -> None:
    assert FetcherHarness(of(0, 0, 9), min_bytes=1 << 20).next_fetch().body.min_bytes == 1


def test_all_partitions_of_a_leader_are_in_one_request() -> None:
    harness = FetcherHarness(of(0, 1, 9), of(1, 2, 9), of(2, 3, 3))
    assert positions(harness.next_fetch()) == [(0, 1), (1, 2)]


@pytest.mark.covers("RD11")
def test_a_partition_whose_batch_did_not_fit_is_first_in_the_next_request() -> None:
    harness = FetcherHarness(of(0, 0, 9), of(1, 0, 9))
    request = harness.next_fetch()
    assert len(harness.fetched(request, row(0, batch(0)), row(1, batch(0)[:30]))) == 1
    assert positions(harness.next_fetch()) == [(1, 0), (0, 1)]


@pytest.mark.covers("RD6")
def test_a_gap_is_progress() -> None:
    harness = FetcherHarness(of(0, 5, 20), of(1, 0, 5))
    request = harness.next_fetch()
    harness.fetched(request, row(0, batch(12)), row(1, batch(5)))
    assert positions(harness.next_fetch()) == [(0, 13)], "partition 1 goes on after the end of its range"


def test_no_more_bytes_are_requested_than_the_rest_of_the_range_can_have() -> None:
    harness = FetcherHarness(of(0, 0, 1000))
    request = harness.next_fetch()
    assert request.max_bytes == harness.settings.partition_bytes
    harness.fetched(request, row(0, batch(0, 900, size=1000)))
    request = harness.next_fetch()
    assert 100_000 < request.max_bytes < 250_000
    assert request.body.topics[0].partitions[0].partition_max_bytes == request.max_bytes == request.body.max_bytes


def test_the_next_read_of_a_partition_requests_what_its_range_can_have() -> None:
    harness = FetcherHarness(of(0, 0, 900))
    harness.fetched(harness.next_fetch(), row(0, batch(0, 900, size=1000)))
    harness.fetcher = Fetcher(harness.settings, [of(0, 900, 910), of(1, 0, 10)], harness.cluster)
    [known, unknown] = harness.next_fetch().body.topics[0].partitions
    assert 10_000 < known.partition_max_bytes < 100_000
    assert unknown.partition_max_bytes == harness.settings.partition_bytes


def test_a_request_is_due_unless_those_in_flight_can_fetch_the_rest() -> None:
    harness = FetcherHarness(of(0, 0, 9), of(1, 0, 9))
    assert harness.fetcher.must_request
    request = harness.next_fetch()
    assert not harness.fetcher.must_request
    harness.fetched(request, row(0, batch(0, 9)), row(1, batch(0, 5)))
    assert harness.fetcher.must_request, "for partition 1"
    harness.fetched(harness.next_fetch(), row(1, batch(5, 4)))
    assert not harness.fetcher.must_request


@pytest.mark.covers("RD11")
def test_many_partitions_take_steps_in_proportion() -> None:
    """Lines of Python are counted, so that a search through all partitions for each of them is seen."""

    def steps_of(count: int) -> int:
        harness = FetcherHarness(*[of(each, 0, 1) for each in range(count)])
        rows = [row(each, batch_of_one) for each in range(count)]
        steps = itertools.count()

        def trace(*_: object) -> object:
            next(steps)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            request = harness.next_fetch()
            fetched = harness.fetched(request, *rows)
        finally:
            sys.settrace(before)
        assert len(fetched) == count
        assert harness.fetcher.done
        return next(steps)

    batch_of_one = batch(0)
    assert steps_of(3_000) < 11 * steps_of(300)


# Memory


@pytest.mark.covers("RD14")
def test_without_free_memory_nothing_is_fetched() -> None:
    harness = FetcherHarness(of(0, 0, 9))
    [request] = harness.step()
    harness.metadata(request)
    harness.free = harness.fetcher.max_bytes // 2 - 1
    assert harness.step() == []
    assert harness.fetcher.starved
    harness.free += 1
    assert [each.api.key for each in harness.step()] == [FETCH.key]
    assert not harness.fetcher.starved


@pytest.mark.covers("RD14")
def test_the_memory_is_that_of_some_responses_and_at_most_the_option() -> None:
    size = 1 << 20
    assert FetcherHarness(of(0, 0, 9), partition_bytes=size).fetcher.max_bytes == AHEAD * size
    many = [of(each, 0, 9) for each in range(100)]
    harness = FetcherHarness(*many, partition_bytes=size, max_bytes=10 << 20)
    assert harness.fetcher.max_bytes == 10 << 20
    assert harness.next_fetch().body.max_bytes == 5 << 20, "another response can be decoded meanwhile"


# Leaders


@pytest.mark.covers("RD9")
@pytest.mark.parametrize("code", [5, NOT_LEADER, 9, 13, 56, 74, 75, 78])
def test_a_leader_that_moved_is_looked_up_and_fetching_goes_on_at_the_same_offset(code: int) -> None:
    harness = FetcherHarness(of(0, 5, 9))
    harness.fetched(harness.next_fetch(), row(0, batch(5)))
    assert harness.fetched(harness.next_fetch(), row(0, error=code)) == []
    assert harness.step() == [], "a pause comes first"
    harness.leader, harness.epoch = 2, 8
    request = harness.next_fetch()
    assert (request.node, positions(request)) == (2, [(0, 6)])
    assert request.body.topics[0].partitions[0].current_leader_epoch == 8


@pytest.mark.covers("RD9")
def test_a_lost_response_is_fetched_again() -> None:
    harness = FetcherHarness(of(0, 5, 9))
    assert harness.answer(harness.next_fetch(), error=ConnectionFailed("cut")) == []
    assert positions(harness.next_fetch()) == [(0, 5)]


@pytest.mark.covers("RD9")
def test_a_partition_without_a_row_is_fetched_again() -> None:
    harness = FetcherHarness(of(0, 5, 9), of(1, 0, 9))
    assert len(harness.fetched(harness.next_fetch(), row(1, batch(0)))) == 1
    assert positions(harness.next_fetch()) == [(1, 1)]
    for request in harness.step(2.0):
        harness.metadata(request)
    harness.unready = {1}
    assert harness.step() == []
    harness.unready, harness.fetcher._fetching = set(), set()
    assert positions(harness.next_fetch()) == [(0, 5)]


@pytest.mark.covers("RD9")
def test_pauses_between_failures_grow() -> None:
    harness, pauses = FetcherHarness(of(0, 5, 9)), []
    for _ in range(4):
        harness.answer(harness.next_fetch(), error=ConnectionFailed("cut"))
        harness.step()
        pauses.append(harness.fetcher.wake_at - harness.now)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * pauses[0]


@pytest.mark.covers("RD9")
def test_without_progress_the_read_ends_with_the_last_reason() -> None:
    harness = FetcherHarness(of(0, 5, 9), timeout=30.0)
    harness.answer(harness.next_fetch(), error=ConnectionFailed("the connection was cut"))
    harness.step(29.0)
    with pytest.raises(KafkaTimeout, match=r"topic 't', partition 0 at offset 5 .* 30 s .*the connection was cut"):
        harness.step(1.0)


@pytest.mark.covers("RD9")
def test_each_long_wait_for_a_leader_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    harness = FetcherHarness(of(0, 5, 9), timeout=30.0)
    harness.leader = -1
    for _ in range(2):
        for _ in range(20):
            for request in harness.step(0.5):
                harness.metadata(request)
        harness.leader = 1
        harness.fetched(harness.next_fetch(), row(0, batch(5)))
        harness.leader = -1
        harness.answer(harness.next_fetch(), error=ConnectionFailed("the connection was cut"))
    expected = r"still waiting for topic 't', partition 0 at offset \d \(last: .*\), at most 30 s"
    warnings = [record.getMessage() for record in caplog.records]
    assert len([each for each in warnings if re.match(expected, each)]) == len(warnings) == 2, warnings


@pytest.mark.covers("RD9")
def test_an_unreachable_leader_ends_the_read_in_time() -> None:
    harness = FetcherHarness(of(0, 5, 9), timeout=30.0)
    [request] = harness.step()
    harness.metadata(request)
    harness.unready = {1}
    assert harness.step() == []
    assert harness.fetcher.wake_at <= harness.now + 30
    harness.fetcher.on_disconnect(1, ConnectionFailed("refused by broker1"), harness.now)
    with pytest.raises(KafkaTimeout, match="refused by broker1"):
        harness.step(30.0)


@pytest.mark.covers("RD9")
def test_a_connection_is_tried_again_when_its_backoff_ends() -> None:
    harness = FetcherHarness(of(0, 5, 9), timeout=30.0)
    [request] = harness.step()
    harness.metadata(request)
    harness.unready, harness.backoff = {1}, 0.05
    assert harness.step() == []
    assert harness.fetcher.wake_at == harness.now + 0.05


def test_progress_resets_the_time_and_the_pauses() -> None:
    harness, pauses = FetcherHarness(of(0, 5, 15), timeout=30.0), []
    for offset in range(5, 10):
        harness.answer(harness.next_fetch(), error=ConnectionFailed("cut"))
        harness.step()
        pauses.append(harness.fetcher.wake_at - harness.now)
        harness.now += 20
        harness.fetched(harness.next_fetch(), row(0, batch(offset)))
    assert max(pauses) < 2 * min(pauses)


def test_time_without_free_memory_does_not_count() -> None:
    harness = FetcherHarness(of(0, 5, 9), timeout=30.0)
    harness.fetched(harness.next_fetch(), row(0, batch(5)))
    harness.free = 0
    assert harness.step(1000.0) == []


@pytest.mark.covers("RD9")
def test_a_broker_that_returns_nothing_of_what_it_has_is_not_asked_without_pause() -> None:
    harness = FetcherHarness(of(0, 5, 9))
    harness.fetched(harness.next_fetch(), row(0))
    assert harness.step() == []
    assert harness.fetcher.wake_at > harness.now


@pytest.mark.covers("RD12")
def test_a_missing_right_names_the_user_and_the_right() -> None:
    harness = FetcherHarness(of(0, 5, 9))
    with pytest.raises(BrokerError, match=r"partition 0 at offset 5.*ANONYMOUS.*grant READ"):
        harness.fetched(harness.next_fetch(), row(0, error=NOT_AUTHORIZED))
    harness = FetcherHarness(of(0, 5, 9))
    [request] = harness.step()
    with pytest.raises(BrokerError, match=r"TOPIC_AUTHORIZATION_FAILED.*grant READ"):
        harness.metadata(request, error=NOT_AUTHORIZED)


def test_what_a_broker_cannot_do_ends_the_read() -> None:
    harness = FetcherHarness(of(0, 5, 9))
    with pytest.raises(BrokerError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        harness.fetched(harness.next_fetch(), row(0, error=NO_SUCH_CODEC))
    harness = FetcherHarness(of(0, 5, 9))
    with pytest.raises(UnsupportedVersion):
        harness.answer(harness.next_fetch(), error=UnsupportedVersion("too old"))


def test_damage_names_topic_partition_and_offset() -> None:
    harness = FetcherHarness(of(0, 5, 9))
    with pytest.raises(CorruptRecord, match="topic 't', partition 0 failed at offset 5: the broker"):
        harness.fetched(harness.next_fetch(), row(0, error=CORRUPT_MESSAGE))
    for data in (batch(5)[:30], b"\0" * 100):
        harness = FetcherHarness(of(0, 5, 9))
        with pytest.raises(CorruptRecord, match="topic 't', partition 0"):
            harness.fetched(harness.next_fetch(), row(0, data))


# The nearest replica


def at_follower(harness: FetcherHarness) -> None:
    """Have the leader name broker 2 as the follower to fetch from."""
    assert harness.fetched(harness.next_fetch(), row(0, preferred_read_replica=2)) == []


def test_a_follower_in_the_rack_is_fetched_from_at_once() -> None:
    harness = FetcherHarness(of(0, 5, 9), client_rack="a")
    at_follower(harness)
    [request] = harness.step()
    assert (request.node, positions(request)) == (2, [(0, 5)])
    harness.fetched(request, row(0, batch(5)))
    assert harness.next_fetch().node == 2


@pytest.mark.parametrize("code", [OUT_OF_RANGE, NOT_LEADER, 78])
def test_after_an_error_of_a_follower_the_leader_is_asked(code: int) -> None:
    harness = FetcherHarness(of(0, 5, 9), client_rack="a")
    at_follower(harness)
    harness.fetched(harness.next_fetch(), row(0, error=code))
    assert harness.next_fetch().node == 1


def test_after_the_loss_of_a_follower_the_leader_is_asked() -> None:
    harness = FetcherHarness(of(0, 5, 9), client_rack="a")
    at_follower(harness)
    harness.fetcher.on_disconnect(2, ConnectionFailed("cut"), harness.now)
    assert harness.next_fetch().node == 1


def test_after_a_follower_left_the_cluster_the_leader_names_another() -> None:
    """The former one was kept in mind, so the leader's choice was taken for that of a follower, and the fetch paused."""
    harness = FetcherHarness(of(0, 5, 9), client_rack="a")
    at_follower(harness)
    harness.cluster.brokers = {1: ("broker1", 9092), 3: ("broker3", 9092)}
    request = harness.next_fetch()
    assert request.node == 1
    harness.fetched(request, row(0, preferred_read_replica=3))
    assert [each.node for each in harness.step()] == [3]


def test_a_follower_that_is_unknown_is_looked_up() -> None:
    harness = FetcherHarness(of(0, 5, 9), client_rack="a")
    assert harness.fetched(harness.next_fetch(), row(0, preferred_read_replica=99)) == []
    harness.now += 2
    assert [each.api for each in harness.step()] == [METADATA]


def test_replicas_that_name_each_other_end_the_read_in_time() -> None:
    harness = FetcherHarness(of(0, 5, 9), client_rack="a", timeout=30.0)
    with pytest.raises(KafkaTimeout, match="broker 2 names broker 1 as the replica to read from"):  # noqa: PT012
        for _ in range(500):
            request = harness.next_fetch()
            harness.fetched(request, row(0, preferred_read_replica=3 - request.node))


# Base offsets


def test_a_base_offset_beyond_the_log_is_no_progress() -> None:
    harness = FetcherHarness(of(0, 5, 9), timeout=30.0)
    assert harness.fetched(harness.next_fetch(), row(0, batch(1 << 40, 4))) == []
    assert not harness.fetcher.done
    request = harness.next_fetch()
    assert positions(request) == [(0, 5)]
    [found] = harness.fetched(request, row(0, batch(5, 4)))
    assert found.next_offset == 9
    harness = FetcherHarness(of(0, 5, 9), timeout=30.0)
    with pytest.raises(KafkaTimeout, match="a batch ends at offset 1099511627779, but the high watermark is 1000"):  # noqa: PT012
        for _ in range(500):
            harness.fetched(harness.next_fetch(), row(0, batch(1 << 40, 4)))


# Transactions


@pytest.mark.covers("RD5")
def test_an_open_transaction_is_waited_for_and_then_named() -> None:
    harness = FetcherHarness(of(0, 5, 9), isolation=IsolationLevel.READ_COMMITTED, timeout=30.0)
    harness.fetched(harness.next_fetch(), row(0, high_watermark=9, last_stable_offset=5))
    harness.fetched(harness.next_fetch(), row(0, high_watermark=9, last_stable_offset=5))
    with pytest.raises(KafkaTimeout, match="a transaction that is open since offset 5"):
        harness.step(30.0)
    harness = FetcherHarness(of(0, 5, 9), isolation=IsolationLevel.READ_COMMITTED)
    harness.fetched(harness.next_fetch(), row(0, high_watermark=9, last_stable_offset=5))
    assert len(harness.fetched(harness.next_fetch(), row(0, batch(5, 4), high_watermark=9, last_stable_offset=9))) == 1
    assert harness.fetcher.done


def test_only_the_wanted_topics_are_looked_up_and_none_is_created() -> None:
    [request] = FetcherHarness(of(0, 5, 9), of(1, 5, 9)).step()
    assert [each.name for each in request.body.topics] == [TOPIC]
    assert request.body.allow_auto_topic_creation is False


@pytest.mark.covers("RD8")
def test_records_are_fetched_by_the_id_of_the_topic_and_a_response_may_have_the_id_alone() -> None:
    """Brokers from 3.1 on write the id into a response, older ones the name; the connection chooses the version."""
    harness = FetcherHarness(of(0, 0, 2))
    request = harness.next_fetch()
    assert request.api is FETCH_BY_ID
    [topic] = request.body.topics
    assert (topic.topic, topic.topic_id) == ("t", TOPIC_ID)
    by_id = FetchTopicResponse(topic_id=TOPIC_ID, partitions=(row(0, batch(0)),))
    assert [each.next_offset for each in harness.answer(request, FetchResponse(responses=(by_id,)))] == [1]
    assert [each.next_offset for each in harness.fetched(harness.next_fetch(), row(0, batch(1)))] == [2]


@pytest.mark.covers("RD8")
def test_records_are_fetched_by_name_from_a_cluster_without_topic_ids() -> None:
    harness = FetcherHarness(of(0, 0, 2))
    harness.topic_id = NO_UUID
    assert harness.next_fetch().api is FETCH


@pytest.mark.covers("SEC18")
def test_without_a_token_the_end_of_the_wait_says_to_get_one() -> None:
    """The brokers may be well: none was asked."""
    harness = FetcherHarness(of(0, 0, 9))
    harness.unready = {BOOTSTRAP}
    harness.step()
    error = AuthenticationFailed("the token provider my:function raised ValueError at my.py:3")
    harness.fetcher.on_disconnect(BOOTSTRAP, error, harness.now)
    with pytest.raises(KafkaTimeout) as found:
        harness.step(harness.settings.timeout)
    assert "my.py:3. What to do: get a token or ticket first (see the error before); brokers" in str(found.value)


@pytest.mark.covers("NW9")
def test_after_a_refused_connection_there_is_one_advice() -> None:
    harness = FetcherHarness(of(0, 0, 9))
    harness.unready = {BOOTSTRAP}
    harness.step()
    refusal = broker_error(129, "broker 3 of cluster 'ours', whose address leads to another broker")
    harness.fetcher.on_disconnect(BOOTSTRAP, refusal, harness.now)
    with pytest.raises(
        KafkaTimeout, match=r"another broker\. What to do: see where the addresses of brokers lead"
    ) as found:
        harness.step(harness.settings.timeout)
    assert str(found.value).count("What to do") == 1


@pytest.mark.covers("NW9")
def test_a_broker_of_another_cluster_is_named_with_one_advice() -> None:
    """The error was REBOOTSTRAP_REQUIRED, which no broker had sent, and named neither a broker nor a cluster."""
    harness = FetcherHarness(of(0, 0, 9))
    harness.cluster.learn(MetadataResponse(brokers=(MetadataResponseBroker(3, "three", 9092),), cluster_id="ours"), "")
    harness.least_loaded = lambda: 3  # type: ignore[method-assign]
    [request] = harness.step()
    harness.answer(request, MetadataResponse(cluster_id="theirs"))
    harness.unready = {3}
    with pytest.raises(KafkaTimeout) as found:
        harness.step(harness.settings.timeout)
    assert str(found.value).endswith(
        "; last: broker 3 at three:9092 is of cluster 'theirs', not of 'ours'. What to do: see where the addresses of "
        "brokers lead (advertised.listeners, DNS, load balancers)."
    )
    assert str(found.value).count("What to do") == 1
