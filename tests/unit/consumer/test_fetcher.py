"""What the fetcher requests, and what it makes of responses: leaders, followers, retries, progress, memory."""

from __future__ import annotations

import time

import pytest

from spark_producer.consumer import IsolationLevel
from spark_producer.consumer.fetcher import AHEAD
from spark_producer.errors import BrokerError, ConnectionFailed, CorruptRecord, KafkaTimeout, UnsupportedVersion
from spark_producer.protocol import FETCH, METADATA
from tests.unit.consumer.fetcher_stage import TOPIC, Stage, batch, of, positions, row

NOT_LEADER, OUT_OF_RANGE, NOT_AUTHORIZED, CORRUPT_MESSAGE, NO_SUCH_CODEC = 6, 1, 29, 2, 76


def test_a_range_is_fetched_from_its_leader_with_the_leader_epoch_until_its_end() -> None:
    stage = Stage(of(0, 5, 9), client_rack="a", isolation=IsolationLevel.READ_COMMITTED)
    request = stage.next_fetch()
    assert (request.node, positions(request)) == (1, [(0, 5)])
    body = request.body
    assert (body.topics[0].partitions[0].current_leader_epoch, body.rack_id, body.isolation_level) == (7, "a", 1)
    assert stage.step() == [], "one Fetch at a time goes to a broker"
    [first] = stage.fetched(request, row(0, batch(5, 2)))
    assert (first.start, first.end, first.next_offset) == (5, 9, 7)
    request = stage.next_fetch()
    assert positions(request) == [(0, 7)]
    stage.fetched(request, row(0, batch(7, 2)))
    assert stage.fetcher.done
    assert stage.step() == []


def test_the_broker_never_waits_for_more_than_one_byte() -> None:
    assert Stage(of(0, 0, 9), min_bytes=1 << 20).next_fetch().body.min_bytes == 1


def test_all_partitions_of_a_leader_are_in_one_request() -> None:
    stage = Stage(of(0, 1, 9), of(1, 2, 9), of(2, 3, 3))
    assert positions(stage.next_fetch()) == [(0, 1), (1, 2)]


@pytest.mark.covers("RD11")
def test_a_partition_whose_batch_did_not_fit_is_first_in_the_next_request() -> None:
    stage = Stage(of(0, 0, 9), of(1, 0, 9))
    request = stage.next_fetch()
    assert len(stage.fetched(request, row(0, batch(0)), row(1, batch(0)[:30]))) == 1
    assert positions(stage.next_fetch()) == [(1, 0), (0, 1)]


@pytest.mark.covers("RD6")
def test_a_gap_is_progress() -> None:
    stage = Stage(of(0, 5, 20), of(1, 0, 5))
    request = stage.next_fetch()
    stage.fetched(request, row(0, batch(12)), row(1, batch(5)))
    assert positions(stage.next_fetch()) == [(0, 13)], "partition 1 goes on after the end of its range"


def test_no_more_bytes_are_requested_than_the_rest_of_the_range_can_have() -> None:
    stage = Stage(of(0, 0, 1000))
    request = stage.next_fetch()
    assert request.max_bytes == stage.settings.partition_bytes
    stage.fetched(request, row(0, batch(0, 900, size=1000)))
    request = stage.next_fetch()
    assert 100_000 < request.max_bytes < 250_000
    assert request.body.topics[0].partitions[0].partition_max_bytes == request.max_bytes == request.body.max_bytes


@pytest.mark.covers("RD11")
def test_ten_thousand_partitions_take_linear_time() -> None:
    def seconds(count: int) -> float:
        stage = Stage(*[of(each, 0, 1) for each in range(count)])
        began = time.process_time()
        request = stage.next_fetch()
        assert len(stage.fetched(request, *[row(each, batch_of_one) for each in range(count)])) == count
        assert stage.fetcher.done
        return time.process_time() - began

    batch_of_one = batch(0)
    few = min(seconds(1000) for _ in range(3))
    assert seconds(10_000) < 40 * few


# Memory


@pytest.mark.covers("RD14")
def test_without_free_memory_nothing_is_fetched() -> None:
    stage = Stage(of(0, 0, 9))
    [request] = stage.step()
    stage.metadata(request)
    stage.free = stage.fetcher.max_bytes // 2 - 1
    assert stage.step() == []
    assert stage.fetcher.starved
    stage.free += 1
    assert [each.api for each in stage.step()] == [FETCH]
    assert not stage.fetcher.starved


@pytest.mark.covers("RD14")
def test_the_memory_is_that_of_some_responses_and_at_most_the_option() -> None:
    size = 1 << 20
    assert Stage(of(0, 0, 9), partition_bytes=size).fetcher.max_bytes == AHEAD * size
    many = [of(each, 0, 9) for each in range(100)]
    stage = Stage(*many, partition_bytes=size, max_bytes=10 << 20)
    assert stage.fetcher.max_bytes == 10 << 20
    assert stage.next_fetch().body.max_bytes == 5 << 20, "another response can be decoded meanwhile"


# Leaders


@pytest.mark.covers("RD9")
@pytest.mark.parametrize("code", [5, NOT_LEADER, 9, 13, 56, 74, 75, 78])
def test_a_leader_that_moved_is_looked_up_and_fetching_goes_on_at_the_same_offset(code: int) -> None:
    stage = Stage(of(0, 5, 9))
    stage.fetched(stage.next_fetch(), row(0, batch(5)))
    assert stage.fetched(stage.next_fetch(), row(0, error=code)) == []
    assert stage.step() == [], "a pause comes first"
    stage.leader, stage.epoch = 2, 8
    request = stage.next_fetch()
    assert (request.node, positions(request)) == (2, [(0, 6)])
    assert request.body.topics[0].partitions[0].current_leader_epoch == 8


@pytest.mark.covers("RD9")
def test_a_lost_response_is_fetched_again() -> None:
    stage = Stage(of(0, 5, 9))
    assert stage.answer(stage.next_fetch(), error=ConnectionFailed("cut")) == []
    assert positions(stage.next_fetch()) == [(0, 5)]


@pytest.mark.covers("RD9")
def test_a_partition_without_a_row_is_fetched_again() -> None:
    stage = Stage(of(0, 5, 9), of(1, 0, 9))
    assert len(stage.fetched(stage.next_fetch(), row(1, batch(0)))) == 1
    assert positions(stage.next_fetch()) == [(1, 1)]
    for request in stage.step(2.0):
        stage.metadata(request)
    stage.unready = {1}
    assert stage.step() == []
    stage.unready, stage.fetcher._fetching = set(), set()
    assert positions(stage.next_fetch()) == [(0, 5)]


@pytest.mark.covers("RD9")
def test_pauses_between_failures_grow() -> None:
    stage, pauses = Stage(of(0, 5, 9)), []
    for _ in range(4):
        stage.answer(stage.next_fetch(), error=ConnectionFailed("cut"))
        stage.step()
        pauses.append(stage.fetcher.wake_at - stage.now)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * pauses[0]


@pytest.mark.covers("RD9")
def test_without_progress_the_read_ends_with_the_last_reason() -> None:
    stage = Stage(of(0, 5, 9), timeout=30.0)
    stage.answer(stage.next_fetch(), error=ConnectionFailed("the connection was cut"))
    stage.step(29.0)
    with pytest.raises(KafkaTimeout, match=r"topic 't', partition 0 at offset 5 .* 30 s .*the connection was cut"):
        stage.step(1.0)


@pytest.mark.covers("RD9")
def test_an_unreachable_leader_ends_the_read_in_time() -> None:
    stage = Stage(of(0, 5, 9), timeout=30.0)
    [request] = stage.step()
    stage.metadata(request)
    stage.unready = {1}
    assert stage.step() == []
    assert stage.fetcher.wake_at <= stage.now + 30
    stage.fetcher.on_disconnect(1, ConnectionFailed("refused by broker1"), stage.now)
    with pytest.raises(KafkaTimeout, match="refused by broker1"):
        stage.step(30.0)


def test_progress_resets_the_time_and_the_pauses() -> None:
    stage, pauses = Stage(of(0, 5, 15), timeout=30.0), []
    for offset in range(5, 10):
        stage.answer(stage.next_fetch(), error=ConnectionFailed("cut"))
        stage.step()
        pauses.append(stage.fetcher.wake_at - stage.now)
        stage.now += 20
        stage.fetched(stage.next_fetch(), row(0, batch(offset)))
    assert max(pauses) < 2 * min(pauses)


def test_time_without_free_memory_does_not_count() -> None:
    stage = Stage(of(0, 5, 9), timeout=30.0)
    stage.fetched(stage.next_fetch(), row(0, batch(5)))
    stage.free = 0
    assert stage.step(1000.0) == []


@pytest.mark.covers("RD9")
def test_a_broker_that_returns_nothing_of_what_it_has_is_not_asked_without_pause() -> None:
    stage = Stage(of(0, 5, 9))
    stage.fetched(stage.next_fetch(), row(0))
    assert stage.step() == []
    assert stage.fetcher.wake_at > stage.now


@pytest.mark.covers("RD12")
def test_a_missing_right_names_the_user_and_the_right() -> None:
    stage = Stage(of(0, 5, 9))
    with pytest.raises(BrokerError, match=r"partition 0 at offset 5.*ANONYMOUS.*grant READ"):
        stage.fetched(stage.next_fetch(), row(0, error=NOT_AUTHORIZED))
    stage = Stage(of(0, 5, 9))
    [request] = stage.step()
    with pytest.raises(BrokerError, match=r"TOPIC_AUTHORIZATION_FAILED.*grant READ"):
        stage.metadata(request, error=NOT_AUTHORIZED)


def test_what_a_broker_cannot_do_ends_the_read() -> None:
    stage = Stage(of(0, 5, 9))
    with pytest.raises(BrokerError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        stage.fetched(stage.next_fetch(), row(0, error=NO_SUCH_CODEC))
    stage = Stage(of(0, 5, 9))
    with pytest.raises(UnsupportedVersion):
        stage.answer(stage.next_fetch(), error=UnsupportedVersion("too old"))


def test_damage_names_topic_partition_and_offset() -> None:
    stage = Stage(of(0, 5, 9))
    with pytest.raises(CorruptRecord, match="topic 't', partition 0 failed at offset 5: the broker"):
        stage.fetched(stage.next_fetch(), row(0, error=CORRUPT_MESSAGE))
    for data in (batch(5)[:30], b"\0" * 100):
        stage = Stage(of(0, 5, 9))
        with pytest.raises(CorruptRecord, match="topic 't', partition 0"):
            stage.fetched(stage.next_fetch(), row(0, data))


# The nearest replica


def at_follower(stage: Stage) -> None:
    """Have the leader name broker 2 as the follower to fetch from."""
    assert stage.fetched(stage.next_fetch(), row(0, preferred_read_replica=2)) == []


def test_a_follower_in_the_rack_is_fetched_from_at_once() -> None:
    stage = Stage(of(0, 5, 9), client_rack="a")
    at_follower(stage)
    [request] = stage.step()
    assert (request.node, positions(request)) == (2, [(0, 5)])
    stage.fetched(request, row(0, batch(5)))
    assert stage.next_fetch().node == 2


@pytest.mark.parametrize("code", [OUT_OF_RANGE, NOT_LEADER, 78])
def test_after_an_error_of_a_follower_the_leader_is_asked(code: int) -> None:
    stage = Stage(of(0, 5, 9), client_rack="a")
    at_follower(stage)
    stage.fetched(stage.next_fetch(), row(0, error=code))
    assert stage.next_fetch().node == 1


def test_after_the_loss_of_a_follower_the_leader_is_asked() -> None:
    stage = Stage(of(0, 5, 9), client_rack="a")
    at_follower(stage)
    stage.fetcher.on_disconnect(2, ConnectionFailed("cut"), stage.now)
    assert stage.next_fetch().node == 1


def test_a_follower_that_is_unknown_is_looked_up() -> None:
    stage = Stage(of(0, 5, 9), client_rack="a")
    assert stage.fetched(stage.next_fetch(), row(0, preferred_read_replica=99)) == []
    stage.now += 2
    assert [each.api for each in stage.step()] == [METADATA]


def test_replicas_that_name_each_other_end_the_read_in_time() -> None:
    stage = Stage(of(0, 5, 9), client_rack="a", timeout=30.0)
    with pytest.raises(KafkaTimeout, match="broker 2 names broker 1 as the replica to read from"):  # noqa: PT012
        for _ in range(500):
            request = stage.next_fetch()
            stage.fetched(request, row(0, preferred_read_replica=3 - request.node))


# Base offsets


def test_a_base_offset_beyond_the_log_is_no_progress() -> None:
    stage = Stage(of(0, 5, 9), timeout=30.0)
    assert stage.fetched(stage.next_fetch(), row(0, batch(1 << 40, 4))) == []
    assert not stage.fetcher.done
    request = stage.next_fetch()
    assert positions(request) == [(0, 5)]
    [found] = stage.fetched(request, row(0, batch(5, 4)))
    assert found.next_offset == 9
    stage = Stage(of(0, 5, 9), timeout=30.0)
    with pytest.raises(KafkaTimeout, match="a batch ends at offset 1099511627779, but the high watermark is 1000"):  # noqa: PT012
        for _ in range(500):
            stage.fetched(stage.next_fetch(), row(0, batch(1 << 40, 4)))


# Transactions


@pytest.mark.covers("RD5")
def test_an_open_transaction_is_waited_for_and_then_named() -> None:
    stage = Stage(of(0, 5, 9), isolation=IsolationLevel.READ_COMMITTED, timeout=30.0)
    stage.fetched(stage.next_fetch(), row(0, high_watermark=9, last_stable_offset=5))
    stage.fetched(stage.next_fetch(), row(0, high_watermark=9, last_stable_offset=5))
    with pytest.raises(KafkaTimeout, match="a transaction that is open since offset 5"):
        stage.step(30.0)
    stage = Stage(of(0, 5, 9), isolation=IsolationLevel.READ_COMMITTED)
    stage.fetched(stage.next_fetch(), row(0, high_watermark=9, last_stable_offset=5))
    assert len(stage.fetched(stage.next_fetch(), row(0, batch(5, 4), high_watermark=9, last_stable_offset=9))) == 1
    assert stage.fetcher.done


def test_only_the_wanted_topics_are_looked_up_and_none_is_created() -> None:
    [request] = Stage(of(0, 5, 9), of(1, 5, 9)).step()
    assert [each.name for each in request.body.topics] == [TOPIC]
    assert request.body.allow_auto_topic_creation is False
